//! A deployment in the emulator: settings that wait briefly, pins as a plan would have made them, and the walk over some steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use nemo::aws::Aws;
use nemo::config::{AddonPin, Inputs, Pins, Spec, load};
use nemo::engine::event::{Event, Events};
use nemo::engine::plan::Verdict;
use nemo::engine::state::{Place, State};
use nemo::engine::step::{Step, StepId};
use nemo::engine::walk::Walk;
use nemo::error::{Failure, Resource};
use nemo::steps::{Deps, cluster, filesystem, gpu_nodes, network, system_nodes};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::common::Emulator;

/// Its settings, changed as a test wants them.
pub(crate) struct Deployment {
    pub(crate) spec: Spec,
    pub(crate) pins: Pins,
    aws: Aws,
    folder: std::path::PathBuf,
}

impl Deployment {
    /// Called `name`, as the defaults are, but looking every 60 ms.
    pub(crate) async fn new(emulator: &Emulator, name: &str) -> Self {
        let mut flags = vec![("name".to_owned(), name.to_owned()), ("region".to_owned(), "us-east-2".to_owned())];
        for what in ["stack", "cluster", "nodes", "addon", "filesystem"] {
            flags.push((format!("wait.{what}.every_ms"), "60".to_owned()));
            flags.push((format!("wait.{what}.limit_s"), "30".to_owned()));
        }
        let folder = emulator.folder.path().to_owned();
        let (spec, _) = load(&Inputs { working_folder: folder.clone(), file: None, env: vec![], flags }).expect("settings");
        let mut pins = Pins { zone: "us-east-2b".into(), zone_id: "use2-az2".into(), ..Pins::default() };
        for (name, version) in [("vpc-cni", "v1.20.1-eksbuild.1"), ("kube-proxy", "v1.35.0-eksbuild.1"), ("eks-pod-identity-agent", "v1.3.8-eksbuild.2")] {
            pins.addons.insert(name.into(), AddonPin { version: version.into() });
        }
        Self { spec, pins, aws: Aws::of(emulator.sdk().await).expect("a region"), folder }
    }

    fn steps(&self) -> Vec<Arc<dyn Step>> {
        let (spec, pins) = (Arc::new(self.spec.clone()), Arc::new(self.pins.clone()));
        let deps = Arc::new(Deps::new(spec, pins, self.aws.clone(), reqwest::Client::new(), None));
        vec![
            Arc::new(network::Network { deps: deps.clone() }),
            Arc::new(cluster::Cluster { deps: deps.clone() }),
            Arc::new(system_nodes::SystemNodes { deps: deps.clone() }),
            Arc::new(gpu_nodes::GpuNodes { deps: deps.clone() }),
            Arc::new(filesystem::Filesystem { deps }),
        ]
    }

    /// A walk that knows nothing but what the cloud says.
    fn walk(&self) -> (Walk, UnboundedReceiver<Event>) {
        let (events, received) = Events::new();
        let state = State::new(&self.spec.name, "123456789012", "us-east-2");
        let mut walk = Walk::new(self.steps(), Place::new(&self.folder, &self.spec.name), state, events, CancellationToken::new());
        walk.pinned = !self.pins.zone_id.is_empty();
        (walk, received)
    }

    /// The verdict about one step when the state file is lost.
    pub(crate) async fn verdict(&self, step: StepId) -> Verdict {
        let (mut walk, _events) = self.walk();
        let plan = walk.plan(&walk.up_to(step)).await.expect("a plan");
        plan.planned.into_iter().find(|planned| planned.step == step).expect("the step is in the plan").verdict
    }

    /// Makes a step and what it needs, with the state file lost. Gives the facts of the step and every event's JSON.
    pub(crate) async fn up(&self, step: StepId) -> Result<(toml::Table, Vec<serde_json::Value>), Failure> {
        let (mut walk, mut events) = self.walk();
        let plan = walk.plan(&walk.up_to(step)).await?;
        if let Some(refusal) = plan.refusal() {
            return Err(refusal);
        }
        walk.run(plan).await?;
        let mut said = Vec::new();
        while let Ok(event) = events.try_recv() {
            said.push(serde_json::to_value(event).expect("an event is JSON"));
        }
        Ok((walk.facts.table(step).unwrap_or_default(), said))
    }

    /// Removes these steps, as cleanup does.
    pub(crate) async fn remove(&self, steps: &[StepId]) -> Vec<Failure> {
        let (mut walk, _events) = self.walk();
        walk.remove(&steps.iter().copied().collect()).await
    }

    /// What exists of these steps, by listing.
    pub(crate) async fn existing(&self, steps: &[StepId]) -> Vec<Resource> {
        let (walk, _events) = self.walk();
        walk.existing(steps.iter().copied().collect::<BTreeSet<_>>(), std::time::Duration::from_secs(30)).await
    }
}
