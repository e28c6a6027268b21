//! The step `serve`: Dynamo's frontend and the vLLM worker, until the frontend lists the model.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};

use super::Deps;
use super::facts::{FilesystemFacts, ImagesFacts, ServeFacts, StorageFacts, Stored, WeightsFacts};
use super::gateway::{self, Gateway};
use super::history::{self, Revision};
use super::loading::{patience, tell_loading};
use super::objects::{Objects, look, marked, or_unreachable, seen, steady};
use super::serve_change::{downtime, goes, made_anew, no_longer_wanted, stops};
use super::taken::Applied;
use crate::config::{Controllers, Form, Spec};
use crate::engine::clock;
use crate::engine::step::{Cx, Digest, Facts, Need, Seen, Step, StepId, all_of, part_of, table_of};
use crate::engine::wait::Look;
use crate::error::{Kind, Resource, ServiceError, Untouched, fail};
use crate::k8s::apply::{KindOf, Live, WORKLOADS};
use crate::k8s::change::Refused;
use crate::k8s::diff::Difference;
use crate::k8s::ready::Readiness;
use crate::k8s::{self, Answer, Document, Owner};
use crate::render::{self, Rendered, Routing, Serving};

pub(super) const KINDS: &[KindOf] = &[
    KindOf::new("policy", "v1", "PodDisruptionBudget"),
    KindOf::new("nvidia.com", "v1beta1", "DynamoGraphDeployment"),
    KindOf::new("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    KindOf::new("apps", "v1", "Deployment"),
    KindOf::new("autoscaling", "v2", "HorizontalPodAutoscaler"),
    KindOf::new("networking.k8s.io", "v1", "NetworkPolicy"),
    KindOf::new("", "v1", "Service"),
    KindOf::new("", "v1", "ConfigMap"),
    KindOf::new("", "v1", "Secret"),
    KindOf::new("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    KindOf::new("rbac.authorization.k8s.io", "v1", "Role"),
    KindOf::new("", "v1", "ServiceAccount"),
    KindOf::new("node.k8s.io", "v1", "RuntimeClass"),
];
/// The part of `images` that the pods run.
pub const IMAGE: &str = "vllm-runtime";
/// Its part that sends pictures to vLLM's encoders, beside the engines that answer.
pub const ROUTER: &str = "picture-router";

pub struct Serve {
    pub deps: Arc<Deps>,
    /// These manifests instead of what the settings render.
    pub kept: Option<Arc<Revision>>,
}

/// What the manifests need from other steps.
pub struct Inputs {
    pub images: ImagesFacts,
    pub storage: StorageFacts,
    pub weights: WeightsFacts,
    pub filesystem: FilesystemFacts,
}

impl Inputs {
    /// From the facts; the first step that is missing is named.
    pub fn of(facts: &Facts) -> anyhow::Result<Self> {
        Ok(Self { images: facts.get(StepId::Images)?, storage: facts.get(StepId::Storage)?, weights: facts.get(StepId::Weights)?, filesystem: facts.get(StepId::Filesystem)? })
    }

    /// The values of the templates.
    pub fn serving(&self, deps: &Deps) -> anyhow::Result<Serving> {
        if let Some(why) = self.lacks(&deps.spec) {
            return Err(fail(Kind::Usage, why).hint("nemo image push").into());
        }
        let pinned = |name: &str| self.images.stored.get(name).map(Stored::pinned).unwrap_or_default();
        let bytes = self.weights.bytes.max(deps.pins.weights.bytes);
        let facts = render::Facts {
            image: pinned(IMAGE),
            claim: self.storage.claim.clone(),
            model_path: self.weights.path.clone(),
            weight_bytes: bytes,
            read: self.weights.read.clone(),
            capacity_gib: self.filesystem.capacity_gib,
            efa: deps.efa(),
            controllers: deps.controllers(),
            routing: Some(Routing { frontend: pinned(gateway::IMAGE), sidecar: pinned(ROUTER) }),
        };
        Ok(Serving::new(&deps.spec, facts))
    }

    /// The first image that the pods of these settings run and that is not in ECR: it may have served in another topology when they were copied.
    pub fn lacks(&self, spec: &Spec) -> Option<String> {
        let missing = images(spec).into_iter().find(|name| !self.images.stored.contains_key(*name))?;
        Some(format!("the image {missing} is not in ECR yet"))
    }
}

/// The parts of `images` that the pods run, without the gateway's.
fn images(spec: &Spec) -> Vec<&'static str> {
    if spec.splits_by_vllm() { vec![IMAGE, gateway::IMAGE, ROUTER] } else { vec![IMAGE] }
}

impl Serve {
    /// The step as the settings ask for it.
    pub fn new(deps: Arc<Deps>) -> Self {
        Self { deps, kept: None }
    }

    fn objects(&self) -> Objects<'_> {
        Objects { deps: &self.deps, step: StepId::Serve, kinds: KINDS }
    }

    fn gateway(&self) -> Gateway<'_> {
        Gateway::new(&self.deps)
    }

    /// The manifests of the step.
    pub fn rendered(&self, inputs: &Inputs) -> anyhow::Result<(Serving, Vec<Rendered>)> {
        let serving = inputs.serving(&self.deps)?;
        let rendered = match &self.kept {
            Some(kept) => kept.rendered(),
            None => overlaid(&self.deps.spec, &serving, self.gateway().values(&serving, &inputs.images)?.as_ref())?,
        };
        Ok((serving, rendered))
    }

    /// What applying would change, and how many objects would stay as they are. Reads only; what would not serve is refused, as it would be then.
    pub async fn diff(&self, client: &kube::Client, inputs: &Inputs) -> anyhow::Result<(Vec<Difference>, usize)> {
        self.deps.look_live(client, Controllers::default()).await?;
        self.possible()?;
        let (_, rendered) = self.rendered(inputs)?;
        super::linted::refuse(&rendered)?;
        let documents = self.objects().documents(rendered)?;
        if let Some(why) = goes(client, &self.deps.spec.serve.namespace).await? {
            return Err(why.into());
        }
        let stale = self.objects().stale(client, &documents).await?;
        let differences = k8s::diff::diff(client, &documents, &stale, KINDS).await?;
        let unchanged = documents.len() + stale.len() - differences.len();
        Ok((differences, unchanged))
    }

    /// Are the manifests of this revision, and no others, what the cluster has?
    pub async fn is_there(&self, client: &kube::Client, revision: &Revision) -> anyhow::Result<bool> {
        let objects = self.objects();
        let documents = objects.documents(revision.rendered())?;
        let (standing, stale) = futures::try_join!(k8s::apply::look(client, &documents), objects.stale(client, &documents))?;
        Ok(stale.is_empty() && standing.iter().all(|live| matches!(live, Live::Same | Live::Changed(_))))
    }

    /// Digest of what the settings render now.
    pub async fn wanted(&self, facts: &Facts) -> anyhow::Result<String> {
        let client = self.deps.kube_of(&facts.get(StepId::Cluster)?)?;
        self.deps.look_live(&client, self.deps.spec.controllers()).await?;
        Ok(history::digest(&self.rendered(&Inputs::of(facts)?)?.1))
    }

    /// What others see of it: where it was rolled back from just this, that is said first.
    async fn told(&self, client: &kube::Client, digest: &str, seen: Seen) -> anyhow::Result<Seen> {
        let Seen::Broken { why } = seen else { return Ok(seen) };
        let newest = history::newest(client, &self.deps.spec).await?;
        match newest.filter(|newest| newest.instead_of.as_deref() == Some(digest)) {
            Some(newest) => Ok(Seen::Broken { why: format!("these settings were rolled back from, to revision {}, and would be applied again: {why}", newest.number) }),
            None => Ok(Seen::Broken { why }),
        }
    }

    async fn look(&self, cx: &Cx) -> anyhow::Result<Seen> {
        let client = self.deps.kube(cx)?;
        self.deps.look_live(&client, self.deps.spec.controllers()).await?;
        if let Some(impossible) = self.impossible("the cluster") {
            return Ok(impossible);
        }
        let Some(inputs) = Inputs::of(&cx.facts).ok().filter(|inputs| inputs.images.stored.contains_key(IMAGE)) else { return Ok(Seen::Unreachable) };
        if let Some(what) = inputs.lacks(&self.deps.spec).or_else(|| self.gateway().lacks(&inputs.images)).filter(|_| self.kept.is_none()) {
            return Ok(Seen::Pending { what });
        }
        let (serving, rendered) = self.rendered(&inputs)?;
        let digest = history::digest(&rendered);
        let way_in = gateway::way_in(&rendered);
        if let Some(kept) = self.kept.as_ref().filter(|_| way_in.is_some())
            && let Some(missing) = self.gateway().missing(&client, kept.number).await?
        {
            return Ok(missing);
        }
        if let Some(why) = goes(&client, &self.deps.spec.serve.namespace).await? {
            return Ok(Seen::Pending { what: why.to_string() });
        }
        let objects = self.objects();
        let documents = objects.documents(rendered)?;
        let (standing, stale) = futures::try_join!(k8s::apply::look(&client, &documents), objects.stale(&client, &documents))?;
        // The gateway's pods come and go without the engines.
        let serves = |document: &Document| document.has_pods() && document.object().metadata.name.as_deref() != Some(render::GATEWAY);
        let differs = documents.iter().zip(&standing).any(|(document, live)| *live == Live::Differs && serves(document));
        let seen = seen(&documents, &standing);
        // A webhook that does not answer is waited for when it is needed.
        let refused = if differs { k8s::change::refused(&client, &documents).await? } else { Vec::new() };
        match seen {
            Some(foreign @ Seen::Foreign { .. }) => return Ok(foreign),
            _ if !refused.is_empty() => return self.told(&client, &digest, Seen::Broken { why: made_anew(&serving, &refused) }).await,
            _ if !stale.is_empty() => {
                let secrets = if way_in.is_none() { self.gateway().kept(&client).await? } else { Vec::new() };
                return self.told(&client, &digest, Seen::Broken { why: no_longer_wanted(&serving, &stale, &secrets) }).await;
            }
            Some(Seen::Broken { why }) if differs && stops(&serving) => return self.told(&client, &digest, Seen::Broken { why: format!("{why}; {}", downtime(&serving)) }).await,
            Some(seen) => return self.told(&client, &digest, seen).await,
            None => {}
        }
        for name in names(&serving) {
            match readiness(&client, &serving, name).await? {
                Readiness::Ready => {}
                Readiness::Failed(why) => return Ok(Seen::Broken { why }),
                Readiness::Waiting(what) => return Ok(Seen::Pending { what }),
                Readiness::Absent => return Ok(Seen::Pending { what: format!("{name} is being made") }),
            }
        }
        if history::newest(&client, &self.deps.spec).await?.is_none_or(|newest| newest.digest != digest) {
            return Ok(Seen::Pending { what: "it serves, and is not kept for nemo rollback yet".into() });
        }
        Ok(match self.gateway().look(&client, way_in).await? {
            Ok(exposed) => Seen::Ready { inputs: Some(self.inputs()), facts: table_of(&ServeFacts { exposed: exposed.into_iter().collect(), ..facts(&serving) })? },
            Err(seen) => seen,
        })
    }

    /// Waits for workers that are ready together, telling how much of the weights they have loaded.
    async fn workers_ready(&self, cx: &Cx, applied: &Applied<'_>, serving: &Serving, names: &[&'static str]) -> anyhow::Result<()> {
        let (what, client) = (names.join(" and "), applied.client);
        cx.until(&what, patience(self.deps.spec.wait.rollout, serving.startup_s), || async {
            steady(applied.watched(async {
                let readiness = readiness(client, serving, names[0]).await?;
                if readiness == Readiness::Ready {
                    return Ok(Look::Ready(()));
                }
                tell_loading(cx, client, serving, names).await?;
                look(&what, with_devices(client, readiness).await?)
            }))
            .await
        })
        .await
    }

    /// What there is to apply, once everything has been asked that may refuse it: up to here nothing is changed.
    async fn admitted(&self, cx: &Cx, client: &kube::Client) -> anyhow::Result<(Serving, Vec<Rendered>, Vec<Document>, Vec<Refused>)> {
        let inputs = Inputs::of(&cx.facts)?;
        self.deps.look_live(client, Controllers::default()).await?;
        self.possible()?;
        let (serving, rendered) = self.rendered(&inputs)?;
        super::linted::refuse(&rendered)?;
        let documents = self.objects().documents(rendered.clone())?;
        if let Some(why) = goes(client, &serving.namespace).await? {
            return Err(why.into());
        }
        let refused = self.objects().admitted(cx, client, &documents, self.deps.spec.wait.rollout).await?;
        Ok((serving, rendered, documents, refused))
    }

    /// Refuses what the cluster's controllers cannot make.
    fn possible(&self) -> anyhow::Result<()> {
        match self.impossible("the cluster") {
            Some(Seen::Impossible { why, hint }) => Err(fail(Kind::Usage, why).hint(hint).into()),
            _ => Ok(()),
        }
    }

    /// What is asked for and cannot be made without a controller that is not there.
    fn impossible(&self, place: &str) -> Option<Seen> {
        // What is kept has served here in its form.
        if self.kept.is_some() {
            return None;
        }
        let (topology, there) = (self.deps.spec.serve.topology, self.deps.controllers());
        let (form, _) = self.deps.spec.form_with(there);
        let what = form.lacks(topology, there)?;
        let why = format!("{topology} as {form} needs {what}, and {place} has none");
        Some(Seen::Impossible {
            why,
            hint: "--as auto takes a form that needs only what is there; nemo up --to platform, install what is missing, then run the same command".into(),
        })
    }

    /// Pods that crash are made anew: whoever runs the command again has changed something about the cause.
    async fn restart_failed(&self, client: &kube::Client, serving: &Serving) -> anyhow::Result<()> {
        for name in names(serving) {
            if let Readiness::Failed(_) = readiness(client, serving, name).await? {
                let api: Api<Pod> = Api::namespaced(client.clone(), &serving.namespace);
                api.delete_collection(&DeleteParams::default(), &of(name)).await.answer("DELETE pods")?;
            }
        }
        Ok(())
    }
}

