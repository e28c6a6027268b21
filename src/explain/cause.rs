//! From what is known about the pods of a deployment to the one reason that is said.

use serde::Serialize;

use super::symptom::recognise;
use crate::lint;

/// What the cluster says about one pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodFacts {
    pub name: String,
    pub node: Option<String>,
    pub phase: String,
    pub ready: bool,
    /// Name and index of the group, for pods of a LeaderWorkerSet.
    pub group: Option<(String, String)>,
    /// The scheduler's words, reasons of containers, warnings, newest first.
    pub said: Vec<String>,
    /// The last lines of its containers, also of the run before.
    pub log: Vec<String>,
    /// A container that ended with an error, its exit code and last line.
    pub ended: Option<String>,
    /// A container that is within the time that its startup probe gives it, and how much of that is left.
    pub loading: Option<String>,
    /// Which nodes could give what it is short of, and who holds that now.
    pub held: Option<String>,
}

/// What stands behind the pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Behind {
    /// The namespace is being deleted: that in words, and what to do.
    pub namespace: Option<(String, String)>,
    /// Those that should have pods, and are not ready.
    pub workloads: Vec<Workload>,
    /// The namespace in which there is none at all.
    pub none_in: Option<String>,
}

/// A workload that is not ready.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Workload {
    /// `DynamoGraphDeployment nemo/nemo`
    pub title: String,
    /// It is being deleted.
    pub going: bool,
    /// What it waits for; of one that is being deleted: what holds it.
    pub why: String,
    /// Who should make its pods and does not work.
    pub idle: Option<String>,
}

impl Workload {
    fn cause(&self) -> Cause {
        let Self { title, going, why, idle } = self;
        let mut sentence = match (going, why.as_str()) {
            (true, "") => format!("{title} is being deleted"),
            (true, why) => format!("{title} is being deleted, {why}"),
            (false, why) => format!("{title} is not ready: {why}"),
        };
        if let Some(idle) = idle.as_ref().filter(|idle| !sentence.contains(idle.as_str())) {
            sentence = format!("{sentence}; {idle}, so nobody makes its pods");
        }
        let next = match (idle, going) {
            (Some(_), _) => {
                "nemo platform status shows what of the platform does not work; nemo up --to platform makes it anew where it is gone, kubectl scale where it was scaled to 0"
            }
            (None, true) => "wait until it is gone; nemo apply then makes it anew",
            (None, false) => "wait, and ask again: nothing that is known to go wrong was said",
        };
        Cause { rule: None, sentence, next: next.to_owned() }
    }
}

/// The one reason.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Cause {
    /// Id of the rule, where the words are known.
    pub rule: Option<String>,
    /// Why it does not serve, in one sentence.
    pub sentence: String,
    /// What to do.
    pub next: String,
}

impl Cause {
    fn of(rule: &'static str, subject: &str, line: &str) -> Self {
        let (title, fix) = lint::rule(rule).map_or(("", ""), |rule| (rule.title, rule.fix));
        Self { rule: Some(rule.to_owned()), sentence: format!("{subject} does not serve: {title} ({line})"), next: fix.to_owned() }
    }
}

/// Why it does not serve; none when all is ready. First what goes, then what the pods say, then what has no pods that could say anything.
pub fn cause(pods: &[PodFacts], behind: &Behind) -> Option<Cause> {
    if let Some((sentence, next)) = &behind.namespace {
        return Some(Cause { rule: None, sentence: sentence.clone(), next: next.clone() });
    }
    let going = || behind.workloads.iter().find(|workload| workload.going).map(Workload::cause);
    let unready = || behind.workloads.iter().find(|workload| workload.idle.is_some()).or(behind.workloads.first()).map(Workload::cause);
    let none = || {
        let sentence = format!("nothing serves: there is no workload of this deployment in the namespace {}", behind.none_in.as_ref()?);
        Some(Cause { rule: None, sentence, next: "nemo apply, or nemo up where the steps before it are not done".to_owned() })
    };
    going().or_else(|| of_pods(pods)).or_else(unready).or_else(none)
}

