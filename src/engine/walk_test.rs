//! The walk over steps of a small world in memory: order, notes, failures, continuing, removing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::event::{EventKind, Events};
use super::state::{Place, State, Status};
use super::step::{Cx, Digest, Need, Seen, Step, StepId, all_of, part_of};
use super::walk::Walk;
use crate::error::{Kind, Resource, Untouched, fail};

/// What was done, in order, and what is there.
#[derive(Default)]
struct World {
    done: Vec<String>,
    there: BTreeSet<StepId>,
    failing: BTreeSet<StepId>,
    /// They find out that they cannot, before they change anything.
    refusing: BTreeSet<StepId>,
    /// They hold what others made.
    occupied: BTreeSet<StepId>,
    foreign: BTreeSet<StepId>,
    /// Nothing can be listed: credentials have expired, say.
    blind: bool,
}

type Shared = Arc<Mutex<World>>;

struct Fake {
    id: StepId,
    needs: Vec<Need>,
    world: Shared,
    /// Reached before the end; the step then waits until it is let go.
    part: Option<(&'static str, Arc<Notify>)>,
}

#[async_trait]
impl Step for Fake {
    fn id(&self) -> StepId {
        self.id
    }
    fn needs(&self) -> Vec<Need> {
        self.needs.clone()
    }
    fn inputs(&self) -> Digest {
        Digest("same".into())
    }
    fn makes(&self) -> Vec<Resource> {
        vec![Resource::new("thing", self.id.as_str()).costing(Some(1.0))]
    }
    async fn observe(&self, _cx: &Cx) -> anyhow::Result<Seen> {
        let world = self.world.lock().unwrap();
        Ok(match () {
            () if world.foreign.contains(&self.id) => Seen::Foreign { what: format!("thing {}", self.id) },
            () if world.there.contains(&self.id) => Seen::Ready { inputs: None, facts: toml::Table::new() },
            () => Seen::Absent,
        })
    }
    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        if self.world.lock().unwrap().refusing.contains(&self.id) {
            return Err(anyhow::Error::new(fail(Kind::Verification, "it would not serve")).context(Untouched));
        }
        self.world.lock().unwrap().done.push(format!("make {}", self.id));
        if let Some((part, go)) = &self.part {
            cx.reached(part, toml::Table::new());
            go.notified().await;
        }
        let mut world = self.world.lock().unwrap();
        if world.failing.contains(&self.id) {
            return Err(fail(Kind::Capacity, "there is none").into());
        }
        world.there.insert(self.id);
        world.done.push(format!("made {}", self.id));
        Ok(toml::Table::from_iter([("by".to_owned(), toml::Value::from(self.id.as_str()))]))
    }
    async fn remove(&self, _cx: &Cx) -> anyhow::Result<()> {
        let mut world = self.world.lock().unwrap();
        if world.failing.contains(&self.id) {
            return Err(fail(Kind::Remote, "it is in use").into());
        }
        if world.occupied.contains(&self.id) {
            return Err(fail(Kind::Conflict, "others made something in it").into());
        }
        world.there.remove(&self.id);
        world.done.push(format!("remove {}", self.id));
        Ok(())
    }
    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        if self.world.lock().unwrap().blind {
            return Err(fail(Kind::Credentials, "the token has expired").into());
        }
        Ok(if self.world.lock().unwrap().there.contains(&self.id) { self.makes() } else { vec![] })
    }
}

struct Bench {
    folder: tempfile::TempDir,
    world: Shared,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), world: Shared::default() }
    }

    fn place(&self) -> Place {
        Place::new(self.folder.path(), "demo")
    }

    fn fake(&self, id: StepId, needs: Vec<Need>) -> Arc<dyn Step> {
        Arc::new(Fake { id, needs, world: self.world.clone(), part: None })
    }

    /// network → cluster → gpu-nodes; images alone.
    fn steps(&self) -> Vec<Arc<dyn Step>> {
        vec![
            self.fake(StepId::Network, vec![]),
            self.fake(StepId::Cluster, vec![all_of(StepId::Network)]),
            self.fake(StepId::GpuNodes, vec![all_of(StepId::Cluster)]),
            self.fake(StepId::Images, vec![]),
        ]
    }

    fn walk(&self, steps: Vec<Arc<dyn Step>>) -> Walk {
        let state = self.place().read().unwrap().unwrap_or_else(|| State::new("demo", "1", "r"));
        Walk::new(steps, self.place(), state, Events::new().0, CancellationToken::new())
    }

    fn done(&self) -> Vec<String> {
        std::mem::take(&mut self.world.lock().unwrap().done)
    }
}

fn ids(walk: &[StepId]) -> BTreeSet<StepId> {
    walk.iter().copied().collect()
}