/// The manifests with what the user lays over them. What is waited for has to be among them.
fn overlaid(spec: &Spec, serving: &Serving, gateway: Option<&render::Gateway>) -> anyhow::Result<Vec<Rendered>> {
    let rendered = render::overlaid(serving, gateway, &spec.overlay)?;
    let wanted = if serving.by_operator { vec![serving.graph.as_str()] } else { names(serving) };
    let is = |manifest: &render::Manifest, name: &str| manifest["metadata"]["name"] == name && manifest["kind"].as_str().is_some_and(|kind| WORKLOADS.contains(&kind));
    match wanted.into_iter().find(|name| !rendered.iter().flat_map(|file| &file.manifests).any(|manifest| is(manifest, name))) {
        Some(name) if !spec.overlay.is_empty() => {
            let paths: Vec<_> = spec.overlay.templates.iter().map(|file| file.path.as_str()).collect();
            Err(fail(Kind::Config, format!("{}: no workload {name} comes out", paths.join(", ")))
                .hint("keep the names of nemo's own templates: other objects and nemo itself look for them")
                .into())
        }
        _ => Ok(rendered),
    }
}

/// Would these settings render, and serve as far as the lint can tell? With stand-ins for what only the cloud knows: asked before money is spent.
pub fn trial(spec: &Spec) -> anyhow::Result<()> {
    let facts = render::Facts::stand_in(spec)?;
    let image = facts.image.clone();
    let serving = Serving::new(spec, facts);
    let gateway = spec.exposed().then(|| render::Gateway::new(spec, &serving, image));
    let rendered = overlaid(spec, &serving, gateway.as_ref())?;
    super::linted::refuse(&rendered)?;
    marked(rendered, Owner { deployment: &spec.name, step: StepId::Serve.as_str() }, KINDS).map(drop)
}