/// Why these pods do not serve; none when all are ready. The words of all pods count together: one rank ends because of another.
fn of_pods(pods: &[PodFacts]) -> Option<Cause> {
    let waiting: Vec<&PodFacts> = pods.iter().filter(|pod| !pod.ready && pod.phase != "Succeeded").collect();
    let first = waiting.first()?;
    if let Some(cause) = half_groups(pods) {
        return Some(cause);
    }
    let found = waiting.iter().filter_map(|pod| {
        // Of the log the cause stands further up, at the end there is only what followed.
        // That no node has enough is not so where others only hold it for now.
        let said = pod.said.iter().filter(|words| pod.held.is_none() || !words.contains("Insufficient "));
        let lines = said.chain(&pod.log).flat_map(|words| words.lines());
        recognise(lines.collect::<Vec<_>>()).map(|symptom| (pod, symptom))
    });
    let all: Vec<_> = found.collect();
    let words: Vec<&str> = all.iter().map(|(_, symptom)| symptom.line.as_str()).collect();
    if let Some(nearest) = recognise(words.clone()) {
        let pod = all.iter().find(|(_, symptom)| symptom.line == nearest.line).map_or(*first, |(pod, _)| pod);
        return Some(Cause::of(nearest.rule, &format!("pod {}{}", pod.name, place(pod)), &nearest.line));
    }
    if let Some(cause) = by_itself(&waiting) {
        return Some(cause);
    }
    let last = first.log.last().or(first.said.first()).map_or("nothing was said", String::as_str);
    Some(Cause {
        rule: None,
        sentence: format!("pod {}{} is not ready: {}", first.name, place(first), first.said.first().map_or(last, String::as_str).lines().next().unwrap_or(last)),
        next: if first.log.is_empty() { "wait, and ask again: nothing that is known to go wrong was said".into() } else { format!("its last line: {last}") },
    })
}

/// What is told without words that anyone knows: a crash, a place that is taken, a start that takes its time; the first of these that is so.
fn by_itself(waiting: &[&PodFacts]) -> Option<Cause> {
    let told = |rule: Option<&str>, sentence: String, next: &str| Cause { rule: rule.map(str::to_owned), sentence, next: next.to_owned() };
    let subject = |pod: &PodFacts| format!("pod {}{}", pod.name, place(pod));
    let ended = || waiting.iter().find_map(|pod| Some((pod, pod.ended.as_ref()?)));
    let held = || waiting.iter().find_map(|pod| Some((pod, pod.held.as_ref()?)));
    let loading = || waiting.iter().find_map(|pod| Some((pod, pod.loading.as_ref()?)));
    if let Some((pod, ended)) = ended() {
        return Some(told(Some("crash"), format!("{} does not serve: {ended}", subject(pod)), "correct what it said last; nemo apply then starts it anew"));
    }
    if let Some((pod, held)) = held() {
        let next = "those that are ending will be gone soon: ask again; what goes on running has to go first (nemo apply takes away what the settings do not ask for), or the pod needs another node";
        return Some(told(None, format!("{} waits for its place: {held}", subject(pod)), next));
    }
    loading().map(|(pod, loading)| told(None, format!("{} is still loading, and nothing is wrong so far: {loading}", subject(pod)), "wait, and ask again"))
}

fn place(pod: &PodFacts) -> String {
    pod.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default()
}

