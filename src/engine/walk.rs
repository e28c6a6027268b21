//! The walk: each step whose needs are met, as many at once as are ready; forward only, noted before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::clock;
use super::event::{EventKind, Events, FailureShown};
use super::plan::{Planned, Verdict, decide};
use super::state::{Place, Record, State, Status};
use super::step::{Cx, Digest, Facts, Need, Report, Seen, Step, StepId};
use crate::error::{Failure, Kind, Resource, Untouched, fail};

/// How long listing what exists may take when something has failed already.
const LISTING_LIMIT: Duration = Duration::from_secs(30);

/// The steps, what is known about them, and where it is noted.
pub struct Walk {
    steps: BTreeMap<StepId, Arc<dyn Step>>,
    place: Place,
    pub state: State,
    pub facts: Arc<Facts>,
    pub events: Events,
    pub stop: CancellationToken,
    /// How many steps may be at work at once.
    pub jobs: usize,
    /// Whether what the steps are made from is resolved. Without notes a command that only looks does not know it, and so tells no change.
    pub pinned: bool,
}

/// What every step looks like now.
pub struct Plan {
    pub planned: Vec<Planned>,
    seen: BTreeMap<StepId, Seen>,
}

impl Plan {
    /// Is there anything to do?
    pub fn acts(&self) -> bool {
        self.planned.iter().any(|planned| planned.verdict.acts())
    }

    /// The first refusal, as the failure that it is.
    pub fn refusal(&self) -> Option<Failure> {
        self.planned.iter().find_map(|planned| match &planned.verdict {
            Verdict::Refuse { why, hint, kind } => {
                let mut failure = Failure::new(*kind, why.clone()).hint(hint.clone());
                failure.step = Some(planned.step.as_str());
                Some(failure)
            }
            _ => None,
        })
    }

    /// US dollars an hour of everything in the plan; `None` where something bills and no price is known.
    pub fn usd_per_hour(&self) -> Option<f64> {
        Resource::hourly_if_known(self.planned.iter().flat_map(|planned| &planned.makes))
    }
}

impl Walk {
    /// A walk over these steps with the notes of `state`.
    pub fn new(steps: Vec<Arc<dyn Step>>, place: Place, state: State, events: Events, stop: CancellationToken) -> Self {
        let facts = Arc::new(state.facts());
        Self { steps: steps.into_iter().map(|step| (step.id(), step)).collect(), place, state, facts, events, stop, jobs: usize::MAX, pinned: true }
    }

    /// Puts another step in the place of the one of the same name.
    pub fn replace(&mut self, step: Arc<dyn Step>) {
        self.steps.insert(step.id(), step);
    }

    fn cx(&self, step: StepId, reports: &mpsc::UnboundedSender<Report>) -> Cx {
        Cx { step, facts: self.facts.clone(), events: self.events.clone(), stop: self.stop.clone(), reports: reports.clone() }
    }

    /// A step and everything that it needs, directly or not.
    pub fn up_to(&self, step: StepId) -> BTreeSet<StepId> {
        let mut wanted = BTreeSet::from([step]);
        let mut open = vec![step];
        while let Some(step) = open.pop() {
            for need in self.steps.get(&step).map(|step| step.needs()).unwrap_or_default() {
                if wanted.insert(need.step) {
                    open.push(need.step);
                }
            }
        }
        wanted
    }