/// The workloads by name: workers, then the frontend.
fn names(serving: &Serving) -> Vec<&'static str> {
    serving.components.iter().map(|component| component.name).chain([serving.frontend]).collect()
}

/// How the workload of this name stands, whatever it is in this form.
async fn readiness(client: &kube::Client, serving: &Serving, name: &'static str) -> Result<Readiness, ServiceError> {
    match serving.form {
        form if form.by_operator() => k8s::ready::graph(client, &serving.namespace, &serving.graph).await,
        Form::Lws if name != serving.frontend => k8s::ready::leader_worker_set(client, &serving.namespace, name).await,
        _ => k8s::ready::deployment(client, &serving.namespace, name).await,
    }
}

fn of(name: &str) -> ListParams {
    ListParams::default().labels(&format!("app.kubernetes.io/name={name}"))
}

pub(super) fn facts(serving: &Serving) -> ServeFacts {
    ServeFacts { namespace: serving.namespace.clone(), service: serving.service.clone(), port: serving.port, model: serving.served_model_name.clone(), exposed: Vec::new() }
}

/// Devices that no node has yet are made by a plug-in: why it is not ready is the reason behind the scheduler's.
pub(super) async fn with_devices(client: &kube::Client, readiness: Readiness) -> Result<Readiness, ServiceError> {
    let Readiness::Waiting(mut why) = readiness else { return Ok(readiness) };
    for (resource, plugin) in [("nvidia.com/gpu", "nvidia-device-plugin"), ("vpc.amazonaws.com/efa", "aws-efa-k8s-device-plugin")] {
        if why.contains(&format!("Insufficient {resource}")) {
            match k8s::ready::daemon_set(client, "kube-system", plugin).await? {
                Readiness::Ready => why = format!("{why}; the DaemonSet {plugin} is ready where it runs"),
                Readiness::Absent => why = format!("{why}; the DaemonSet {plugin} is not there"),
                Readiness::Waiting(plugin_why) | Readiness::Failed(plugin_why) => why = format!("{why}; {plugin}: {plugin_why}"),
            }
        }
    }
    Ok(Readiness::Waiting(why))
}

