//! Is a workload ready, and if not, why: the scheduler's words, the image's, the last lines of a crash.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};

use super::error::Answer;
use super::logs::Container;
use crate::error::ServiceError;

/// So many restarts and what crashes is not taken for a slow start any more.
const RESTARTS: i32 = 3;
/// Log lines of a crash that are shown.
const LINES: i64 = 8;

/// How a workload stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Readiness {
    Ready,
    /// Not yet; what it waits for.
    Waiting(String),
    /// It will not become ready by waiting.
    Failed(String),
    Absent,
}

/// Every replica of the Deployment's present form is ready.
pub async fn deployment(client: &Client, namespace: &str, name: &str) -> Result<Readiness, ServiceError> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    match api.get_opt(name).await.answer(&format!("GET deployments/{name}"))? {
        Some(found) => of_deployment(client, found).await,
        None => Ok(Readiness::Absent),
    }
}

/// All Deployments of the cluster with these labels; the first that is not ready says why. None at all is [`Readiness::Absent`].
pub async fn deployments(client: &Client, labels: &str) -> Result<Readiness, ServiceError> {
    let api: Api<Deployment> = Api::all(client.clone());
    let mut all = Readiness::Absent;
    for found in api.list(&ListParams::default().labels(labels)).await.answer("LIST deployments")?.items {
        let name = found.name_any();
        all = match of_deployment(client, found).await? {
            Readiness::Ready => Readiness::Ready,
            Readiness::Waiting(why) => return Ok(Readiness::Waiting(format!("{name}: {why}"))),
            Readiness::Failed(why) => return Ok(Readiness::Failed(format!("{name}: {why}"))),
            Readiness::Absent => all,
        };
    }
    Ok(all)
}

pub(super) async fn of_deployment(client: &Client, found: Deployment) -> Result<Readiness, ServiceError> {
    let namespace = found.namespace().unwrap_or_default();
    let (spec, status) = (found.spec.unwrap_or_default(), found.status.unwrap_or_default());
    let wanted = spec.replicas.unwrap_or(1);
    let seen = status.observed_generation >= found.metadata.generation;
    let (updated, ready) = (status.updated_replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0));
    if seen && updated == wanted && ready == wanted && status.replicas.unwrap_or(0) == wanted {
        return Ok(Readiness::Ready);
    }
    let refused = status.conditions.iter().flatten().find(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True");
    if let Some(refused) = refused {
        return Ok(Readiness::Waiting(format!("no pod is made: {}", refused.message.clone().unwrap_or_default())));
    }
    pods(client, &namespace, &spec.selector, &format!("{ready} of {wanted} pods ready")).await
}

/// Every group of the LeaderWorkerSet is ready. Only the condition's status counts: its reason stays as it was when a group is lost.
pub async fn leader_worker_set(client: &Client, namespace: &str, name: &str) -> Result<Readiness, ServiceError> {
    let Some(found) = custom(client, "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", namespace, name).await? else { return Ok(Readiness::Absent) };
    let number = |path: &str| found.data.pointer(path).and_then(serde_json::Value::as_i64).unwrap_or(0);
    let (wanted, ready, updated) = (number("/spec/replicas"), number("/status/readyReplicas"), number("/status/updatedReplicas"));
    if condition(&found, "Available").is_some_and(|condition| condition["status"] == "True") && ready == wanted && updated == wanted {
        return Ok(Readiness::Ready);
    }
    let selector = LabelSelector { match_labels: Some([("leaderworkerset.sigs.k8s.io/name".to_owned(), name.to_owned())].into()), ..LabelSelector::default() };
    pods(client, namespace, &selector, &format!("{ready} of {wanted} groups ready")).await
}

/// Dynamo's operator says that all of the DynamoGraphDeployment's present form is ready.
pub async fn graph(client: &Client, namespace: &str, name: &str) -> Result<Readiness, ServiceError> {
    let Some(found) = custom(client, "nvidia.com", "v1beta1", "DynamoGraphDeployment", namespace, name).await? else { return Ok(Readiness::Absent) };
    let ready = condition(&found, "Ready").cloned().unwrap_or_default();
    if ready["status"] == "True" && ready["observedGeneration"].as_i64() == found.metadata.generation {
        return Ok(Readiness::Ready);
    }
    if ready["reason"] == "no_multinode_orchestrator_available" {
        return Ok(Readiness::Failed(ready["message"].as_str().unwrap_or_default().to_owned()));
    }
    let words = ["reason", "message"].map(|key| ready[key].as_str().unwrap_or_default().to_owned()).join(": ");
    let words = if words == ": " { "the operator has not looked at it yet".to_owned() } else { words };
    let selector = LabelSelector { match_labels: Some([("nvidia.com/dynamo-graph-deployment-name".to_owned(), name.to_owned())].into()), ..LabelSelector::default() };
    pods(client, namespace, &selector, &words).await
}

