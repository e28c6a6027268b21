//! A deployment over the API server in memory: the steps before are noted as there, the step under test is the real one.

use std::sync::Arc;

use async_trait::async_trait;
use nemo::agent::fetch::ReadRate;
use nemo::aws::Aws;
use nemo::config::{Inputs, Pins, Spec, load};
use nemo::engine::event::Events;
use nemo::engine::plan::{Planned, Verdict};
use nemo::engine::state::{Place, State};
use nemo::engine::step::{Cx, Digest, Need, Seen, Step, StepId, table_of};
use nemo::engine::walk::Walk;
use nemo::error::{Failure, Resource};
use nemo::k8s::Endpoint;
use nemo::steps::facts::{ClusterFacts, FilesystemFacts, ImagesFacts, NetworkFacts, StorageFacts, Stored, WeightsFacts};
use nemo::steps::gateway::Given;
use nemo::steps::history::{self, Revision};
use nemo::steps::{self, Deps, network, platform, serve, storage};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::api::Api;

/// A step that is there, with these facts.
struct There(StepId, toml::Table);

#[async_trait]
impl Step for There {
    fn id(&self) -> StepId {
        self.0
    }
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }
    fn inputs(&self) -> Digest {
        Digest("there".into())
    }
    fn makes(&self) -> Vec<Resource> {
        Vec::new()
    }
    async fn observe(&self, _cx: &Cx) -> anyhow::Result<Seen> {
        Ok(Seen::Ready { inputs: Some(self.inputs()), facts: self.1.clone() })
    }
    async fn apply(&self, _cx: &Cx) -> anyhow::Result<toml::Table> {
        Ok(self.1.clone())
    }
    async fn remove(&self, _cx: &Cx) -> anyhow::Result<()> {
        Ok(())
    }
    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        Ok(Vec::new())
    }
}

/// Settings, the API server, and what the other steps noted.
pub(crate) struct Deployment {
    pub(crate) spec: Spec,
    pub(crate) pins: Pins,
    pub(crate) api: Api,
    pub(crate) aws: Aws,
    pub(crate) file_system: String,
    pub(crate) gateway: Given,
    cluster: ClusterFacts,
    csi_role: String,
    folder: tempfile::TempDir,
}

