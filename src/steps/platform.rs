//! The step `platform`: EKS's add-ons that need nodes, and what comes as Helm charts: device plugins, LeaderWorkerSet, Dynamo.

mod addons;
mod charts;
mod part;
mod standing;
mod uninstall;
mod webhooks;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;

use super::Deps;
use super::facts::{ImagesFacts, NetworkFacts};
use super::objects::{Objects, look, or_unreachable, steady};
use crate::aws::eks::Eks;
use crate::config::Spec;
use crate::engine::step::{Cx, Digest, Need, Seen, Step, StepId, all_of, part_of};
use crate::engine::wait::Look;
use crate::error::{Resource, ServiceError};
use crate::k8s::apply::KindOf;
use crate::k8s::ready::Readiness;
use crate::k8s::{self, Answer, Document};
use crate::render;

pub use standing::{PartStanding, standing};

use charts::Chart;
use part::{Part, sum};

/// What is there only while helm works; first the rights.
const TEMPORARY: &[KindOf] = &[
    KindOf::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    KindOf::new("batch", "v1", "Job"),
    KindOf::new("", "v1", "ConfigMap"),
    KindOf::new("", "v1", "Secret"),
    KindOf::new("", "v1", "ServiceAccount"),
];
const KINDS: &[KindOf] = &[TEMPORARY[0], TEMPORARY[1], TEMPORARY[2], TEMPORARY[3], TEMPORARY[4], KindOf::new("", "v1", "Namespace")];
/// Where helm runs.
const NAMESPACE: &str = "nemo-system";
/// The part that is there once the storage drivers are: the weights need them, and no chart.
pub const DRIVERS: &str = "drivers";
/// Workers write one about themselves: without it nobody finds them.
const DISCOVERY_CRD: &str = "dynamoworkermetadatas.nvidia.com";

pub struct Platform {
    pub deps: Arc<Deps>,
}

impl Platform {
    fn objects(&self) -> Objects<'_> {
        Objects { deps: &self.deps, step: StepId::Platform, kinds: KINDS }
    }

    fn temporary(&self) -> Objects<'_> {
        Objects { kinds: TEMPORARY, ..self.objects() }
    }

    fn binding(&self) -> String {
        format!("{}-helm", self.deps.spec.name)
    }

    fn namespace_documents(&self) -> anyhow::Result<Vec<Document>> {
        self.objects().documents(vec![render::namespaces(&namespaces(&self.deps.spec))?])
    }

    async fn look(&self, cx: &Cx, images: &ImagesFacts) -> anyhow::Result<Seen> {
        let client = self.deps.kube(cx)?;
        let eks = Eks::new(&self.deps.aws);
        let charts = charts::all(&self.deps, images)?;
        let (namespaces, installed) = (self.namespace_documents()?, instances(&charts));
        let (addons, releases, standing, workloads, discovery, rights) = futures::try_join!(
            addons::standing(&self.deps, &eks),
            k8s::releases(&client),
            k8s::apply::look(&client, &namespaces),
            k8s::ready::deployments(&client, &installed),
            discovery(&client),
            self.rights(&client),
        )?;
        let mut parts: Vec<Part> = addons;
        parts.extend(charts.iter().map(|chart| chart.part(&self.deps.spec.name, &releases)));
        parts.extend(namespaces.iter().zip(&standing).map(|(document, live)| Part::of_object(document, live)));
        if parts.iter().all(|part| *part == Part::There) {
            parts.push(Part::of_workload(workloads));
            parts.extend([discovery, rights]);
        }
        Ok(sum(&parts, &self.inputs()))
    }

    /// The installer's rights, which must not stay.
    async fn rights(&self, client: &kube::Client) -> Result<Part, ServiceError> {
        let api: Api<ClusterRoleBinding> = Api::all(client.clone());
        let found = api.get_metadata_opt(&self.binding()).await.answer(&format!("GET clusterrolebindings/{}", self.binding()))?;
        Ok(if found.is_none() { Part::There } else { Part::Pending("the installer still has its rights".into()) })
    }

    /// Names of the releases that are ours or once were, by namespace: what helm leaves of them bears these.
    async fn installed(&self, client: &kube::Client) -> Result<BTreeMap<String, Vec<String>>, ServiceError> {
        let foreign: Vec<_> = k8s::releases(client).await?.into_iter().filter(|release| !charts::is_ours(release, &self.deps.spec.name)).collect();
        let mut installed: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, chart) in self.deps.spec.charts() {
            if !foreign.iter().any(|release| release.name == *name && release.namespace == chart.namespace) {
                installed.entry(chart.namespace.clone()).or_default().push(name.clone());
            }
        }
        Ok(installed)
    }

    async fn install(&self, cx: &Cx, client: &kube::Client) -> anyhow::Result<()> {
        let charts = charts::all(&self.deps, &cx.facts_of(StepId::Images)?)?;
        let wait = self.deps.spec.wait.rollout;
        self.objects().apply(cx, client, &self.namespace_documents()?, wait).await?;
        let installed = charts::install(self, cx, client, &charts).await;
        // Whatever came of it, the rights go; a kill in between is seen by the next look.
        let left = self.temporary().remove(cx, wait).await;
        installed?;
        left?;
        cx.until("what the charts installed", wait, || steady(self.work(client, &charts))).await?;
        let answering = async || match webhooks::answering(client, &self.deps.spec.name).await? {
            Part::Pending(why) => Ok(Look::NotYet(why)),
            _ => Ok(Look::Ready(())),
        };
        cx.until("the operators' webhooks to answer", wait, || steady(answering())).await
    }

    async fn work(&self, client: &kube::Client, charts: &[Chart]) -> anyhow::Result<Look<()>> {
        let installed = instances(charts);
        let (workloads, discovery) = futures::try_join!(k8s::ready::deployments(client, &installed), discovery(client))?;
        match (workloads, discovery) {
            (Readiness::Ready, Part::There) => Ok(Look::Ready(())),
            (Readiness::Ready, Part::Pending(what)) => Ok(Look::NotYet(what)),
            (Readiness::Ready, _) => Ok(Look::NotYet(format!("{DISCOVERY_CRD} is not there yet"))),
            (other, _) => look("charts", other),
        }
    }
}

