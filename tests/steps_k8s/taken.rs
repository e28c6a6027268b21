//! Who waits for what another apply has taken away, and who asks why nothing comes.

use std::time::Duration;

use nemo::engine::clock;
use nemo::engine::step::StepId;
use nemo::error::{Failure, Kind};
use nemo::explain::cause;
use nemo::steps::explain::behind;
use serde_json::json;

use crate::deployment::Deployment;
use crate::nowhere;

const WORKER: &str = "/apis/apps/v1/namespaces/nemo/deployments/vllm-worker";
const GROUP: &str = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/nemo/leaderworkersets/vllm-worker";
const GRAPH: &str = "/apis/nvidia.com/v1beta1/namespaces/nemo/dynamographdeployments/nemo";
const OPERATOR: &str = "/apis/apps/v1/namespaces/dynamo-system/deployments/operator";

/// Applies, and lets another come in between once the worker is there and is waited for.
async fn interrupted(other: impl Fn(&Deployment)) -> Failure {
    let deployment = Deployment::new(nowhere());
    deployment.api.0.lock().unwrap().idle = true;
    let between = async {
        while deployment.api.get(WORKER).is_none() {
            clock::sleep(Duration::from_millis(5)).await;
        }
        other(&deployment);
    };
    let (done, ()) = tokio::join!(deployment.up(StepId::Serve), between);
    done.unwrap_err()
}

#[tokio::test]
async fn what_another_apply_took_away_is_not_waited_for() {
    let failure = interrupted(|deployment| {
        let worker = deployment.api.take(WORKER).unwrap();
        let metadata = json!({"name": "vllm-worker", "namespace": "nemo", "labels": worker["metadata"]["labels"]});
        deployment.api.put(GROUP, json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata}));
    })
    .await;
    assert_eq!((failure.kind, failure.step), (Kind::Conflict, Some("serve")));
    let words = "Deployment nemo/vllm-worker was applied here and is gone since; there is now, from another apply: LeaderWorkerSet nemo/vllm-worker";
    assert!(failure.message.contains(words) && failure.hints.concat().contains("nemo diff"), "{failure:?}");
    let failure = interrupted(|deployment| {
        let mut worker = deployment.api.get(WORKER).unwrap();
        worker["metadata"]["annotations"]["nemo.dev/inputs"] = "another".into();
        deployment.api.put(WORKER, worker);
    })
    .await;
    assert!(failure.kind == Kind::Conflict && failure.message.contains("was made from another set of manifests since"), "{failure:?}");
}

#[tokio::test]
async fn a_graph_that_nobody_makes_pods_of_is_told_with_its_operator() {
    let deployment = Deployment::new(nowhere());
    let asked = async || cause(&[], &behind(&deployment.api.client(), &deployment.spec).await.unwrap()).map(|cause| cause.sentence);
    assert_eq!(asked().await.as_deref(), Some("nothing serves: there is no workload of this deployment in the namespace nemo"));
    let labels = json!({"app.kubernetes.io/managed-by": "nemo", "nemo.dev/deployment": "nemo", "nemo.dev/step": "serve"});
    let graph = |metadata: serde_json::Value| json!({"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": metadata});
    deployment.api.put(GRAPH, graph(json!({"name": "nemo", "namespace": "nemo", "labels": labels})));
    let operator = |replicas: u32| {
        let metadata = json!({"name": "operator", "namespace": "dynamo-system", "labels": {"app.kubernetes.io/instance": "dynamo-platform"}});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas, "selector": {}, "template": {}},
            "status": {"replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas}})
    };
    deployment.api.put(OPERATOR, operator(0));
    let told = asked().await.unwrap();
    assert!(told.contains("DynamoGraphDeployment nemo/nemo is not ready: the operator has not looked at it yet; Dynamo's operator does not run: "), "{told}");
    assert!(told.contains("Deployment dynamo-system/operator is scaled to 0, so nobody makes its pods"), "{told}");
    let going = json!({"name": "nemo", "namespace": "nemo", "labels": labels, "deletionTimestamp": "2026-12-01T10:00:00Z", "finalizers": ["nvidia.com/finalizer"]});
    deployment.api.put(GRAPH, graph(going));
    let told = asked().await.unwrap();
    assert!(told.starts_with("DynamoGraphDeployment nemo/nemo is being deleted, held by the finalizer nvidia.com/finalizer of Dynamo's operator: "), "{told}");
    deployment.api.put(OPERATOR, operator(1));
    assert!(asked().await.unwrap().ends_with("Dynamo's operator works, and takes it off when it is done"));
}

/// It is ready, as Kubernetes counts, and nobody answers.
#[tokio::test]
async fn a_deployment_that_was_scaled_to_nothing_is_told() {
    let deployment = Deployment::new(nowhere());
    let labels = json!({"app.kubernetes.io/managed-by": "nemo", "nemo.dev/deployment": "nemo", "nemo.dev/step": "serve"});
    let worker = |replicas: u32| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "vllm-worker", "namespace": "nemo", "labels": labels},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
            "status": {"replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas}})
    };
    let asked = async || cause(&[], &behind(&deployment.api.client(), &deployment.spec).await.unwrap()).map(|cause| cause.sentence);
    deployment.api.put(WORKER, worker(1));
    assert_eq!(asked().await, None);
    deployment.api.put(WORKER, worker(0));
    assert!(asked().await.unwrap().starts_with("Deployment nemo/vllm-worker is not ready: it is scaled to 0, so it has no pods"));
}
