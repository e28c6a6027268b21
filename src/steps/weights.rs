//! The step `weights`: the model's files on the shared volume, fetched by the agent in an Indexed Job.
//!
//! What is on the volume cannot be seen from outside; a ConfigMap says so, written when every file has been checked.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::json;

use super::Deps;
use super::facts::{FilesystemFacts, ImagesFacts, StorageFacts, Stored, WeightsFacts};
use super::objects::{Objects, or_unreachable, steady};
use super::weights_job::{self, Note, Progress, WeightsJob};
use crate::agent::fetch::{FetchPlan, PlanFile, ReadBack, ReadRate};
use crate::engine::event::EventKind;
use crate::engine::step::{Cx, Digest, Need, Seen, Step, StepId, Unit, all_of, part_of, table_of};
use crate::engine::wait::Look;
use crate::error::{Kind, Resource, fail};
use crate::k8s::apply::{KindOf, Live};
use crate::k8s::ready::Readiness;
use crate::k8s::{self, Document};
use crate::render::{self, Rendered};

const KINDS: &[KindOf] = &[KindOf::new("batch", "v1", "Job"), KindOf::new("", "v1", "Secret"), KindOf::new("", "v1", "ConfigMap")];
const JOB: &[KindOf] = &[KINDS[0]];
const TOKEN: &[KindOf] = &[KINDS[1]];
/// Of Job and plan.
const NAME: &str = "weights";
/// Of the token.
const SECRET: &str = "hub-token";

pub struct Weights {
    pub deps: Arc<Deps>,
}

/// What the step stands on; without it there is nothing to look at.
struct Ground {
    client: kube::Client,
    storage: StorageFacts,
    filesystem: FilesystemFacts,
}

impl Weights {
    fn objects(&self, kinds: &'static [KindOf]) -> Objects<'_> {
        Objects { deps: &self.deps, step: StepId::Weights, kinds }
    }

    fn folder(&self) -> String {
        let pin = &self.deps.pins.weights;
        format!("models/{}/{}", pin.repository, pin.revision)
    }

    fn facts(&self, read: ReadRate) -> WeightsFacts {
        let pin = &self.deps.pins.weights;
        WeightsFacts { path: self.folder(), revision: pin.revision.clone(), files: pin.files.len() as u64, bytes: pin.bytes, read }
    }

    fn plan(&self) -> FetchPlan {
        let (spec, pin) = (&self.deps.spec, &self.deps.pins.weights);
        let files = pin.files.iter().map(|file| PlanFile { path: file.path.clone(), size: file.size, sha256: file.sha256.clone(), git_blob: file.git_blob.clone() });
        FetchPlan {
            endpoint: spec.hub.endpoint.clone(),
            repository: pin.repository.clone(),
            revision: pin.revision.clone(),
            folder: self.folder(),
            workers: spec.weights.workers,
            connections: spec.weights.connections,
            stall_s: spec.weights.stall_s,
            piece: FetchPlan::PIECE,
            // Each GPU of a node has a rank that reads.
            read_back: ReadBack::by(spec.gpus()),
            files: files.collect(),
        }
    }

    fn ground(&self, cx: &Cx) -> anyhow::Result<Option<Ground>> {
        let there = [StepId::Cluster, StepId::Filesystem, StepId::Storage].iter().all(|step| cx.facts.table(*step).is_some());
        if !there {
            return Ok(None);
        }
        Ok(Some(Ground { client: self.deps.kube(cx)?, storage: cx.facts_of(StepId::Storage)?, filesystem: cx.facts_of(StepId::Filesystem)? }))
    }

    fn job(&self, ground: &Ground) -> WeightsJob {
        WeightsJob { client: ground.client.clone(), namespace: ground.storage.namespace.clone(), name: NAME.into() }
    }

    async fn look(&self, cx: &Cx) -> anyhow::Result<Seen> {
        let Some(ground) = self.ground(cx)? else { return Ok(Seen::Unreachable) };
        let job = self.job(&ground);
        let left = self.objects(TOKEN);
        let (noted, standing, token) = futures::try_join!(async { Ok(job.noted(&self.deps.spec.name).await?) }, async { Ok(job.standing().await?) }, left.existing(cx))?;
        Ok(match noted {
            Note::Foreign(what) => Seen::Foreign { what },
            // A note about another file system is about files that are gone.
            // A kill between the note and the removal.
            Note::Made { ref filesystem, .. } if *filesystem == ground.filesystem.id && !token.is_empty() => {
                Seen::Pending { what: format!("the hub's token is still in Secret {}", token[0].id) }
            }
            Note::Made { inputs, filesystem, facts } if filesystem == ground.filesystem.id => Seen::Ready { inputs: Some(inputs), facts: table_of(&facts)? },
            Note::Made { .. } | Note::Absent => match standing {
                Readiness::Absent => Seen::Absent,
                Readiness::Failed(why) => Seen::Broken { why },
                Readiness::Waiting(what) => Seen::Pending { what },
                Readiness::Ready => Seen::Pending { what: "the files are there; it is not noted yet".into() },
            },
        })
    }

    fn documents(&self, cx: &Cx, ground: &Ground) -> anyhow::Result<Vec<Document>> {
        let images: ImagesFacts = cx.facts_of(StepId::Images)?;
        let image = images.stored.get("agent").map(Stored::pinned);
        let image = image.ok_or_else(|| fail(Kind::Usage, "the agent's image is not in ECR").hint("nemo image push"))?;
        let plan = self.plan();
        plan.check()?;
        self.objects(KINDS).documents(rendered(&ground.storage, &ground.filesystem, image, &plan)?)
    }

    /// The hub's token, for as long as the Job needs it.
    fn token(&self, ground: &Ground) -> anyhow::Result<Option<Document>> {
        let Some(token) = &self.deps.hub_token else { return Ok(None) };
        let manifest = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": SECRET, "namespace": ground.storage.namespace},
            "stringData": {"token": token.reveal()},
        });
        let rendered = Rendered { file: "weights.yaml", text: String::new(), manifests: vec![manifest], overlays: Vec::new() };
        Ok(self.objects(KINDS).documents(vec![rendered])?.pop())
    }

    /// Waits for the Job and passes on what its pods say.
    async fn follow(&self, cx: &Cx, job: &WeightsJob) -> anyhow::Result<()> {
        let told = Mutex::new(BTreeSet::new());
        let look = || async {
            let (standing, said) = futures::try_join!(job.standing(), job.said())?;
            {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                pass_on(cx, &mut told, &said);
            }
            match standing {
                Readiness::Ready => Ok(Look::Ready(())),
                Readiness::Waiting(why) => Ok(Look::NotYet(said.words().unwrap_or(why))),
                Readiness::Absent => Err(fail(Kind::Conflict, "the Job weights was deleted by somebody").hint("the same command makes it anew").into()),
                Readiness::Failed(why) => {
                    Err(said.failure().unwrap_or_else(|| fail(Kind::Remote, format!("the Job weights failed: {why}")).hint("the same command goes on where it was")).into())
                }
            }
        };
        // A connection that is gone for a while is no failure: a laptop that slept.
        cx.until("the weights", self.deps.spec.wait.job, || steady(look())).await
    }
}