/// Selects what these releases installed.
fn instances(charts: &[Chart]) -> String {
    let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
    format!("app.kubernetes.io/instance in ({})", names.join(","))
}

/// The operator brings its CRDs itself, after it has started.
async fn discovery(client: &kube::Client) -> Result<Part, ServiceError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = api.get_opt(DISCOVERY_CRD).await.answer(&format!("GET customresourcedefinitions/{DISCOVERY_CRD}"))?;
    let Some(found) = found else { return Ok(Part::Pending(format!("{DISCOVERY_CRD} is not there yet"))) };
    let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
    let established = conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
    Ok(if established { Part::There } else { Part::Pending(format!("{DISCOVERY_CRD} is not established yet")) })
}

/// Those that charts are installed into and that nobody else makes.
pub(super) fn namespaces(spec: &Spec) -> Vec<String> {
    let mut names = vec![NAMESPACE.to_owned()];
    let others = spec.charts().map(|(_, chart)| chart.namespace.clone()).filter(|name| name != "kube-system" && name != "default");
    names.extend(others);
    names.sort();
    names.dedup();
    names
}

#[async_trait]
impl Step for Platform {
    fn id(&self) -> StepId {
        StepId::Platform
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs = vec![part_of(StepId::Network, "roles"), all_of(StepId::SystemNodes)];
        needs.extend(charts::PARTS.iter().map(|part| part_of(StepId::Images, part)));
        needs
    }

    fn inputs(&self) -> Digest {
        let (spec, pins) = (&self.deps.spec, &self.deps.pins);
        let addons: Vec<_> = addons::ADDONS.iter().map(|addon| pins.addons.get(addon.name)).collect();
        let images: Vec<_> = pins.images.iter().filter(|(name, _)| charts::PARTS.contains(&name.as_str())).collect();
        Digest::of(&(&spec.instance.type_name, &pins.charts, images, addons))
    }

    fn makes(&self) -> Vec<Resource> {
        let addons = addons::ADDONS.iter().map(|addon| Resource::new("EKS add-on", addon.name));
        let charts = self.deps.spec.charts().map(|(name, chart)| Resource::new("Helm release", format!("{}/{name}", chart.namespace)));
        addons.chain(charts).collect()
    }

    async fn observe(&self, cx: &Cx) -> anyhow::Result<Seen> {
        let (Some(_), Ok(images)) = (cx.facts.table(StepId::Cluster), cx.facts_of::<ImagesFacts>(StepId::Images)) else { return Ok(Seen::Unreachable) };
        if charts::PARTS.iter().any(|part| !images.stored.contains_key(*part)) {
            return Ok(Seen::Unreachable);
        }
        or_unreachable(self.look(cx, &images).await)
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let client = self.deps.kube(cx)?;
        let network: NetworkFacts = cx.facts_of(StepId::Network)?;
        let (eks, inputs) = (Eks::new(&self.deps.aws), self.inputs());
        let drivers = async {
            addons::ensure(&self.deps, cx, &eks, &network.csi_role_arn, &inputs).await?;
            cx.reached(DRIVERS, toml::Table::new());
            Ok(())
        };
        futures::try_join!(drivers, self.install(cx, &client))?;
        Ok(toml::Table::new())
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        if cx.facts.table(StepId::Cluster).is_none() {
            return Ok(());
        }
        let client = self.deps.kube(cx)?;
        let installed = self.installed(&client).await?;
        uninstall::charts(self, cx, &client).await?;
        let wait = self.deps.spec.wait.rollout;
        self.temporary().remove(cx, wait).await?;
        // A namespace that has to stay is no reason to keep the rest.
        let namespaces = self.objects().remove_namespaces(cx, wait, &installed).await;
        addons::remove(&self.deps, cx, &Eks::new(&self.deps.aws)).await?;
        namespaces
    }

    async fn existing(&self, cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        if cx.facts.table(StepId::Cluster).is_none() {
            return Ok(Vec::new());
        }
        let client = self.deps.kube(cx)?;
        let eks = Eks::new(&self.deps.aws);
        let (mut found, releases, objects) =
            futures::try_join!(addons::existing(&self.deps, &eks), async { Ok(k8s::releases(&client).await?) }, async { self.objects().existing(cx).await })?;
        found.extend(
            releases
                .iter()
                .filter(|release| charts::is_ours(release, &self.deps.spec.name))
                .map(|release| Resource::new("Helm release", format!("{}/{}", release.namespace, release.name))),
        );
        found.extend(objects);
        Ok(found)
    }
}