impl Deployment {
    pub(crate) fn new(aws: Aws) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut flags = vec![("region".to_owned(), "us-east-2".to_owned())];
        for what in ["rollout", "job", "addon", "stack", "cluster"] {
            flags.push((format!("wait.{what}.every_ms"), "10".to_owned()));
            flags.push((format!("wait.{what}.limit_s"), "60".to_owned()));
        }
        let (spec, _) = load(&Inputs { working_folder: folder.path().to_owned(), file: None, env: vec![], flags }).unwrap();
        Self {
            spec,
            pins: Pins::default(),
            api: Api::default(),
            aws,
            file_system: "fs-0123456789abcdef0".into(),
            gateway: Given::default(),
            cluster: cluster(),
            csi_role: String::new(),
            folder,
        }
    }

    fn facts(&self, step: StepId) -> toml::Table {
        fn table(facts: &impl Serialize) -> toml::Table {
            table_of(facts).unwrap()
        }
        match step {
            StepId::Network => table(&NetworkFacts { csi_role_arn: self.csi_role.clone(), ..NetworkFacts::default() }),
            StepId::Cluster => table(&self.cluster),
            StepId::Images => {
                let stored =
                    |part: &str| Stored { uri: format!("123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/{part}"), tag: "1".into(), digest: format!("sha256:{}", "a".repeat(64)) };
                let parts = ["vllm-runtime", "helm", "lws", "nvidia-device-plugin", "efa-device-plugin", "dynamo-operator", "gateway"].map(str::to_owned);
                let charts = self.spec.platform.charts.keys().map(|chart| format!("chart-{chart}"));
                table(&ImagesFacts { stored: parts.into_iter().chain(charts).map(|part| (part.clone(), stored(&part))).collect() })
            }
            StepId::Filesystem => {
                let dns_name = format!("{}.fsx.us-east-2.amazonaws.com", self.file_system);
                table(&FilesystemFacts { id: self.file_system.clone(), dns_name, mount_name: "y".into(), capacity_gib: 1200 })
            }
            StepId::Storage => table(&StorageFacts { namespace: "nemo".into(), claim: "shared".into(), volume: "nemo-shared".into() }),
            StepId::Weights => table(&WeightsFacts { path: "models/m".into(), revision: "r".into(), files: 1, bytes: 1, read: ReadRate::default() }),
            _ => toml::Table::new(),
        }
    }

    pub(crate) fn deps(&self) -> Arc<Deps> {
        let (spec, pins) = (Arc::new(self.spec.clone()), Arc::new(self.pins.clone()));
        let deps = Arc::new(Deps::new(spec, pins, self.aws.clone(), reqwest::Client::new(), None).with_gateway(self.gateway.clone()));
        let endpoint = Endpoint { url: self.cluster.endpoint.clone(), certificate_authority: self.cluster.certificate_authority.clone() };
        deps.kube_clients.get_or_make(&endpoint, "nemo", || Ok(self.api.client())).unwrap();
        deps
    }

    /// What the manifests of `serve` need from other steps.
    pub(crate) fn serve_inputs(&self) -> serve::Inputs {
        fn of<T: serde::de::DeserializeOwned>(facts: toml::Table) -> T {
            toml::Value::Table(facts).try_into().unwrap()
        }
        serve::Inputs {
            images: of(self.facts(StepId::Images)),
            storage: of(self.facts(StepId::Storage)),
            weights: of(self.facts(StepId::Weights)),
            filesystem: of(self.facts(StepId::Filesystem)),
        }
    }

    fn walk(&self, under_test: StepId) -> Walk {
        let deps = self.deps();
        let steps = StepId::ALL.into_iter().map(|id| -> Arc<dyn Step> {
            match id {
                StepId::Network if under_test == StepId::Cluster => Arc::new(network::Network { deps: deps.clone() }),
                StepId::Cluster if under_test == id => Arc::new(steps::cluster::Cluster { deps: deps.clone() }),
                StepId::Platform if under_test == id => Arc::new(platform::Platform { deps: deps.clone() }),
                StepId::Storage if under_test == id => Arc::new(storage::Storage { deps: deps.clone() }),
                StepId::Serve if under_test == id => Arc::new(serve::Serve::new(deps.clone())),
                id => Arc::new(There(id, self.facts(id))),
            }
        });
        let (events, _) = Events::new();
        let state = State::new("nemo", "123456789012", "us-east-2");
        Walk::new(steps.collect(), Place::new(self.folder.path(), "nemo"), state, events, CancellationToken::new())
    }

    /// The verdict when the state file is lost.
    pub(crate) async fn verdict(&self, step: StepId) -> Verdict {
        self.planned(step).await.verdict
    }

    /// What the plan says of it when the state file is lost.
    pub(crate) async fn planned(&self, step: StepId) -> Planned {
        let mut walk = self.walk(step);
        let plan = walk.plan(&StepId::ALL.into()).await.unwrap();
        plan.planned.into_iter().find(|planned| planned.step == step).unwrap()
    }

    /// Makes it, with the state file lost; gives what was written.
    pub(crate) async fn up(&self, step: StepId) -> Result<Vec<String>, Failure> {
        let before = self.api.writes().len();
        let mut walk = self.walk(step);
        let plan = walk.plan(&StepId::ALL.into()).await?;
        if let Some(refusal) = plan.refusal() {
            return Err(refusal);
        }
        walk.run(plan).await?;
        Ok(self.api.writes().split_off(before))
    }

    /// What has served, the newest first.
    pub(crate) async fn revisions(&self) -> Vec<Revision> {
        history::list(&self.api.client(), &self.spec).await.unwrap()
    }

    /// What the plan says of going back to a revision.
    pub(crate) async fn planned_back(&self, revision: &Revision) -> Planned {
        let mut walk = self.walk(StepId::Serve);
        walk.replace(Arc::new(serve::Serve { deps: self.deps(), kept: Some(Arc::new(revision.clone())) }));
        let plan = walk.plan(&StepId::ALL.into()).await.unwrap();
        plan.planned.into_iter().find(|planned| planned.step == StepId::Serve).unwrap()
    }

    /// Goes back to a revision, as the command does; gives what was written.
    pub(crate) async fn back_to(&self, revision: &Revision, instead_of: Option<&str>) -> Vec<String> {
        let before = self.api.writes().len();
        let mut walk = self.walk(StepId::Serve);
        walk.replace(Arc::new(serve::Serve { deps: self.deps(), kept: Some(Arc::new(revision.clone())) }));
        let plan = walk.plan(&StepId::ALL.into()).await.unwrap();
        history::raise(&self.api.client(), &self.spec, revision, instead_of).await.unwrap();
        walk.run(plan).await.unwrap();
        self.api.writes().split_off(before)
    }

    /// Makes network and control plane in AWS, for steps that ask there, too.
    pub(crate) async fn make_cluster(&mut self) {
        let mut walk = self.walk(StepId::Cluster);
        let selected = walk.up_to(StepId::Cluster);
        let plan = walk.plan(&selected).await.unwrap();
        walk.run(plan).await.unwrap();
        self.cluster = walk.facts.get(StepId::Cluster).unwrap();
        self.csi_role = walk.facts.get::<NetworkFacts>(StepId::Network).unwrap().csi_role_arn;
    }

    /// Removes it; gives what was written.
    pub(crate) async fn remove(&self, step: StepId) -> Vec<String> {
        let before = self.api.writes().len();
        let failures: Vec<_> = self.try_remove(step).await.iter().map(ToString::to_string).collect();
        assert_eq!(failures, Vec::<String>::new());
        self.api.writes().split_off(before)
    }

    /// Removes it as far as that goes.
    pub(crate) async fn try_remove(&self, step: StepId) -> Vec<Failure> {
        let mut walk = self.walk(step);
        walk.plan(&StepId::ALL.into()).await.unwrap();
        walk.remove(&[step].into()).await
    }

    pub(crate) async fn existing(&self, step: StepId) -> Vec<Resource> {
        let mut walk = self.walk(step);
        walk.plan(&StepId::ALL.into()).await.unwrap();
        walk.existing([step].into(), std::time::Duration::from_secs(5)).await
    }
}

fn cluster() -> ClusterFacts {
    ClusterFacts {
        name: "nemo".into(),
        arn: "arn:aws:eks:us-east-2:123456789012:cluster/nemo".into(),
        endpoint: "https://127.0.0.1:1".into(),
        certificate_authority: String::new(),
        version: "1.35".into(),
        security_group: "sg-1".into(),
    }
}