const FOUR: [StepId; 4] = [StepId::Network, StepId::Cluster, StepId::GpuNodes, StepId::Images];

#[tokio::test]
async fn makes_in_order_and_the_second_time_nothing() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    assert!(plan.acts());
    assert_eq!(walk.run(plan).await.unwrap().len(), 4);
    let done = bench.done();
    let at = |what: &str| done.iter().position(|d| d == what).unwrap();
    assert!(at("made network") < at("make cluster") && at("made cluster") < at("make gpu-nodes"), "{done:?}");
    let noted = bench.place().read().unwrap().unwrap();
    assert!(noted.steps.values().all(|record| record.status == Status::Done));
    assert_eq!(noted.steps[&StepId::Cluster].facts["by"].as_str(), Some("cluster"));

    let before = std::fs::read(bench.place().path("toml")).unwrap();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    assert!(!plan.acts());
    walk.run(plan).await.unwrap();
    assert_eq!(bench.done(), [""; 0]);
    assert_eq!(std::fs::read(bench.place().path("toml")).unwrap(), before);
}

#[tokio::test]
async fn a_failure_says_what_is_left_and_the_next_walk_goes_on() {
    let bench = Bench::new();
    bench.world.lock().unwrap().failing.insert(StepId::Cluster);
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    let failure = walk.run(plan).await.unwrap_err();
    assert_eq!((failure.kind, failure.step), (Kind::Capacity, Some("cluster")));
    assert_eq!(failure.left.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["network", "images"]);
    assert_eq!(bench.place().read().unwrap().unwrap().steps[&StepId::Cluster].status, Status::Failed);
    assert!(!bench.done().contains(&"make gpu-nodes".to_owned()));

    bench.world.lock().unwrap().failing.clear();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    walk.run(plan).await.unwrap();
    assert_eq!(bench.done(), ["make cluster", "made cluster", "make gpu-nodes", "made gpu-nodes"]);
}

#[tokio::test]
async fn what_is_refused_before_a_change_says_so_and_leaves_the_notes_as_they_were() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    walk.run(plan).await.unwrap();
    let before = bench.place().read().unwrap().unwrap();
    let again = async |missing: &[StepId], refusing: StepId| {
        let mut world = std::mem::take(&mut *bench.world.lock().unwrap());
        world.there.retain(|id| !missing.contains(id));
        world.refusing = [refusing].into();
        *bench.world.lock().unwrap() = world;
        let mut walk = bench.walk(bench.steps());
        let plan = walk.plan(&ids(&FOUR)).await.unwrap();
        walk.run(plan).await.unwrap_err()
    };
    let refused = again(&[StepId::GpuNodes], StepId::GpuNodes).await;
    assert_eq!((refused.message.as_str(), refused.kind), ("it would not serve; nothing was changed", Kind::Verification));
    assert_eq!((refused.left.as_slice(), refused.hints.concat()), (&[][..], "nemo status shows what is there".to_owned()));
    assert_eq!(bench.place().read().unwrap().unwrap().steps[&StepId::GpuNodes], before.steps[&StepId::GpuNodes]);
    // Something else was made meanwhile.
    let refused = again(&[StepId::GpuNodes, StepId::Cluster], StepId::GpuNodes).await;
    assert_eq!(refused.message, "it would not serve");
    assert!(!refused.left.is_empty());
}

#[tokio::test]
async fn a_part_lets_others_start_before_the_step_has_ended() {
    let bench = Bench::new();
    let go = Arc::new(Notify::new());
    let network: Arc<dyn Step> = Arc::new(Fake { id: StepId::Network, needs: vec![], world: bench.world.clone(), part: Some(("subnets", go.clone())) });
    let (events, mut heard) = Events::new();
    let steps = vec![network, bench.fake(StepId::Cluster, vec![part_of(StepId::Network, "subnets")])];
    let mut walk = Walk::new(steps, bench.place(), State::new("demo", "1", "r"), events, CancellationToken::new());
    let release = tokio::spawn(async move {
        // The network step ends only after the cluster is done: that order is what is proved.
        while let Some(event) = heard.recv().await {
            if event.step == Some(StepId::Cluster) && matches!(event.kind, EventKind::Finished { .. }) {
                go.notify_one();
            }
        }
    });
    let plan = walk.plan(&ids(&[StepId::Network, StepId::Cluster])).await.unwrap();
    walk.run(plan).await.unwrap();
    drop(walk);
    release.await.unwrap();
    assert_eq!(bench.done(), ["make network", "make cluster", "made cluster", "made network"]);
    assert_eq!(bench.place().read().unwrap().unwrap().steps[&StepId::Network].parts, ["subnets"]);
}

