//! Where pods can run, what happens when one of a group ends, and in which namespace.

use serde_json::Value;

use crate::lint::finding::Severity;
use crate::lint::known::Known;
use crate::lint::linter::{At, Gathered, Together};
use crate::lint::path;
use crate::lint::rule::{Check, Found, Rule, Seen};
use crate::lint::workload::{Pod, list};
use crate::lint::yaml::Document;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: "N32",
        title: "more CPU than a node allocates",
        severity: Severity::Error,
        cause: "A node allocates less than its type has: system pods take a part, and nodes with one thread a core show half (95690m of 192 on p5en): the pod is Pending for ever.",
        fix: "Ask for what fits beside the DaemonSets; half the cores are enough for eight GPUs: 48.",
        check: Check::Pod(cpu),
    },
    Rule {
        id: "N33",
        title: "the frontend can have nowhere to run",
        severity: Severity::Error,
        cause: "A frontend that must run on another type of node, or beside no engine, is Pending on a cluster of GPU nodes alone: `didn't satisfy existing pods anti-affinity rules`.",
        fix: "A preference: preferredDuringSchedulingIgnoredDuringExecution; and anti-affinity of the engines that selects engines only.",
        check: Check::Pod(frontend),
    },
    Rule {
        id: "N35",
        title: "a group starts again while one of its pods still pulls its image",
        severity: Severity::Warning,
        cause: "With RecreateGroupOnPodRestart, the default, an engine that waits in vain for a rank whose node still pulls 30 GB of image restarts, and takes the whole group with it, again and again.",
        fix: "restartPolicy: RecreateGroupAfterStart, and images pulled to every node first.",
        check: Check::Document(group_restart),
    },
    Rule {
        id: "N36",
        title: "a RuntimeClass that nothing makes",
        severity: Severity::Warning,
        cause: "The KAI scheduler adds runtimeClassName nvidia to GPU pods, and the images of EKS and HyperPod nodes have no such object: `RuntimeClass \"nvidia\" not found`, the PodGang stays Pending.",
        fix: "Apply {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia} with the rest.",
        check: Check::Set,
    },
    Rule {
        id: "N40",
        title: "a group of one starts again for nothing",
        severity: Severity::Warning,
        cause: "In a group of one RecreateGroupOnPodRestart replaces the pod where a restart of the container would do: its log is gone, and loading begins anew.",
        fix: "restartPolicy: None for size 1.",
        check: Check::Document(group_of_one),
    },
    Rule {
        id: "N41",
        title: "no namespace",
        severity: Severity::Warning,
        cause: "It goes to the namespace that kubectl happens to have: pods are Pending where nobody looks, and their events are not seen.",
        fix: "metadata.namespace in every document.",
        check: Check::Document(namespace),
    },
];