async fn custom(client: &Client, group: &str, version: &str, kind: &str, namespace: &str, name: &str) -> Result<Option<DynamicObject>, ServiceError> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    api.get_opt(name).await.answer(&format!("GET {}/{name}", resource.plural))
}

fn condition<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a serde_json::Value> {
    object.data.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == name)
}

/// Every node that should run the DaemonSet runs it. One that no node should run is ready.
pub async fn daemon_set(client: &Client, namespace: &str, name: &str) -> Result<Readiness, ServiceError> {
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let Some(found) = api.get_opt(name).await.answer(&format!("GET daemonsets/{name}"))? else { return Ok(Readiness::Absent) };
    let (spec, status) = (found.spec.unwrap_or_default(), found.status.unwrap_or_default());
    let wanted = status.desired_number_scheduled;
    if status.observed_generation >= found.metadata.generation && status.number_ready == wanted && status.updated_number_scheduled.unwrap_or(0) == wanted {
        return Ok(Readiness::Ready);
    }
    pods(client, namespace, &spec.selector, &format!("{} of {wanted} pods ready", status.number_ready)).await
}

/// The Job is complete.
pub async fn job(client: &Client, namespace: &str, name: &str) -> Result<Readiness, ServiceError> {
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    let Some(found) = api.get_opt(name).await.answer(&format!("GET jobs/{name}"))? else { return Ok(Readiness::Absent) };
    let status = found.status.unwrap_or_default();
    let is = |what: &str| status.conditions.iter().flatten().find(|condition| condition.type_ == what && condition.status == "True");
    if is("Complete").is_some() {
        return Ok(Readiness::Ready);
    }
    let (succeeded, active) = (status.succeeded.unwrap_or(0), status.active.unwrap_or(0));
    let selector = found.spec.unwrap_or_default().selector.unwrap_or_default();
    if let Some(failed) = is("Failed") {
        let why = failed.message.clone().unwrap_or_default();
        let last = last_words(client, namespace, &selector).await?;
        return Ok(Readiness::Failed(format!("{why}{last}")));
    }
    let failed = status.failed.unwrap_or(0);
    if active == 0 && failed > 0 {
        let last = last_words(client, namespace, &selector).await?;
        return Ok(Readiness::Waiting(format!("{failed} pods failed, another is to come{last}")));
    }
    Ok(match pods(client, namespace, &selector, &format!("{active} pods at work, {succeeded} done")).await? {
        // The Job itself says when it has given up: until then it makes another pod.
        Readiness::Failed(why) => Readiness::Waiting(why),
        other => other,
    })
}

/// The last log lines of the pod that failed last.
async fn last_words(client: &Client, namespace: &str, selector: &LabelSelector) -> Result<String, ServiceError> {
    let mut failed: Vec<Pod> = list(client, namespace, selector).await?.into_iter().filter(|pod| phase(pod) == "Failed").collect();
    failed.sort_by_key(|pod| pod.metadata.creation_timestamp.clone().map(|time| time.0));
    let Some(pod) = failed.last() else { return Ok(String::new()) };
    let Some(ended) = statuses(pod).find(|status| status.state.as_ref().and_then(|state| state.terminated.as_ref()).is_some_and(|ended| ended.exit_code != 0)) else {
        let why = pod.status.as_ref().and_then(|status| status.message.clone()).unwrap_or_default();
        return Ok(format!(": pod {}: {why}", pod.name_any()));
    };
    let lines = container(namespace, pod, ended).last_lines(client, LINES, false).await?;
    Ok(format!(": pod {} ended with {}{}", pod.name_any(), exit(ended), quoted(&lines)))
}

/// The pods of a workload. One that is being deleted says nothing about those that take its place.
async fn list(client: &Client, namespace: &str, selector: &LabelSelector) -> Result<Vec<Pod>, ServiceError> {
    let labels: Vec<String> = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut pods = api.list(&ListParams::default().labels(&labels.join(","))).await.answer("LIST pods")?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(pods)
}

/// Why the pods of a workload are not ready, by the first that is not.
async fn pods(client: &Client, namespace: &str, selector: &LabelSelector, counts: &str) -> Result<Readiness, ServiceError> {
    let pods = list(client, namespace, selector).await?;
    let Some(pod) = pods.iter().find(|pod| !ready(pod) && !matches!(phase(pod), "Succeeded" | "Failed")) else {
        return Ok(Readiness::Waiting(counts.to_owned()));
    };
    let name = pod.name_any();
    Ok(match why(pod) {
        Why::Crash { status, restarts } => {
            // Between two runs the log of the last one is the previous one's.
            let between = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
            let lines = container(namespace, pod, status).last_lines(client, LINES, between).await?;
            let words = format!("pod {name} crashes ({}, {restarts} restarts){}", exit(status), quoted(&lines));
            if restarts >= RESTARTS { Readiness::Failed(words) } else { Readiness::Waiting(words) }
        }
        Why::Never(words) => Readiness::Failed(format!("pod {name}: {words}")),
        Why::Creating => {
            let event = warning(client, namespace, &name).await?;
            Readiness::Waiting(format!("{counts}; pod {name}: {}", event.unwrap_or_else(|| "its containers are being made".into())))
        }
        Why::Waits(words) => Readiness::Waiting(format!("{counts}; pod {name}: {words}")),
    })
}