    /// Looks at these steps and decides. At once where the notes say what a look needs; else after the looks that find it.
    pub async fn plan(&mut self, selected: &BTreeSet<StepId>) -> Result<Plan, Failure> {
        let (reports, _ignored) = mpsc::unbounded_channel();
        let mut seen: BTreeMap<StepId, Seen> = BTreeMap::new();
        let mut looking = JoinSet::new();
        let mut open: BTreeSet<StepId> = self.steps.keys().copied().filter(|id| selected.contains(id)).collect();
        // What is not selected is looked at as well when a selected step needs its facts and there is no note of them.
        for id in open.clone() {
            open.extend(self.up_to(id).into_iter().filter(|id| self.facts.table(*id).is_none()));
        }
        loop {
            let ready: Vec<_> =
                open.iter().copied().filter(|id| self.steps[id].needs().iter().all(|need| self.facts.table(need.step).is_some() || seen.contains_key(&need.step))).collect();
            for id in ready {
                open.remove(&id);
                let (step, cx) = (self.steps[&id].clone(), self.cx(id, &reports));
                looking.spawn(async move { (id, step.observe(&cx).await) });
            }
            let ended = tokio::select! {
                ended = looking.join_next() => ended,
                () = self.stop.cancelled() => return Err(Failure::new(Kind::Interrupted, "stopped while looking at what is there: nothing was done")),
            };
            let Some(ended) = ended else { break };
            let (id, result) = ended.map_err(bug)?;
            let found = result.map_err(|error| Failure::of(Some(id.as_str()), &error))?;
            match &found {
                Seen::Ready { facts, .. } => self.facts.extend(id, facts.clone()),
                // Notes about what is gone would send others to an address where nothing is.
                Seen::Absent => self.facts.forget(id),
                _ => {}
            }
            seen.insert(id, found);
        }
        let planned = seen
            .iter()
            .filter(|(id, _)| selected.contains(id))
            .map(|(id, seen)| {
                let step = &self.steps[id];
                let verdict = match seen {
                    Seen::Ready { .. } if !self.pinned => Verdict::Keep,
                    seen => decide(*id, &step.inputs(), self.state.steps.get(id), seen, step.on_change()),
                };
                Planned { step: *id, verdict, makes: step.makes(), needs: step.needs().iter().map(Need::to_string).collect(), notes: step.notes() }
            })
            .collect();
        Ok(Plan { planned, seen })
    }

    /// Refuses when a selected step needs something outside the selection that is not there.
    pub fn unmet(&self, plan: &Plan, selected: &BTreeSet<StepId>) -> Option<Failure> {
        for id in selected {
            let Some(step) = self.steps.get(id) else { continue };
            for need in step.needs().into_iter().filter(|need| !selected.contains(&need.step)) {
                let noted = self.state.steps.get(&need.step);
                let met = matches!(plan.seen.get(&need.step), Some(Seen::Ready { .. }))
                    || noted.is_some_and(|note| note.status == Status::Done || need.part.is_some_and(|part| note.parts.iter().any(|p| p == part)));
                if !met {
                    let mut failure = Failure::new(Kind::Usage, format!("needs {need}, which is not there")).hint(format!("nemo up --to {}", need.step));
                    failure.step = Some(id.as_str());
                    return Some(failure);
                }
            }
        }
        None
    }

    /// Does what the plan says, and lists what exists then. Notes each step before and after; stops starting new ones when one fails or the user says stop.
    pub async fn run(&mut self, plan: Plan) -> Result<Vec<Resource>, Failure> {
        let began = Instant::now();
        // With nothing to do the looks of a moment ago are the answer; with something, each step looks again before it acts.
        let result = if plan.acts() || plan.refusal().is_some() { Run::new(self, &plan).go(self).await } else { self.keep_all(plan) };
        let exists = self.existing(self.steps.keys().copied().collect(), LISTING_LIMIT).await;
        let usd_per_hour = Resource::hourly_if_known(&exists);
        self.events.send(None, EventKind::Ended { ok: result.is_ok(), seconds: began.elapsed().as_secs_f64(), exists: exists.clone(), usd_per_hour });
        match result {
            Ok(()) => Ok(exists),
            Err(mut failure) if failure.untouched => {
                failure.message = format!("{}; nothing was changed", failure.message);
                if failure.hints.is_empty() {
                    failure.hints.push("nemo status shows what is there".into());
                }
                Err(failure)
            }
            Err(mut failure) => {
                failure.left = exists;
                if failure.hints.is_empty() {
                    failure.hints.push("the same command again goes on from here; nemo status shows what is there".into());
                }
                Err(failure)
            }
        }
    }

    /// Everything is there: notes that were lost are written again, and nothing else.
    fn keep_all(&mut self, plan: Plan) -> Result<(), Failure> {
        for (id, seen) in plan.seen {
            if let Seen::Ready { facts, .. } = seen {
                let inputs = self.steps[&id].inputs();
                self.adopt(id, inputs, facts).map_err(|error| Failure::of(Some(id.as_str()), &error))?;
                self.events.send(Some(id), EventKind::Finished { changed: false, seconds: 0.0 });
            }
        }
        Ok(())
    }

