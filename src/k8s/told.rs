//! What the cluster has to say about pods: conditions, reasons, warnings, logs, also of the run before; and objects as they stand, for the lint.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};

use super::error::Answer;
use super::ready::{container, exit, phase, ready, statuses};
use crate::error::ServiceError;

/// Log lines of a container that are read: the cause often stands far above the end.
const LINES: i64 = 400;

/// One pod, in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub name: String,
    pub node: Option<String>,
    pub phase: String,
    pub ready: bool,
    pub labels: BTreeMap<String, String>,
    /// The scheduler's words, reasons of containers, warnings: newest first.
    pub said: Vec<String>,
    /// Of all containers; the run before the present one first.
    pub log: Vec<String>,
}

/// Every pod of the namespace, and what else could not be made there: a pod that is refused exists only as an event.
pub async fn pods(client: &Client, namespace: &str) -> Result<Vec<Told>, ServiceError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let (list, warnings) = (ListParams::default(), ListParams::default().fields("type=Warning"));
    let (pods, warnings) = futures::try_join!(async { pods.list(&list).await.answer("LIST pods") }, async { events.list(&warnings).await.answer("LIST events") })?;
    let mut warnings = warnings.items;
    warnings.sort_by_key(|event| std::cmp::Reverse(event.last_timestamp.clone().map(|time| time.0).or(event.event_time.clone().map(|time| time.0))));
    let nodes = unwell(client).await?;
    let mut told = try_join_all(pods.items.iter().map(|pod| one(client, namespace, pod, &warnings, &nodes))).await?;
    told.extend(warnings.iter().filter(|event| event.reason.as_deref() == Some("FailedCreate")).map(refused));
    Ok(told)
}

async fn one(client: &Client, namespace: &str, pod: &Pod, warnings: &[Event], nodes: &BTreeMap<String, String>) -> Result<Told, ServiceError> {
    let (name, node) = (pod.name_any(), pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
    let ready = ready(pod);
    let mut said = Vec::new();
    let mut log = Vec::new();
    if !ready {
        said.extend(
            pod.status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .filter(|one| one.type_ == "PodScheduled" && one.status == "False")
                .filter_map(|one| one.message.clone()),
        );
        said.extend(pod.status.as_ref().and_then(|status| status.message.clone()));
        said.extend(node.as_ref().and_then(|node| nodes.get(node)).cloned());
        for status in statuses(pod) {
            if let Some(waiting) = status.state.as_ref().and_then(|state| state.waiting.as_ref()) {
                said.push(format!("{}: {}", waiting.reason.clone().unwrap_or_default(), waiting.message.clone().unwrap_or_default()));
            }
            let ended = [&status.state, &status.last_state].into_iter().flatten().filter_map(|state| state.terminated.as_ref()).find(|ended| ended.exit_code != 0);
            if let Some(ended) = ended {
                said.push(format!("container {} ended with {}: {}", status.name, exit(status), ended.reason.clone().unwrap_or_default()));
            }
            let of = container(namespace, pod, status);
            if status.restart_count > 0 {
                log.extend(of.last_lines(client, LINES, true).await?);
            }
            log.extend(of.last_lines(client, LINES, false).await?);
        }
        said.extend(warnings.iter().filter(|event| event.involved_object.name.as_deref() == Some(&name)).map(words));
    }
    let labels = pod.labels().clone();
    Ok(Told { name, node, phase: phase(pod).to_owned(), ready, labels, said, log })
}

/// A pod that was never made, by the event of what should have made it.
fn refused(event: &Event) -> Told {
    let object = &event.involved_object;
    let name = format!("of {} {}", object.kind.clone().unwrap_or_default(), object.name.clone().unwrap_or_default());
    Told { name, node: None, phase: "Pending".into(), ready: false, labels: BTreeMap::new(), said: vec![words(event)], log: Vec::new() }
}

fn words(event: &Event) -> String {
    format!("{}: {}", event.reason.clone().unwrap_or_default(), event.message.clone().unwrap_or_default())
}

/// Nodes that are not ready, with the kubelet's words.
async fn unwell(client: &Client) -> Result<BTreeMap<String, String>, ServiceError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.answer("LIST nodes")?.items;
    let of = |node: Node| {
        let condition = node.status.iter().flat_map(|status| status.conditions.iter().flatten()).find(|one| one.type_ == "Ready" && one.status != "True")?;
        Some((node.name_any(), format!("node {} is not ready: {}", node.name_any(), condition.message.clone().unwrap_or_default())))
    };
    Ok(nodes.into_iter().filter_map(of).collect())
}

/// What the lint looks at in a namespace. What another object made is left out: that one is looked at.
pub async fn objects(client: &Client, namespace: &str) -> Result<Vec<serde_json::Value>, ServiceError> {
    const KINDS: [(&str, &str, &str); 10] = [
        ("apps", "v1", "Deployment"),
        ("apps", "v1", "StatefulSet"),
        ("apps", "v1", "DaemonSet"),
        ("batch", "v1", "Job"),
        ("batch", "v1", "CronJob"),
        ("", "v1", "Pod"),
        ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
        ("nvidia.com", "v1beta1", "DynamoGraphDeployment"),
        ("grove.io", "v1alpha1", "PodCliqueSet"),
        ("node.k8s.io", "v1", "RuntimeClass"),
    ];
    let lists = try_join_all(KINDS.map(|(group, version, kind)| async move {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match kind {
            "RuntimeClass" => Api::all_with(client.clone(), &resource),
            _ => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        // A kind that the cluster does not serve has no objects.
        let found = api.list(&ListParams::default()).await.or_none(&format!("LIST {}", resource.plural))?;
        let with_type = |mut object: DynamicObject| {
            object.types = Some(kube::core::TypeMeta { api_version: resource.api_version.clone(), kind: kind.to_owned() });
            object.metadata.managed_fields = None;
            object
        };
        Ok::<_, ServiceError>(found.into_iter().flat_map(|list| list.items).map(with_type).collect::<Vec<_>>())
    }))
    .await?;
    let made = |object: &DynamicObject| object.owner_references().iter().any(|owner| owner.controller == Some(true));
    Ok(lists.into_iter().flatten().filter(|object| !made(object)).filter_map(|object| serde_json::to_value(object).ok()).collect())
}