/// The pod is ready to serve.
pub fn ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(super) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(super) fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten()))
}

pub(super) fn container(namespace: &str, pod: &Pod, status: &ContainerStatus) -> Container {
    Container { namespace: namespace.to_owned(), pod: pod.name_any(), container: status.name.clone() }
}

enum Why<'a> {
    Crash { status: &'a ContainerStatus, restarts: i32 },
    Never(String),
    Creating,
    Waits(String),
}

fn why(pod: &Pod) -> Why<'_> {
    let unscheduled = pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unscheduled {
        return Why::Waits(condition.message.clone().unwrap_or_else(|| "not scheduled yet".into()));
    }
    for status in statuses(pod) {
        let state = status.state.clone().unwrap_or_default();
        if let Some(waiting) = state.waiting {
            let (reason, message) = (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default());
            match reason.as_str() {
                "CrashLoopBackOff" => return Why::Crash { status, restarts: status.restart_count },
                "ErrImagePull" | "ImagePullBackOff" if ["not found", "manifest unknown", "no match for platform"].iter().any(|words| message.contains(words)) => {
                    return Why::Never(format!("image {} cannot be pulled: {message}", status.image));
                }
                "InvalidImageName" | "CreateContainerConfigError" => return Why::Never(format!("{reason}: {message}")),
                "ContainerCreating" | "PodInitializing" | "" => {}
                _ => return Why::Waits(format!("{reason}: {message}")),
            }
        } else if state.terminated.is_some_and(|ended| ended.exit_code != 0) {
            return Why::Crash { status, restarts: status.restart_count };
        }
    }
    if phase(pod) == "Running" { Why::Waits("runs, and is not ready yet".into()) } else { Why::Creating }
}

/// `exit code 1`, or by what it was ended.
pub(super) fn exit(status: &ContainerStatus) -> String {
    let ended = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| state.as_ref().and_then(|state| state.terminated.clone());
    match ended(&status.state).or_else(|| ended(&status.last_state)) {
        Some(ended) if ended.reason.as_deref() == Some("OOMKilled") => "exit code 137, out of memory".into(),
        Some(ended) => format!("exit code {}", ended.exit_code),
        None => "no exit code".into(),
    }
}

fn quoted(lines: &[String]) -> String {
    if lines.is_empty() { "; it wrote no log".into() } else { format!("; its last lines:\n    {}", lines.join("\n    ")) }
}

/// The last warning about a pod: a mount that fails is told nowhere else.
async fn warning(client: &Client, namespace: &str, pod: &str) -> Result<Option<String>, ServiceError> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let fields = format!("involvedObject.kind=Pod,involvedObject.name={pod},type=Warning");
    let mut events = api.list(&ListParams::default().fields(&fields)).await.answer("LIST events")?.items;
    events.sort_by_key(|event| event.last_timestamp.clone().map(|time| time.0).or(event.event_time.clone().map(|time| time.0)));
    Ok(events.pop().map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": status})).unwrap()
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 4,
            "state": {"waiting": {"reason": reason, "message": message}}, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]})
    }

    #[test]
    fn reasons_are_the_clusters_own_words() {
        let words = |status: Value| match why(&pod(status)) {
            Why::Crash { status, restarts } => format!("crash: {}, {restarts}", exit(status)),
            Why::Never(words) => format!("never: {words}"),
            Why::Creating => "creating".into(),
            Why::Waits(words) => format!("waits: {words}"),
        };
        let unscheduled =
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."}]});
        assert_eq!(words(unscheduled), "waits: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.");
        assert_eq!(words(waiting("CrashLoopBackOff", "back-off 10s")), "crash: exit code 137, out of memory, 4");
        assert_eq!(words(waiting("ImagePullBackOff", "x: not found")), "never: image i cannot be pulled: x: not found");
        assert_eq!(words(waiting("ErrImagePull", "403 Forbidden")), "waits: ErrImagePull: 403 Forbidden");
        assert_eq!(words(waiting("ContainerCreating", "")), "creating");
        assert_eq!(words(json!({"phase": "Running"})), "waits: runs, and is not ready yet");
    }
}