    /// What exists of these steps. What cannot be listed in time is told from the notes: good enough to say what is left, no proof.
    pub async fn existing(&self, steps: BTreeSet<StepId>, limit: Duration) -> Vec<Resource> {
        let noted = |id: StepId| if self.state.steps.contains_key(&id) { self.steps[&id].makes() } else { Vec::new() };
        self.listed(steps, limit).await.into_iter().flat_map(|(id, found)| found.unwrap_or_else(|_| noted(id))).collect()
    }

    /// What exists of these steps, by listing and nothing else: what could not be listed is a failure.
    pub async fn listing(&self, steps: BTreeSet<StepId>, limit: Duration) -> Result<Vec<Resource>, Failure> {
        let mut found = Vec::new();
        for (id, resources) in self.listed(steps, limit).await {
            found.extend(resources.map_err(|error| Failure::of(Some(id.as_str()), &error.context("listing what exists")))?);
        }
        Ok(found)
    }

    async fn listed(&self, steps: BTreeSet<StepId>, limit: Duration) -> BTreeMap<StepId, anyhow::Result<Vec<Resource>>> {
        let (reports, _ignored) = mpsc::unbounded_channel();
        let mut listing = JoinSet::new();
        for id in steps {
            let (step, cx) = (self.steps[&id].clone(), self.cx(id, &reports));
            listing.spawn(async move {
                let found = tokio::time::timeout(limit, step.existing(&cx)).await;
                (id, found.unwrap_or_else(|_| Err(fail(Kind::Timeout, format!("no answer within {}", clock::words(limit))).into())))
            });
        }
        listing.join_all().await.into_iter().collect()
    }

    /// Removes these steps, the last first, as many at once as nothing else stands on; goes on past failures and collects them.
    /// What holds things of others stays, and so does everything that it stands on: a cluster takes along whatever is in it.
    pub async fn remove(&mut self, selected: &BTreeSet<StepId>) -> Vec<Failure> {
        let (reports, _ignored) = mpsc::unbounded_channel();
        let mut open: BTreeSet<StepId> = self.steps.keys().copied().filter(|id| selected.contains(id)).collect();
        let mut gone: BTreeSet<StepId> = BTreeSet::new();
        let mut removing = JoinSet::new();
        let mut failures = Vec::new();
        loop {
            let free: Vec<_> = open
                .iter()
                .copied()
                .filter(|id| !self.steps.values().any(|other| selected.contains(&other.id()) && !gone.contains(&other.id()) && other.needs().iter().any(|n| n.step == *id)))
                .take(self.jobs.saturating_sub(removing.len()))
                .collect();
            for id in free {
                if self.stop.is_cancelled() {
                    break;
                }
                open.remove(&id);
                let (step, cx) = (self.steps[&id].clone(), self.cx(id, &reports));
                self.events.send(Some(id), EventKind::Started { verdict: "remove".into() });
                removing.spawn(async move {
                    let began = Instant::now();
                    (id, began, step.remove(&cx).await)
                });
            }
            let Some(ended) = removing.join_next().await else { break };
            let (id, began, result) = match ended {
                Ok(ended) => ended,
                Err(e) => {
                    failures.push(bug(e));
                    continue;
                }
            };
            gone.insert(id);
            match result {
                Ok(()) => {
                    self.state.steps.remove(&id);
                    self.facts.forget(id);
                    if let Err(error) = self.place.write(&self.state) {
                        failures.push(Failure::of(Some(id.as_str()), &error));
                    }
                    self.events.send(Some(id), EventKind::Finished { changed: true, seconds: began.elapsed().as_secs_f64() });
                }
                Err(error) => {
                    let mut failure = Failure::of(Some(id.as_str()), &error);
                    if failure.kind == Kind::Conflict {
                        let below: BTreeSet<StepId> = self.up_to(id).into_iter().filter(|other| open.remove(other)).collect();
                        if !below.is_empty() {
                            let names: Vec<_> = below.iter().map(|id| id.as_str()).collect();
                            failure.message = format!("{}; what it stands on stays, too: {}", failure.message, names.join(", "));
                        }
                    }
                    self.events.send(Some(id), EventKind::Failed { failure: FailureShown::from(&failure) });
                    failures.push(failure);
                }
            }
        }
        if self.stop.is_cancelled() {
            failures.push(Failure::new(Kind::Interrupted, "stopped before everything was removed").hint("nemo cleanup"));
        }
        failures
    }