fn cpu(seen: &Seen<'_>, found: &mut Found<'_>) {
    let pod = seen.pod;
    let asked = pod.cpu_milli();
    let allocatable = |instance: &&crate::config::Instance| instance.allocatable_cpu_milli.as_ref().map(|cpu| u64::from(cpu.value));
    let known: Option<Vec<u64>> = found.known.instances_of(pod).iter().map(allocatable).collect();
    let Some(most) = known.and_then(|known| known.into_iter().max()) else { return };
    if asked > most {
        let holder = pod.containers.iter().max_by_key(|container| container.resources.get("cpu").and_then(|(amount, _)| crate::lint::quantity::milli(amount)));
        let at = holder.map_or_else(|| pod.path.clone(), |container| container.at("cpu"));
        found.add(at, format!("{asked}m CPU"), format!("at most {most}m less what DaemonSets take; 48 is enough"));
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn frontend(seen: &Seen<'_>, found: &mut Found<'_>) {
    let pod = seen.pod;
    let affinity = path::field(&pod.path, "affinity");
    let anti = &pod.spec["affinity"]["podAntiAffinity"][REQUIRED];
    let anti_path = path::field(&path::field(&affinity, "podAntiAffinity"), REQUIRED);
    if pod.frontend() {
        let selected = pod.spec["nodeSelector"].as_object().into_iter().flatten().find(|(key, _)| !matches!(key.as_str(), "kubernetes.io/os" | "kubernetes.io/arch"));
        if let Some((key, value)) = selected {
            found.add(path::field(&path::field(&pod.path, "nodeSelector"), key), format!("{key}: {value}, a must"), "preferredDuringSchedulingIgnoredDuringExecution");
        }
        if pod.spec["affinity"]["nodeAffinity"][REQUIRED].is_object() {
            found.add(path::field(&path::field(&affinity, "nodeAffinity"), REQUIRED), "a must", "preferredDuringSchedulingIgnoredDuringExecution");
        }
        if list(anti).next().is_some() {
            found.add(anti_path, "a must", "preferredDuringSchedulingIgnoredDuringExecution");
        }
        return;
    }
    // Labels that the frontend has, too.
    const SHARED: [&str; 5] = [
        "nvidia.com/dynamo-graph-deployment-name",
        "nvidia.com/dynamo-namespace",
        "app.kubernetes.io/part-of",
        "app.kubernetes.io/instance",
        "nvidia.com/dynamo-discovery-enabled",
    ];
    for (index, term) in list(anti).enumerate() {
        let selector = &term["labelSelector"];
        let keys: Vec<&str> = selector["matchLabels"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .chain(list(&selector["matchExpressions"]).filter_map(|one| one["key"].as_str()))
            .collect();
        if selector.is_object() && keys.iter().all(|key| SHARED.contains(key)) {
            let what = if keys.is_empty() { "every pod".to_owned() } else { format!("all pods with {}, the frontend too", keys.join(", ")) };
            found.add(path::field(&path::item(&anti_path, index), "labelSelector"), what, "a label that only the engines have, such as nvidia.com/dynamo-component-type: worker");
        }
    }
}

/// Size, policy and the path of the policy of a LeaderWorkerSet.
fn group(document: &Document) -> Option<(u64, Option<&str>, &'static str)> {
    let template = &document.value["spec"]["leaderWorkerTemplate"];
    let policy = template["restartPolicy"].as_str();
    (document.value["kind"] == "LeaderWorkerSet").then(|| (template["size"].as_u64().unwrap_or(1), policy, "spec.leaderWorkerTemplate.restartPolicy"))
}

fn group_restart(document: &Document, found: &mut Found<'_>) {
    if let Some((2.., policy @ (None | Some("RecreateGroupOnPodRestart" | "Default")), at)) = group(document) {
        found.add(at, policy.unwrap_or("nothing, so RecreateGroupOnPodRestart"), "RecreateGroupAfterStart").replace(policy.unwrap_or_default(), "RecreateGroupAfterStart");
    }
}

fn group_of_one(document: &Document, found: &mut Found<'_>) {
    if let Some((1, policy @ (None | Some("RecreateGroupOnPodRestart" | "Default")), at)) = group(document) {
        found.add(at, policy.unwrap_or("nothing, so RecreateGroupOnPodRestart"), "None").replace(policy.unwrap_or_default(), "None");
    }
}

fn namespace(document: &Document, found: &mut Found<'_>) {
    const ABOVE: [&str; 18] = [
        "Namespace",
        "Node",
        "PersistentVolume",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "StorageClass",
        "RuntimeClass",
        "PriorityClass",
        "CSIDriver",
        "IngressClass",
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "APIService",
        "ClusterTopology",
        "ClusterTopologyBinding",
        "Queue",
        "Kustomization",
    ];
    let (value, kind) = (&document.value, document.value["kind"].as_str().unwrap_or_default());
    let object = value["apiVersion"].is_string() && value["metadata"].is_object();
    let pool = ["NodePool", "NodeClass", "EC2NodeClass"].contains(&kind);
    // A plain `n` is a namespace that became no string: another rule tells that.
    let none = value["metadata"]["namespace"].is_null() || value["metadata"]["namespace"] == "";
    if object && !ABOVE.contains(&kind) && !pool && none {
        found.add("metadata", "no namespace", "namespace: the one that it belongs to");
    }
}

/// A RuntimeClass that a pod needs.
#[derive(Debug)]
pub(in crate::lint) struct WantedClass {
    name: String,
    path: String,
    why: &'static str,
}

/// Notes which RuntimeClasses there are, and which are needed.
pub(in crate::lint) fn gather(document: &Value, pods: &[Pod<'_>], gathered: &mut Gathered, at: &At) {
    if document["kind"] == "RuntimeClass" {
        gathered.classes.extend(document["metadata"]["name"].as_str().map(str::to_owned));
    }
    for pod in pods {
        if let Some(name) = pod.spec["runtimeClassName"].as_str() {
            gathered.wanted_classes.push((WantedClass { name: name.to_owned(), path: path::field(&pod.path, "runtimeClassName"), why: "the pod names it" }, at.clone()));
        }
        let kai = pod.spec["schedulerName"] == "kai-scheduler" || pod.annotation("nvidia.com/kai-scheduler-queue").is_some() || pod.label("kai.scheduler/queue").is_some();
        if kai && pod.gpus() > 0 {
            gathered.wanted_classes.push((WantedClass { name: "nvidia".into(), path: pod.path.clone(), why: "KAI adds it" }, at.clone()));
        }
    }
}

/// Needed and not there.
pub(in crate::lint) fn together(gathered: &Gathered, _: &Known) -> Vec<Together> {
    let missing = gathered.wanted_classes.iter().filter(|(class, _)| !gathered.classes.contains(&class.name));
    let of = |(class, at): &(WantedClass, At)| Together {
        at: at.clone(),
        path: class.path.clone(),
        found: format!("RuntimeClass {} ({}), not among these documents", class.name, class.why),
        right: "a document that makes it".to_owned(),
    };
    missing.map(of).collect()
}
