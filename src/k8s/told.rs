//! What the cluster has to say about pods: conditions, reasons, warnings, logs, also of the run before; and objects as they stand, for the lint.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};

use super::error::Answer;
use super::ready::{container, exit, phase, ready, statuses};
use super::room;
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
    /// A container that ended with an error: its exit code and what it wrote last.
    pub ended: Option<String>,
    /// A container that has never been killed and has not started yet: how long it may still take.
    pub loading: Option<String>,
    /// Where it could run, and which pods are there already; none where no node could ever give what it asks for.
    pub held: Option<String>,
}

/// Every pod of the namespace, and what else could not be made there: a pod that is refused exists only as an event.
pub async fn pods(client: &Client, namespace: &str, now: Timestamp) -> Result<Vec<Told>, ServiceError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let list = ListParams::default();
    let (pods, events) = futures::try_join!(async { pods.list(&list).await.answer("LIST pods") }, async { events.list(&list).await.answer("LIST events") })?;
    let mut warnings = events.items;
    warnings.retain(|event| event.type_.as_deref() == Some("Warning") || killed(event));
    warnings.sort_by_key(|event| std::cmp::Reverse(last(event)));
    let nodes = Api::<Node>::all(client.clone()).list(&list).await.answer("LIST nodes")?.items;
    // Only who finds no room needs to know what others hold, in whichever namespace.
    let others = match pods.items.iter().any(|pod| !room::short(pod).is_empty()) {
        true => Api::<Pod>::all(client.clone()).list(&list).await.answer("LIST pods")?.items,
        false => Vec::new(),
    };
    let unwell = unwell(&nodes);
    let mut told = try_join_all(pods.items.iter().map(|pod| one(client, namespace, pod, &warnings, &unwell, now))).await?;
    for (told, pod) in told.iter_mut().zip(&pods.items) {
        told.held = room::held(pod, &others, &nodes);
    }
    told.extend(warnings.iter().filter(|event| event.reason.as_deref() == Some("FailedCreate")).map(refused));
    Ok(told)
}

async fn one(client: &Client, namespace: &str, pod: &Pod, warnings: &[Event], nodes: &BTreeMap<String, String>, now: Timestamp) -> Result<Told, ServiceError> {
    let (name, node) = (pod.name_any(), pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
    let ready = ready(pod);
    let (mut said, mut log, mut crash, mut loads) = (Vec::new(), Vec::new(), None, None);
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
            let of = container(namespace, pod, status);
            let before = if status.restart_count > 0 { of.last_lines(client, LINES, true).await? } else { Vec::new() };
            let present = of.last_lines(client, LINES, false).await?;
            let ended = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| state.as_ref().and_then(|state| state.terminated.clone()).filter(|ended| ended.exit_code != 0);
            if let Some((ended, lines)) = ended(&status.state).map(|ended| (ended, &present)).or_else(|| ended(&status.last_state).map(|ended| (ended, &before))) {
                let words = format!("container {} ended with {}", status.name, exit(status));
                said.push(format!("{words}: {}", ended.reason.unwrap_or_default()));
                let line = lines.iter().rev().find(|line| !line.trim().is_empty()).map_or("it wrote no log".to_owned(), |line| format!("its last line: {}", line.trim()));
                crash = crash.or(Some(format!("{words}; {line}")));
            }
            log.extend(before.into_iter().chain(present));
            loads = loads.or_else(|| loading(pod, status, now));
        }
        said.extend(warnings.iter().filter(|event| about(event, pod)).map(words));
    }
    let labels = pod.labels().clone();
    Ok(Told { name, node, phase: phase(pod).to_owned(), ready, labels, said, log, ended: crash, loading: loads, held: None })
}

/// A container that runs for the first time, and whose startup probe has not given up: with each try that fails the kubelet warns, and nothing is wrong.
fn loading(pod: &Pod, status: &ContainerStatus, now: Timestamp) -> Option<String> {
    let probe = pod.spec.as_ref()?.containers.iter().find(|one| one.name == status.name)?.startup_probe.as_ref()?;
    let begun = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
    let of = |number: Option<i32>, default| i64::from(number.unwrap_or(default));
    let budget = of(probe.initial_delay_seconds, 0) + of(probe.period_seconds, 10) * of(probe.failure_threshold, 3);
    let since = now.duration_since(begun).as_secs();
    let first = status.restart_count == 0 && status.started != Some(true);
    (first && since < budget).then(|| format!("container {} began {since} s ago, its startup probe gives it {} s more", status.name, budget - since))
}