    /// Keeps the notes of a step that was found as it should be, if they were lost.
    fn adopt(&mut self, id: StepId, inputs: Digest, facts: toml::Table) -> anyhow::Result<()> {
        let now = clock::now();
        let record = self.state.steps.entry(id).or_insert_with(|| Record {
            status: Status::Done,
            inputs: inputs.clone(),
            started: now,
            finished: Some(now),
            parts: vec![],
            facts: toml::Table::new(),
        });
        if record.status != Status::Done {
            record.finished = Some(now);
        }
        record.status = Status::Done;
        record.inputs = inputs;
        record.facts.extend(facts.clone());
        self.facts.extend(id, facts);
        self.place.write(&self.state)
    }
}

fn bug(error: tokio::task::JoinError) -> Failure {
    Failure::new(Kind::Bug, format!("a step ended in a way it must not: {error}"))
}

/// Observes again, decides, and applies once the start is on disk.
async fn work(step: &dyn Step, cx: &Cx, note: Option<&Record>) -> anyhow::Result<(bool, toml::Table)> {
    let seen = step.observe(cx).await.map_err(|error| error.context(Untouched))?;
    match decide(step.id(), &step.inputs(), note, &seen, step.on_change()) {
        Verdict::Keep => match seen {
            Seen::Ready { facts, .. } => Ok((false, facts)),
            _ => Ok((false, toml::Table::new())),
        },
        Verdict::Refuse { why, hint, kind } => Err(anyhow::Error::new(fail(kind, why).hint(hint)).context(Untouched)),
        verdict => {
            let (noted, on_disk) = oneshot::channel();
            let _ = cx.reports.send(Report::Starting { step: step.id(), verdict: verdict.word(), noted });
            if !on_disk.await.unwrap_or(false) {
                return Err(fail(Kind::Interrupted, "not begun, since the start could not be noted").into());
            }
            Ok((true, step.apply(cx).await?))
        }
    }
}

type Ended = (StepId, Instant, anyhow::Result<(bool, toml::Table)>);

/// One run of a plan: what is open, at work, there.
struct Run {
    open: BTreeSet<StepId>,
    done: BTreeSet<StepId>,
    parts: BTreeSet<(StepId, String)>,
    working: JoinSet<Ended>,
    failure: Option<Failure>,
    /// Something was changed, or may have been.
    touched: bool,
    /// What was noted of a step before it began: what is refused without a change leaves its note as it was.
    before: BTreeMap<StepId, Option<Record>>,
}

impl Run {
    fn new(walk: &Walk, plan: &Plan) -> Self {
        let open = plan.planned.iter().map(|planned| planned.step).collect();
        let mut done = BTreeSet::new();
        let mut parts = BTreeSet::new();
        for id in walk.steps.keys().filter(|id| !plan.planned.iter().any(|planned| planned.step == **id)) {
            let Some(note) = walk.state.steps.get(id) else {
                if matches!(plan.seen.get(id), Some(Seen::Ready { .. })) {
                    done.insert(*id);
                }
                continue;
            };
            parts.extend(note.parts.iter().map(|part| (*id, part.clone())));
            if note.status == Status::Done {
                done.insert(*id);
            }
        }
        Self { open, done, parts, working: JoinSet::new(), failure: None, touched: false, before: BTreeMap::new() }
    }

    fn met(&self, need: &Need) -> bool {
        self.done.contains(&need.step) || need.part.is_some_and(|part| self.parts.contains(&(need.step, part.to_owned())))
    }

