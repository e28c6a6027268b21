//! Helm charts: each by a Job in the cluster that runs helm, with chart and images from our ECR.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use super::super::Deps;
use super::super::facts::{ImagesFacts, Stored};
use super::super::objects::{look, steady};
use super::part::Part;
use super::{NAMESPACE, Platform};
use crate::aws::ecr::Ecr;
use crate::config::ChartSource;
use crate::engine::step::{Cx, Digest};
use crate::engine::wait::Look;
use crate::error::{Kind, fail};
use crate::k8s::ready::Readiness;
use crate::k8s::{self, ANNOTATION_INPUTS, Answer, Document, LABEL_DEPLOYMENT, Owner, Release};
use crate::render::{self, ChartValues, HelmJob, Installer};

/// The images that the charts' values name, by chart.
const IMAGES: &[(&str, &str)] =
    &[("lws", "lws"), ("nvidia-device-plugin", "nvidia-device-plugin"), ("aws-efa-k8s-device-plugin", "efa-device-plugin"), ("dynamo-platform", "dynamo-operator")];
/// What has to be in ECR first.
pub(super) const PARTS: &[&str] = &[
    "helm",
    "lws",
    "nvidia-device-plugin",
    "efa-device-plugin",
    "dynamo-operator",
    "chart-lws",
    "chart-nvidia-device-plugin",
    "chart-aws-efa-k8s-device-plugin",
    "chart-dynamo-platform",
];
/// Label of a release: the version of its chart.
pub(super) const LABEL_VERSION: &str = "nemo.dev/chart-version";
/// Sign-in to the registry of the charts, for as long as helm works.
const REGISTRY_SECRET: &str = "registry";

/// A chart as it is to be installed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chart {
    /// Also of its release.
    pub name: String,
    pub namespace: String,
    stored: Stored,
    values: String,
    /// Whether helm may bring a release of another version to this one.
    in_place_upgrade: bool,
}

/// The charts of the platform's set.
pub(super) fn all(deps: &Deps, images: &ImagesFacts) -> anyhow::Result<Vec<Chart>> {
    deps.spec.charts().map(|(name, source)| chart(deps, images, name, source)).collect()
}

fn chart(deps: &Deps, images: &ImagesFacts, name: &str, source: &ChartSource) -> anyhow::Result<Chart> {
    let image = IMAGES.iter().find(|(chart, _)| *chart == name).map(|(_, image)| *image);
    let image = image.ok_or_else(|| fail(Kind::Config, format!("which image the chart {name} runs is not known")))?;
    let image = stored(images, image)?;
    let values = ChartValues { repository: image.uri.clone(), tag: image.tag.clone(), instance_type: deps.spec.instance.type_name.clone() };
    let stored = stored(images, &format!("chart-{name}"))?.clone();
    let values = render::chart_values(name, &values)?.text;
    Ok(Chart { name: name.to_owned(), namespace: source.namespace.clone(), stored, values, in_place_upgrade: source.in_place_upgrade })
}

pub(super) fn stored<'a>(images: &'a ImagesFacts, part: &str) -> anyhow::Result<&'a Stored> {
    images.stored.get(part).ok_or_else(|| fail(Kind::Usage, format!("{part} is not in ECR yet")).hint(format!("nemo image push {part}")).into())
}

/// Did this deployment install it?
pub(super) fn is_ours(release: &Release, deployment: &str) -> bool {
    release.labels.get(LABEL_DEPLOYMENT).is_some_and(|name| name == deployment)
}

impl Chart {
    /// Of the chart.
    pub(super) fn version(&self) -> &str {
        &self.stored.tag
    }

    /// Of everything that helm is given.
    fn digest(&self) -> Digest {
        Digest::of(&(&self.stored, &self.values, &self.namespace))
    }

    fn release<'a>(&self, releases: &'a [Release]) -> Option<&'a Release> {
        releases.iter().find(|release| release.name == self.name && release.namespace == self.namespace)
    }

    /// How its release stands.
    pub(super) fn part(&self, deployment: &str, releases: &[Release]) -> Part {
        let Some(release) = self.release(releases) else { return Part::Missing };
        let title = format!("Helm release {}/{}", self.namespace, self.name);
        if !is_ours(release, deployment) {
            Part::Foreign(title)
        } else if let Some(version) = self.other_version(release) {
            let why = format!("{title} is version {version} and would become {}: it cannot be upgraded in place", self.stored.tag);
            Part::Fixed(why)
        } else if release.status != "deployed" {
            Part::Broken(format!("{title} is {}", release.status))
        } else if release.labels.get(ANNOTATION_INPUTS) != Some(&self.digest().0) {
            Part::Broken(format!("{title} was made from other settings"))
        } else {
            Part::There
        }
    }

    /// The version of a release that may not be brought to ours.
    fn other_version<'a>(&self, release: &'a Release) -> Option<&'a str> {
        release.labels.get(LABEL_VERSION).map(String::as_str).filter(|version| !self.in_place_upgrade && *version != self.stored.tag)
    }

    /// The Job's name: another digest is another Job, since a Job cannot be changed.
    fn job(&self) -> String {
        format!("helm-{}-{}", self.name, &self.digest().0[..8])
    }

    fn args(&self, deployment: &str) -> Vec<String> {
        let labels = format!("{LABEL_DEPLOYMENT}={deployment},{LABEL_VERSION}={},{ANNOTATION_INPUTS}={}", self.stored.tag, self.digest());
        let mut args: Vec<String> = ["upgrade", "--install", &self.name, &format!("oci://{}", self.stored.uri)].map(str::to_owned).into();
        for (flag, value) in
            [("--version", self.stored.tag.as_str()), ("--namespace", &self.namespace), ("--values", "/values/values.yaml"), ("--labels", &labels), ("--history-max", "2")]
        {
            args.extend([flag.to_owned(), value.to_owned()]);
        }
        args
    }
}