/// The kubelet's word that it ends a container for its startup probe; its type is not Warning.
fn killed(event: &Event) -> bool {
    event.reason.as_deref() == Some("Killing") && event.message.as_deref().is_some_and(|words| words.contains("failed startup probe"))
}

fn last(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    series.max(event.last_timestamp.as_ref().map(|time| time.0)).or(event.event_time.as_ref().map(|time| time.0))
}

/// Is it of this pod, and not of one of the same name before it, nor from before it was placed?
fn about(event: &Event, pod: &Pod) -> bool {
    let object = &event.involved_object;
    let same = object.name == pod.metadata.name && (object.uid.is_none() || object.uid == pod.metadata.uid);
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let placed = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "True").find_map(|one| one.last_transition_time.as_ref()).map(|time| time.0);
    let has_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let old = last(event).zip(placed).is_some_and(|(last, placed)| last < placed) || (has_node && event.reason.as_deref() == Some("FailedScheduling"));
    same && !old
}

/// A pod that was never made, by the event of what should have made it.
fn refused(event: &Event) -> Told {
    let object = &event.involved_object;
    let name = format!("of {} {}", object.kind.clone().unwrap_or_default(), object.name.clone().unwrap_or_default());
    Told { name, node: None, phase: "Pending".into(), ready: false, labels: BTreeMap::new(), said: vec![words(event)], log: Vec::new(), ended: None, loading: None, held: None }
}

fn words(event: &Event) -> String {
    format!("{}: {}", event.reason.clone().unwrap_or_default(), event.message.clone().unwrap_or_default())
}

/// Nodes that are not ready, with the kubelet's words.
fn unwell(nodes: &[Node]) -> BTreeMap<String, String> {
    let of = |node: &Node| {
        let condition = node.status.iter().flat_map(|status| status.conditions.iter().flatten()).find(|one| one.type_ == "Ready" && one.status != "True")?;
        Some((node.name_any(), format!("node {} is not ready: {}", node.name_any(), condition.message.clone().unwrap_or_default())))
    };
    nodes.iter().filter_map(of).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(container: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "w", "uid": "1"},
            "spec": {"nodeName": "n", "containers": [{"name": "worker", "startupProbe": {"periodSeconds": 5, "failureThreshold": 802}}]},
            "status": {
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-12-01T10:00:00Z"}],
                "containerStatuses": [container],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_container_loads_until_its_budget_is_spent() {
        let status = |started: bool, restarts: i32, state: Value| json!({"name": "worker", "image": "i", "imageID": "", "ready": false, "started": started, "restartCount": restarts, "state": state});
        let running = || json!({"running": {"startedAt": "2026-12-01T10:00:00Z"}});
        let at = |seconds: i64, container: Value| {
            let pod = pod(container);
            let now = "2026-12-01T10:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds);
            statuses(&pod).find_map(|status| loading(&pod, status, now))
        };
        assert_eq!(at(19, status(false, 0, running())).as_deref(), Some("container worker began 19 s ago, its startup probe gives it 3991 s more"));
        assert_eq!(at(4010, status(false, 0, running())), None);
        assert_eq!(at(19, status(false, 1, running())), None);
        assert_eq!(at(19, status(true, 0, running())), None);
        assert_eq!(at(19, status(false, 0, json!({"terminated": {"exitCode": 3}}))), None);
    }

    #[test]
    fn events_count_that_are_of_this_pod_and_not_older_than_its_place() {
        let pod = pod(json!({"name": "worker", "image": "i", "imageID": "", "ready": false, "restartCount": 0}));
        let event = |uid: &str, reason: &str, last: &str| -> Event {
            serde_json::from_value(json!({"metadata": {}, "involvedObject": {"name": "w", "uid": uid}, "reason": reason, "lastTimestamp": last})).unwrap()
        };
        let later = "2026-12-01T10:00:05Z";
        let cases =
            [("1", "Unhealthy", later, true), ("2", "Unhealthy", later, false), ("1", "FailedMount", "2026-12-01T09:59:59Z", false), ("1", "FailedScheduling", later, false)];
        for (uid, reason, last, counts) in cases {
            assert_eq!(about(&event(uid, reason, last), &pod), counts, "{uid} {reason} {last}");
        }
    }
}