    async fn go(mut self, walk: &mut Walk) -> Result<(), Failure> {
        let (reports, mut reported) = mpsc::unbounded_channel();
        loop {
            self.start_ready(walk, &reports);
            if self.working.is_empty() {
                break;
            }
            tokio::select! {
                // What a step reported before it ended is noted before its end.
                biased;
                Some(report) = reported.recv() => self.note_report(walk, report),
                Some(ended) = self.working.join_next() => match ended {
                    Ok(ended) => self.note_end(walk, ended),
                    Err(error) => (self.failure, self.touched) = (Some(bug(error)), true),
                },
            }
        }
        match self.failure {
            Some(failure) => Err(Failure { untouched: !self.touched, ..failure }),
            None if walk.stop.is_cancelled() && !self.open.is_empty() => {
                Err(Failure::new(Kind::Interrupted, "stopped").hint("run the same command to go on; `nemo cleanup` removes what exists"))
            }
            // `Walk::unmet` refuses such a selection before; never end as if it had been done.
            None if !self.open.is_empty() => {
                let open: Vec<_> = self.open.iter().map(|id| id.as_str()).collect();
                Err(Failure::new(Kind::Bug, format!("not begun, since something that they need is not there: {}", open.join(", "))))
            }
            None => Ok(()),
        }
    }

    fn start_ready(&mut self, walk: &Walk, reports: &mpsc::UnboundedSender<Report>) {
        let ready: Vec<_> = self.open.iter().copied().filter(|id| walk.steps[id].needs().iter().all(|need| self.met(need))).collect();
        for id in ready {
            if self.failure.is_some() || walk.stop.is_cancelled() || self.working.len() >= walk.jobs {
                return;
            }
            self.open.remove(&id);
            let (step, note, cx) = (walk.steps[&id].clone(), walk.state.steps.get(&id).cloned(), walk.cx(id, reports));
            self.working.spawn(async move { (id, Instant::now(), work(&*step, &cx, note.as_ref()).await) });
        }
    }

    fn note_report(&mut self, walk: &mut Walk, report: Report) {
        match report {
            Report::Starting { step, verdict, noted } => {
                let inputs = walk.steps[&step].inputs();
                let old = walk.state.steps.remove(&step);
                self.before.insert(step, old.clone());
                let (parts, facts) = old.map(|old| (old.parts, old.facts)).unwrap_or_default();
                walk.state.steps.insert(step, Record { status: Status::Started, inputs, started: clock::now(), finished: None, parts, facts });
                let written = walk.place.write(&walk.state);
                let _ = noted.send(written.is_ok());
                self.keep(step, written);
                walk.events.send(Some(step), EventKind::Started { verdict: verdict.into() });
            }
            Report::Reached { step, part, facts } => {
                walk.facts.extend(step, facts.clone());
                if let Some(record) = walk.state.steps.get_mut(&step) {
                    record.facts.extend(facts);
                    if !record.parts.contains(&part) {
                        record.parts.push(part.clone());
                    }
                }
                self.keep(step, walk.place.write(&walk.state));
                self.parts.insert((step, part.clone()));
                walk.events.send(Some(step), EventKind::Reached { part });
            }
        }
    }

    fn note_end(&mut self, walk: &mut Walk, (id, began, result): Ended) {
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok((changed, facts)) => {
                self.done.insert(id);
                self.touched |= changed;
                let inputs = walk.steps[&id].inputs();
                let noted = walk.adopt(id, inputs, facts);
                self.keep(id, noted);
                walk.events.send(Some(id), EventKind::Finished { changed, seconds });
            }
            Err(error) => {
                let failure = Failure::of(Some(id.as_str()), &error);
                self.touched |= !failure.untouched;
                if failure.untouched
                    && let Some(before) = self.before.remove(&id)
                {
                    walk.state.steps.remove(&id);
                    walk.state.steps.extend(before.map(|before| (id, before)));
                } else if let Some(record) = walk.state.steps.get_mut(&id) {
                    record.status = Status::Failed;
                    record.finished = Some(clock::now());
                }
                let noted = walk.place.write(&walk.state);
                walk.events.send(Some(id), EventKind::Failed { failure: FailureShown::from(&failure) });
                self.failed(failure);
                self.keep(id, noted);
            }
        }
    }

    /// The failure that is shown is the first real one: an interruption that it caused elsewhere is not.
    fn failed(&mut self, failure: Failure) {
        match &self.failure {
            Some(first) if first.kind != Kind::Interrupted || failure.kind == Kind::Interrupted => {}
            _ => self.failure = Some(failure),
        }
    }

    fn keep(&mut self, id: StepId, noted: anyhow::Result<()>) {
        if let Err(error) = noted {
            self.failed(Failure::of(Some(id.as_str()), &error));
        }
    }
}