/// Installs what is not as it should be, all at once.
pub(super) async fn install(platform: &Platform, cx: &Cx, client: &kube::Client, charts: &[Chart]) -> anyhow::Result<()> {
    let deps = &platform.deps;
    let releases = k8s::releases(client).await?;
    let todo: Vec<&Chart> = charts.iter().filter(|chart| chart.part(&deps.spec.name, &releases) != Part::There).collect();
    if todo.is_empty() {
        return Ok(());
    }
    let images: ImagesFacts = cx.facts_of(crate::engine::step::StepId::Images)?;
    let host = images.stored.values().find_map(|stored| stored.uri.split('/').next()).unwrap_or_default();
    let mut documents = platform.temporary().documents(vec![render::installer(&Installer { namespace: NAMESPACE.into(), binding: platform.binding() })?])?;
    documents.push(registry(deps, host).await?);
    k8s::apply::apply(client, &documents).await?;
    let image = stored(&images, "helm")?.pinned();
    try_join_all(todo.into_iter().map(|chart| install_one(platform, cx, client, chart, &image, chart.release(&releases)))).await.map(drop)
}

/// The registry's password, in a Secret that is deleted with the rest.
async fn registry(deps: &Deps, host: &str) -> anyhow::Result<Document> {
    let (user, password) = Ecr::new(&deps.aws).password().await?;
    let config = json!({"auths": {host: {"auth": STANDARD.encode(format!("{user}:{}", password.reveal()))}}});
    let manifest = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": REGISTRY_SECRET, "namespace": NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": STANDARD.encode(config.to_string())},
    });
    let owner = Owner { deployment: &deps.spec.name, step: "platform" };
    Document::new(manifest, owner).map_err(|why| fail(Kind::Bug, why).into())
}

async fn install_one(platform: &Platform, cx: &Cx, client: &kube::Client, chart: &Chart, image: &str, release: Option<&Release>) -> anyhow::Result<()> {
    let deployment = &platform.deps.spec.name;
    if let Some(release) = release.filter(|release| !is_ours(release, deployment)) {
        return Err(fail(Kind::Conflict, format!("Helm release {}/{} is there and is not ours", release.namespace, release.name)).into());
    }
    let at_work = matches!(k8s::ready::job(client, NAMESPACE, &chart.job()).await?, Readiness::Waiting(_));
    if let Some(release) = release.filter(|release| release.status.starts_with("pending") && !at_work) {
        // A helm that was killed leaves a lock behind that blocks every other.
        cx.note(format!("release {} was left {} by a helm that is gone: it is begun anew", release.name, release.status));
        k8s::forget(client, release).await?;
    }
    let job = HelmJob {
        job: chart.job(),
        namespace: NAMESPACE.into(),
        image: image.to_owned(),
        args: chart.args(deployment),
        values: chart.values.clone(),
        registry_secret: REGISTRY_SECRET.into(),
    };
    run(platform, cx, client, &format!("chart {}", chart.name), &job, at_work).await?;
    cx.note(format!("chart {} {} installed", chart.name, chart.stored.tag));
    Ok(())
}

/// Runs helm in a Job until it is done; one that is at work already is waited for, one that has ended is made anew.
pub(super) async fn run(platform: &Platform, cx: &Cx, client: &kube::Client, what: &str, job: &HelmJob, at_work: bool) -> anyhow::Result<()> {
    let wait = platform.deps.spec.wait.job;
    if !at_work {
        delete_job(cx, client, &job.job, wait).await?;
        let documents = platform.temporary().documents(vec![render::helm_job(job)?])?;
        k8s::apply::apply(client, &documents).await?;
    }
    let state = || steady(async { look(what, k8s::ready::job(client, &job.namespace, &job.job).await?) });
    cx.until(what, wait, state).await
}

async fn delete_job(cx: &Cx, client: &kube::Client, name: &str, wait: crate::engine::wait::Wait) -> anyhow::Result<()> {
    let api: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    if api.delete(name, &DeleteParams::foreground()).await.or_none(&format!("DELETE jobs/{name}"))?.is_none() {
        return Ok(());
    }
    let gone = || steady(async { Ok(if api.get_metadata_opt(name).await.answer(&format!("GET jobs/{name}"))?.is_none() { Look::Ready(()) } else { Look::NotYet(String::new()) }) });
    cx.until(&format!("an earlier Job {name} to go"), wait, gone).await
}
