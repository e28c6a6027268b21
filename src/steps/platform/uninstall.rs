//! Taking the charts away in the order that leaves nothing hanging: objects, then their operator, then the definitions.

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::core::metadata::PartialObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};

use super::super::facts::ImagesFacts;
use super::super::objects::steady;
use super::charts::{is_ours, run, stored};
use super::{NAMESPACE, Platform};
use crate::engine::step::{Cx, StepId};
use crate::engine::wait::Look;
use crate::error::{Kind, ServiceError, fail};
use crate::k8s::{self, Answer, Release};
use crate::render::{self, HelmJob, Installer};

/// Their objects carry finalizers that only a running operator lifts.
const OPERATED: &[&str] = &["dynamographdeploymentrequests", "dynamographdeployments", "dynamocomponentdeployments", "leaderworkersets"];

/// Takes the releases away, and what helm leaves of them.
pub(super) async fn charts(platform: &Platform, cx: &Cx, client: &kube::Client) -> anyhow::Result<()> {
    refuse_others(platform, client).await?;
    let releases: Vec<Release> = k8s::releases(client).await?.into_iter().filter(|release| is_ours(release, &platform.deps.spec.name)).collect();
    if !releases.is_empty() {
        objects(platform, cx, client).await?;
        uninstall(platform, cx, client, &releases).await?;
    }
    definitions(client).await?;
    Ok(())
}

/// Definitions that the charts brought; helm leaves them.
async fn ours(client: &kube::Client) -> Result<Vec<CustomResourceDefinition>, ServiceError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut found = api.list(&ListParams::default()).await.answer("LIST customresourcedefinitions")?.items;
    found.retain(|definition| {
        let (group, plural) = (definition.spec.group.as_str(), definition.spec.names.plural.as_str());
        matches!(group, "leaderworkerset.x-k8s.io" | "disaggregatedset.x-k8s.io") || (group == "nvidia.com" && (plural.starts_with("dynamo") || plural.starts_with("podsnapshot")))
    });
    Ok(found)
}

async fn operated(client: &kube::Client) -> Result<Vec<CustomResourceDefinition>, ServiceError> {
    Ok(ours(client).await?.into_iter().filter(|definition| OPERATED.contains(&definition.spec.names.plural.as_str())).collect())
}

/// Objects of others would go with the definitions: then all stays.
async fn refuse_others(platform: &Platform, client: &kube::Client) -> anyhow::Result<()> {
    let definitions = operated(client).await?;
    let others = try_join_all(definitions.iter().map(|definition| of_others(platform, client, definition))).await?.concat();
    if others.is_empty() {
        return Ok(());
    }
    let message = format!("the charts stay, since others made with them: {}", others.join(", "));
    Err(fail(Kind::Conflict, message).hint("delete what is no longer wanted of it, then run nemo cleanup again").into())
}

/// Deletes every object that an operator has to let go, and waits until it has.
async fn objects(platform: &Platform, cx: &Cx, client: &kube::Client) -> anyhow::Result<()> {
    let definitions = operated(client).await?;
    let look = || {
        steady(async {
            for definition in &definitions {
                if let Some(left) = clear(client, definition).await? {
                    return Ok(Look::NotYet(left));
                }
            }
            Ok(Look::Ready(()))
        })
    };
    cx.until("Dynamo's and LeaderWorkerSet's objects to go", platform.deps.spec.wait.rollout, look).await
}

/// Its resource and the objects that there are of it.
async fn instances(client: &kube::Client, definition: &CustomResourceDefinition) -> Result<(ApiResource, Vec<PartialObjectMeta<DynamicObject>>), ServiceError> {
    let (group, kind) = (definition.spec.group.as_str(), definition.spec.names.kind.as_str());
    let version = definition.spec.versions.iter().find(|version| version.storage).map_or("", |version| version.name.as_str());
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    resource.plural.clone_from(&definition.spec.names.plural);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = all.list_metadata(&ListParams::default()).await.or_none(&format!("LIST {}", resource.plural))?.map(|list| list.items).unwrap_or_default();
    Ok((resource, found))
}

/// Titles of its objects that do not carry our mark. What a controller made goes with what it was made for.
async fn of_others(platform: &Platform, client: &kube::Client, definition: &CustomResourceDefinition) -> Result<Vec<String>, ServiceError> {
    let (resource, mut found) = instances(client, definition).await?;
    found.retain(|object| {
        let ours = object.labels().get(k8s::LABEL_MANAGED_BY).is_some_and(|by| by == k8s::MANAGER)
            && object.labels().get(k8s::LABEL_DEPLOYMENT).is_some_and(|name| *name == platform.deps.spec.name);
        !ours && object.owner_references().is_empty()
    });
    Ok(found.iter().map(|object| format!("{} {}/{}", resource.kind, object.namespace().unwrap_or_default(), object.name_any())).collect())
}

/// Deletes all objects of a definition; gives the title of one that is still there.
async fn clear(client: &kube::Client, definition: &CustomResourceDefinition) -> Result<Option<String>, ServiceError> {
    let (resource, found) = instances(client, definition).await?;
    for object in found.iter().filter(|object| object.metadata.deletion_timestamp.is_none()) {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &object.namespace().unwrap_or_default(), &resource);
        api.delete(&object.name_any(), &DeleteParams::default()).await.or_none(&format!("DELETE {}/{}", resource.plural, object.name_any()))?;
    }
    Ok(found.first().map(|object| format!("{} {}/{}", definition.spec.names.kind, object.namespace().unwrap_or_default(), object.name_any())))
}

async fn uninstall(platform: &Platform, cx: &Cx, client: &kube::Client, releases: &[Release]) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list_metadata(&ListParams::default().labels("nemo.dev/role=system").limit(1)).await.answer("LIST nodes")?;
    let images: Option<ImagesFacts> = cx.facts_of(StepId::Images).ok();
    let (false, Some(image)) = (nodes.items.is_empty(), images.as_ref().and_then(|images| stored(images, "helm").ok())) else {
        cx.note("helm has no node or image to run with: the releases go with the cluster");
        return Ok(());
    };
    let installer = Installer { namespace: NAMESPACE.into(), binding: platform.binding() };
    let mut documents = platform.objects().documents(vec![render::namespaces(&[NAMESPACE.to_owned()])?])?;
    documents.extend(platform.temporary().documents(vec![render::installer(&installer)?])?);
    platform.objects().apply(cx, client, &documents, platform.deps.spec.wait.rollout).await?;
    try_join_all(releases.iter().map(|release| uninstall_one(platform, cx, client, release, image.pinned()))).await?;
    Ok(())
}

async fn uninstall_one(platform: &Platform, cx: &Cx, client: &kube::Client, release: &Release, image: String) -> anyhow::Result<()> {
    let args = ["uninstall", &release.name, "--namespace", &release.namespace, "--ignore-not-found", "--wait", "--timeout", "10m"].map(str::to_owned).into();
    let job = HelmJob { job: format!("helm-remove-{}", release.name), namespace: NAMESPACE.into(), image, args, values: String::new(), registry_secret: "none".into() };
    run(platform, cx, client, &format!("removal of release {}", release.name), &job, false).await
}

/// Deletes the definitions, and with them what is left of their objects.
async fn definitions(client: &kube::Client) -> Result<(), ServiceError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in ours(client).await? {
        let name = definition.name_any();
        api.delete(&name, &DeleteParams::default()).await.or_none(&format!("DELETE customresourcedefinitions/{name}"))?;
    }
    Ok(())
}