#[tokio::test]
async fn what_is_foreign_is_refused_and_untouched() {
    let bench = Bench::new();
    bench.world.lock().unwrap().foreign.insert(StepId::Cluster);
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    assert_eq!(plan.refusal().unwrap().kind, Kind::Conflict);
    assert_eq!(walk.run(plan).await.unwrap_err().kind, Kind::Conflict);
    assert!(!bench.done().iter().any(|done| done.ends_with("cluster")));
}

#[tokio::test]
async fn an_unmet_need_is_refused_with_the_command_that_meets_it() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let only = ids(&[StepId::GpuNodes]);
    let plan = walk.plan(&only).await.unwrap();
    let failure = walk.unmet(&plan, &only).unwrap();
    assert_eq!((failure.kind, failure.hints), (Kind::Usage, vec!["nemo up --to cluster".to_owned()]));
}

#[tokio::test]
async fn lost_notes_are_found_again() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    walk.run(plan).await.unwrap();
    bench.done();
    bench.place().remove().unwrap();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    assert!(!plan.acts());
    walk.run(plan).await.unwrap();
    assert_eq!(bench.done(), [""; 0]);
    assert_eq!(bench.place().read().unwrap().unwrap().steps.len(), 4);
}

#[tokio::test]
async fn removes_backwards_and_goes_on_past_failures() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    walk.run(plan).await.unwrap();
    bench.done();
    bench.world.lock().unwrap().failing.insert(StepId::GpuNodes);
    let failures = walk.remove(&ids(&FOUR)).await;
    assert_eq!(failures.iter().map(|f| f.step).collect::<Vec<_>>(), [Some("gpu-nodes")]);
    let done = bench.done();
    let at = |what: &str| done.iter().position(|d| d == what).unwrap();
    assert!(at("remove cluster") < at("remove network"), "{done:?}");
    assert_eq!(bench.place().read().unwrap().unwrap().steps.keys().copied().collect::<Vec<_>>(), [StepId::GpuNodes]);

    bench.world.lock().unwrap().failing.clear();
    assert!(walk.remove(&ids(&FOUR)).await.is_empty());
    assert!(walk.existing(ids(&FOUR), std::time::Duration::from_secs(1)).await.is_empty());
}

#[tokio::test]
async fn what_holds_things_of_others_stays_with_all_that_it_stands_on() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    walk.run(plan).await.unwrap();
    bench.world.lock().unwrap().occupied.insert(StepId::Cluster);
    let failures = walk.remove(&ids(&FOUR)).await;
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].kind, failures[0].step), (Kind::Conflict, Some("cluster")));
    assert!(failures[0].message.ends_with("what it stands on stays, too: network"), "{}", failures[0].message);
    let left = bench.place().read().unwrap().unwrap().steps.keys().copied().collect::<Vec<_>>();
    assert_eq!(left, [StepId::Network, StepId::Cluster]);
}

/// What could not be listed is never taken for gone.
#[tokio::test]
async fn a_listing_that_fails_proves_nothing() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    walk.run(plan).await.unwrap();
    bench.world.lock().unwrap().blind = true;
    let limit = std::time::Duration::from_secs(1);
    let failure = walk.listing(ids(&FOUR), limit).await.unwrap_err();
    assert_eq!((failure.kind, failure.step), (Kind::Credentials, Some("network")));
    assert_eq!(walk.existing(ids(&FOUR), limit).await.len(), 4, "the notes say what there should be");
}

#[tokio::test]
async fn steps_that_cannot_begin_are_no_success() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&[StepId::GpuNodes])).await.unwrap();
    let failure = walk.run(plan).await.unwrap_err();
    assert_eq!(failure.kind, Kind::Bug);
    assert!(failure.message.contains("gpu-nodes"), "{}", failure.message);
}

#[tokio::test]
async fn stop_starts_nothing_more_and_ends_as_interrupted() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    walk.stop.cancel();
    assert_eq!(walk.run(plan).await.unwrap_err().kind, Kind::Interrupted);
    assert_eq!(bench.done(), [""; 0]);
}

/// A note that cannot be written stops the step before it makes anything.
#[tokio::test]
async fn nothing_is_made_that_could_not_be_noted() {
    let bench = Bench::new();
    let mut walk = bench.walk(bench.steps());
    let plan = walk.plan(&ids(&FOUR)).await.unwrap();
    std::fs::write(bench.folder.path().join(".nemo"), "a file where the folder should be").unwrap();
    let failure = walk.run(plan).await.unwrap_err();
    assert_eq!(failure.kind, Kind::LocalIo);
    assert_eq!(bench.done(), [""; 0]);
}