/// A retry is told once, however often its line is read.
fn pass_on(cx: &Cx, told: &mut BTreeSet<String>, said: &Progress) {
    if said.total > 0 {
        cx.progress("weights", said.done, said.total, Unit::Bytes);
    }
    for retry in &said.retries {
        if told.insert(format!("{retry:?}")) {
            cx.events.send(Some(StepId::Weights), EventKind::Retrying { what: retry.what.clone(), why: retry.why.clone(), attempt: retry.attempt });
        }
    }
}

/// The manifests of the step, without the token.
pub fn rendered(storage: &StorageFacts, filesystem: &FilesystemFacts, image: String, plan: &FetchPlan) -> anyhow::Result<Vec<Rendered>> {
    render::weights(&render::Weights {
        namespace: storage.namespace.clone(),
        name: NAME.into(),
        image,
        workers: plan.workers,
        claim: storage.claim.clone(),
        file_system_id: filesystem.id.clone(),
        secret: SECRET.into(),
        plan: serde_json::to_string_pretty(plan)?,
    })
}

#[async_trait]
impl Step for Weights {
    fn id(&self) -> StepId {
        StepId::Weights
    }

    fn needs(&self) -> Vec<Need> {
        vec![all_of(StepId::Storage), part_of(StepId::Images, "agent")]
    }

    /// What is fetched; how it is fetched changes nothing about the files.
    fn inputs(&self) -> Digest {
        Digest::of(&(&self.deps.pins.weights, self.folder()))
    }

    fn makes(&self) -> Vec<Resource> {
        let namespace = &self.deps.spec.serve.namespace;
        vec![Resource::new("Job", format!("{namespace}/{NAME}")), Resource::new("ConfigMap", format!("{namespace}/{}", weights_job::NOTE))]
    }

    async fn observe(&self, cx: &Cx) -> anyhow::Result<Seen> {
        or_unreachable(self.look(cx).await)
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let Some(ground) = self.ground(cx)? else {
            return Err(fail(Kind::Usage, "there is no shared volume to fetch to").hint("nemo up --to storage").into());
        };
        let wait = self.deps.spec.wait.job;
        let job = self.job(&ground);
        if let Note::Made { inputs, filesystem, facts } = job.noted(&self.deps.spec.name).await?
            && (inputs, filesystem) == (self.inputs(), ground.filesystem.id.clone())
        {
            // All but the last was done before a kill.
            self.objects(TOKEN).remove(cx, wait).await?;
            return table_of(&facts);
        }
        let documents = self.documents(cx, &ground)?;
        let standing = k8s::apply::look(&ground.client, &documents).await?;
        if standing.contains(&Live::Differs) || matches!(job.standing().await?, Readiness::Failed(_)) {
            // A Job cannot be changed, and one that failed does not begin again. What its pods fetched stays on the volume.
            self.objects(JOB).remove(cx, wait).await?;
        }
        if let Some(token) = self.token(&ground)? {
            self.objects(KINDS).apply(cx, &ground.client, &[token], wait).await?;
        }
        self.objects(KINDS).apply(cx, &ground.client, &documents, wait).await?;
        self.follow(cx, &job).await?;
        // Only now all of them have said their last. Logs that are gone say nothing, and then nothing is known.
        let facts = self.facts(job.said().await.map(|said| said.read).unwrap_or_default());
        let note = job.note(&self.inputs(), &ground.filesystem.id, &facts)?;
        let note = self.objects(KINDS).documents(vec![note])?;
        self.objects(KINDS).apply(cx, &ground.client, &note, wait).await?;
        self.objects(TOKEN).remove(cx, wait).await?;
        table_of(&facts)
    }

    /// The files go with the file system.
    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        self.objects(KINDS).remove(cx, self.deps.spec.wait.rollout).await
    }

    async fn existing(&self, cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        self.objects(KINDS).existing(cx).await
    }
}