/// Several groups of which each has a pod that runs and one that finds no GPU.
fn half_groups(pods: &[PodFacts]) -> Option<Cause> {
    let mut halves: Vec<(&str, &str)> = Vec::new();
    for pod in pods.iter().filter(|pod| pod.phase == "Pending" && pod.said.iter().any(|words| words.contains("Insufficient nvidia.com/gpu"))) {
        let Some((name, index)) = &pod.group else { continue };
        let holds = pods.iter().any(|other| other.group == pod.group && other.phase == "Running");
        if holds && !halves.contains(&(name, index)) {
            halves.push((name, index));
        }
    }
    let names: Vec<String> = halves.iter().map(|(name, index)| format!("{name}-{index}")).collect();
    (!names.is_empty()).then(|| Cause::of("N34", &format!("LeaderWorkerSet {}", halves[0].0), &format!("not whole: {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of pods behind which all is well.
    fn cause(pods: &[PodFacts]) -> Option<Cause> {
        super::cause(pods, &Behind::default())
    }

    fn pod(name: &str, phase: &str, said: &[&str], log: &[&str]) -> PodFacts {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        PodFacts { name: name.into(), phase: phase.into(), said: words(said), log: words(log), ..PodFacts::default() }
    }

    #[test]
    fn one_sentence_says_why_and_what_to_do() {
        let pending = pod("w-0", "Pending", &["0/2 nodes are available: 2 Insufficient cpu."], &[]);
        let cause = cause(&[pending]).unwrap();
        assert_eq!(cause.rule.as_deref(), Some("N32"));
        assert_eq!(cause.sentence, "pod w-0 does not serve: more CPU than a node allocates (0/2 nodes are available: 2 Insufficient cpu.)");
        assert!(cause.next.contains("48"));
    }

    #[test]
    fn the_words_of_all_ranks_count() {
        let first = pod("w-0", "Running", &["Startup probe failed: 503"], &["TimeoutError: RPC call to execute_model timed out."]);
        let mut second = pod("w-0-1", "Running", &[], &["NCCL WARN Connect to 169.254.170.23<1> failed : Connection refused", "Killed"]);
        second.node = Some("ip-10-0-0-1".into());
        let cause = cause(&[first, second]).unwrap();
        assert_eq!(cause.rule.as_deref(), Some("N24"));
        assert!(cause.sentence.starts_with("pod w-0-1 on ip-10-0-0-1 does not serve"), "{}", cause.sentence);
    }

    #[test]
    fn groups_that_are_half_placed_are_told_as_such() {
        let member = |name: &str, phase: &str, group: &str| {
            let said: &[&str] = if phase == "Pending" { &["0/2 nodes are available: 2 Insufficient nvidia.com/gpu."] } else { &[] };
            PodFacts { group: Some(("ultra".into(), group.into())), ..pod(name, phase, said, &[]) }
        };
        let pods = [member("ultra-0", "Running", "0"), member("ultra-0-1", "Pending", "0"), member("ultra-1", "Running", "1"), member("ultra-1-1", "Pending", "1")];
        let told = cause(&pods).unwrap();
        assert_eq!((told.rule.as_deref(), told.sentence.contains("ultra-0, ultra-1")), (Some("N34"), true), "{}", told.sentence);
        let alone = [member("ultra-0-1", "Pending", "0")];
        assert_eq!(cause(&alone).unwrap().rule.as_deref(), Some("no-gpu"));
    }

    #[test]
    fn a_start_that_takes_its_time_is_no_fault_and_a_crash_says_what_it_said() {
        const FAILED: &str = "Unhealthy: Startup probe failed: HTTP probe failed with statuscode: 503";
        let loads = PodFacts { loading: Some("container worker began 19 s ago, its startup probe gives it 3991 s more".into()), ..pod("w", "Running", &[FAILED], &["loading"]) };
        let told = cause(std::slice::from_ref(&loads)).unwrap();
        assert_eq!(told.rule, None);
        assert_eq!(told.sentence, "pod w is still loading, and nothing is wrong so far: container worker began 19 s ago, its startup probe gives it 3991 s more");
        let ended = PodFacts {
            ended: Some("container worker ended with exit code 3; its last line: no such model".into()),
            ..pod("x", "Running", &[FAILED, "CrashLoopBackOff: "], &["no such model"])
        };
        let told = cause(&[loads, ended]).unwrap();
        assert_eq!(told.rule.as_deref(), Some("crash"));
        assert_eq!(told.sentence, "pod x does not serve: container worker ended with exit code 3; its last line: no such model");
        let killed = PodFacts {
            ended: Some("container worker ended with exit code 137".into()),
            ..pod("w", "Running", &["Killing: Container worker failed startup probe, will be restarted", FAILED], &[])
        };
        assert_eq!(cause(&[killed]).unwrap().rule.as_deref(), Some("N50"));
    }

    #[test]
    fn a_node_that_others_hold_is_not_one_that_has_too_little() {
        let short = pod("w", "Pending", &["0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient nvidia.com/gpu, 2 Insufficient vpc.amazonaws.com/efa."], &[]);
        assert_eq!(cause(std::slice::from_ref(&short)).unwrap().rule.as_deref(), Some("N12"));
        let told = cause(&[PodFacts { held: Some("n could give it cpu, held now by old (ending)".into()), ..short }]).unwrap();
        assert_eq!((told.rule, told.sentence.as_str()), (None, "pod w waits for its place: n could give it cpu, held now by old (ending)"));
    }

    #[test]
    fn what_nobody_knows_is_told_in_its_own_words_and_what_is_ready_is_no_cause() {
        let told = cause(&[pod("w", "Running", &["CrashLoopBackOff: back-off 10s"], &["starting", "KeyError: 'x'"])]).unwrap();
        assert_eq!((told.rule, told.next.as_str()), (None, "its last line: KeyError: 'x'"));
        assert!(told.sentence.contains("CrashLoopBackOff"));
        assert_eq!(cause(&[PodFacts { ready: true, ..pod("w", "Running", &[], &[]) }]), None);
    }

    #[test]
    fn who_has_no_pods_says_nothing_and_is_told_all_the_same() {
        let ready = PodFacts { ready: true, ..pod("frontend", "Running", &[], &[]) };
        let done = pod("weights-1", "Succeeded", &[], &[]);
        let idle = "Dynamo's operator does not run: Deployment dynamo-system/operator is scaled to 0".to_owned();
        let graph =
            Workload { title: "DynamoGraphDeployment nemo/nemo".into(), why: "the operator has not looked at it yet".into(), idle: Some(idle.clone()), ..Workload::default() };
        let behind = Behind { workloads: vec![graph.clone()], ..Behind::default() };
        let told = super::cause(&[ready, done.clone()], &behind).unwrap();
        assert_eq!(told.sentence, format!("DynamoGraphDeployment nemo/nemo is not ready: the operator has not looked at it yet; {idle}, so nobody makes its pods"));
        assert!(told.next.contains("nemo platform status"), "{}", told.next);
        let going = Workload { going: true, why: format!("held by the finalizer nvidia.com/finalizer of Dynamo's operator: {idle}"), ..graph };
        let told = super::cause(std::slice::from_ref(&done), &Behind { workloads: vec![going.clone()], ..Behind::default() }).unwrap();
        assert_eq!(told.sentence, format!("DynamoGraphDeployment nemo/nemo is being deleted, held by the finalizer nvidia.com/finalizer of Dynamo's operator: {idle}"));
        let namespace = Some(("the namespace nemo is being deleted".to_owned(), "wait".to_owned()));
        let told = super::cause(&[], &Behind { namespace, workloads: vec![going], none_in: None }).unwrap();
        assert_eq!((told.sentence.as_str(), told.next.as_str()), ("the namespace nemo is being deleted", "wait"));
        let told = super::cause(&[done], &Behind { none_in: Some("nemo".into()), ..Behind::default() }).unwrap();
        assert_eq!(told.sentence, "nothing serves: there is no workload of this deployment in the namespace nemo");
    }
}