/// Does the frontend list the model? Asked through the API server, so that nothing has to be exposed.
async fn lists_model(client: &kube::Client, facts: &ServeFacts) -> anyhow::Result<Look<()>> {
    let path = format!("/api/v1/namespaces/{}/services/{}:{}/proxy/v1/models", facts.namespace, facts.service, facts.port);
    let text = client.request_text(http::Request::get(&path).body(Vec::new())?).await.answer("GET /v1/models through the API server")?;
    let Ok(answer) = serde_json::from_str::<serde_json::Value>(&text) else { return Ok(Look::NotYet("the frontend answers, but no list of models".into())) };
    let ids: Vec<&str> = answer["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str()).collect();
    Ok(match ids.as_slice() {
        ids if ids.contains(&facts.model.as_str()) => Look::Ready(()),
        [] => Look::NotYet("the frontend lists no model yet".into()),
        others => Look::NotYet(format!("the frontend lists {}", others.join(", "))),
    })
}

#[async_trait]
impl Step for Serve {
    fn id(&self) -> StepId {
        StepId::Serve
    }

    fn needs(&self) -> Vec<Need> {
        let spec = &self.deps.spec;
        let gateway = (spec.exposed() && !spec.splits_by_vllm()).then_some(gateway::IMAGE);
        let images = images(spec).into_iter().chain(gateway).map(|image| part_of(StepId::Images, image));
        [all_of(StepId::Weights), all_of(StepId::Platform), all_of(StepId::GpuNodes)].into_iter().chain(images).collect()
    }

    fn inputs(&self) -> Digest {
        let (spec, pins) = (&self.deps.spec, &self.deps.pins);
        if let Some(kept) = &self.kept {
            return Digest(kept.digest.clone());
        }
        let images = (pins.images.get(IMAGE), pins.images.get(gateway::IMAGE), pins.images.get(ROUTER));
        Digest::of(&(&spec.serve, &spec.overlay, &spec.model, &spec.precision, &spec.instance.type_name, &spec.compute_name, images, &pins.weights.revision))
    }

    fn makes(&self) -> Vec<Resource> {
        let spec = &self.deps.spec;
        let (form, _) = spec.form_with(self.deps.controllers());
        let namespace = &spec.serve.namespace;
        if form.by_operator() {
            let graph = Resource::new("DynamoGraphDeployment", format!("{namespace}/{}", spec.name));
            return std::iter::once(graph).chain(self.gateway().makes()).collect();
        }
        let kind = if form == Form::Lws { "LeaderWorkerSet" } else { "Deployment" };
        let workers = spec.parts().into_iter().map(|part| Resource::new(kind, format!("{namespace}/{}", render::name_of(part.role))));
        std::iter::once(Resource::new("Deployment", format!("{namespace}/frontend"))).chain(workers).chain(self.gateway().makes()).collect()
    }

    fn notes(&self) -> Vec<String> {
        let spec = &self.deps.spec;
        let (form, reason) = spec.form_with(self.deps.controllers());
        let mut notes = vec![format!("{} as {form}: {reason}", spec.serve.topology)];
        let (taken, nodes) = (spec.nodes_taken(), spec.gpu.nodes);
        if taken < nodes {
            notes.push(format!("{taken} of {nodes} GPU nodes will serve, and all are paid for: serve.replicas, or prefill and decode, take more; --nodes {taken} has no more"));
        }
        if spec.encoded_by_dynamo() {
            notes.push("unverified: Dynamo's encode workers were never run with this model on GPUs; each takes one GPU of its node".to_owned());
        }
        if let Some(Ok(pair)) = &self.deps.gateway.certificate {
            notes.push(pair.validity(clock::now()));
        }
        notes
    }

    async fn observe(&self, cx: &Cx) -> anyhow::Result<Seen> {
        if cx.facts.table(StepId::Cluster).is_none() {
            return Ok(self.impossible("the platform that nemo up installs").unwrap_or(Seen::Unreachable));
        }
        or_unreachable(self.look(cx).await)
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let client = self.deps.kube(cx)?;
        let ready = self.admitted(cx, &client).await.map_err(|error| error.context(Untouched))?;
        let (serving, rendered, documents, refused) = ready;
        let (way_in, wait) = (gateway::way_in(&rendered), self.deps.spec.wait.rollout);
        self.gateway().write_secrets(cx, &client, way_in.is_some()).await?;
        self.objects().prune(cx, &client, &documents, &refused, wait).await?;
        self.objects().apply(cx, &client, &documents, wait).await?;
        let applied = Applied { objects: self.objects(), client: &client, documents: &documents };
        self.restart_failed(&client, &serving).await?;
        // All at once: each loads its weights for minutes.
        let workers: Vec<_> = serving.components.iter().map(|component| component.name).collect();
        // A graph is ready as a whole.
        let together = if serving.by_operator { workers.len() } else { 1 };
        futures::future::try_join_all(workers.chunks(together).map(|names| self.workers_ready(cx, &applied, &serving, names))).await?;
        let frontend = || steady(applied.watched(async { look(serving.frontend, readiness(&client, &serving, serving.frontend).await?) }));
        cx.until(serving.frontend, patience(wait, serving.startup_s), frontend).await?;
        let mut facts = facts(&serving);
        cx.until("the frontend to list the model", wait, || steady(applied.watched(lists_model(&client, &facts)))).await?;
        facts.exposed.extend(self.gateway().ready(cx, &client, way_in).await?);
        applied.kept().await?;
        history::keep(&client, &self.deps.spec, serving.form, &rendered).await?;
        table_of(&facts)
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        self.objects().remove(cx, self.deps.spec.wait.rollout).await
    }

    async fn existing(&self, cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        Ok(self.objects().existing(cx).await?.into_iter().map(|found| self.gateway().priced(found)).collect())
    }
}
