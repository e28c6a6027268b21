//! What the settings ask for no more: it goes, before what comes instead, and nothing else does.

use nemo::config::{Form, FormSetting, Topology};
use nemo::engine::plan::Verdict;
use nemo::engine::step::StepId;
use serde_json::{Value, json};

use crate::deployment::Deployment;
use crate::nowhere;

const WORKER: &str = "/apis/apps/v1/namespaces/nemo/deployments/vllm-worker";

fn labelled(kind: &str, name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "nemo", "labels": labels}})
}

fn ours(deployment: &str, step: &str) -> Value {
    json!({"app.kubernetes.io/managed-by": "nemo", "nemo.dev/deployment": deployment, "nemo.dev/step": step})
}

#[tokio::test]
async fn another_form_takes_the_place_of_the_one_before() {
    let mut deployment = Deployment::new(nowhere());
    deployment.up(StepId::Serve).await.unwrap();
    let made = json!([{"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "name": "x", "uid": "1", "controller": true}]);
    let mut of_a_controller = labelled("Service", "made", &ours("nemo", "serve"));
    of_a_controller["metadata"]["ownerReferences"] = made;
    let others = [
        ("/apis/apps/v1/namespaces/nemo/deployments/vllm-theirs", labelled("Deployment", "vllm-theirs", &json!({}))),
        ("/api/v1/namespaces/nemo/services/of-another", labelled("Service", "of-another", &ours("other", "serve"))),
        ("/api/v1/namespaces/nemo/services/of-bench", labelled("Service", "of-bench", &ours("nemo", "bench"))),
        ("/api/v1/namespaces/nemo/services/made", of_a_controller),
    ];
    for (path, object) in &others {
        deployment.api.put(path, object.clone());
    }
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep, "what others made is nothing that we want to be rid of");
    deployment.spec.serve.form = FormSetting::As(Form::DgdV1beta1);
    let Verdict::Update { why } = deployment.verdict(StepId::Serve).await else { panic!("the form has changed") };
    assert!(why.contains("removed first: PodDisruptionBudget nemo/vllm-worker, Deployment nemo/frontend, Deployment nemo/vllm-worker"), "{why}");
    assert!(why.contains("nothing serves until the new workers have loaded") && !why.contains("of-"), "{why}");
    let writes = deployment.up(StepId::Serve).await.unwrap();
    let (deleted, applied): (Vec<_>, Vec<_>) = writes.iter().partition(|write| write.starts_with("DELETE"));
    assert_eq!((deleted.len(), applied.len()), (8, 3), "{writes:?}");
    assert_eq!(writes[..2], ["DELETE deployments/frontend", "DELETE deployments/vllm-worker"], "pods first");
    assert!(writes[8..].iter().all(|write| write.starts_with("PATCH")), "nothing new comes before the old is gone: {writes:?}");
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep);
    for (path, object) in &others {
        assert_eq!(deployment.api.get(path).as_ref(), Some(object));
    }
    deployment.spec.serve.form = FormSetting::As(Form::DgdV1alpha1);
    assert!(!deployment.up(StepId::Serve).await.unwrap().iter().any(|write| write.starts_with("DELETE")), "one object, in another version of its kind");
}

#[tokio::test]
async fn another_topology_takes_the_workers_of_the_one_before_away() {
    let mut deployment = Deployment::new(nowhere());
    deployment.up(StepId::Serve).await.unwrap();
    deployment.spec.serve.topology = Topology::Disaggregated;
    deployment.spec.gpu.nodes = 2;
    let writes = deployment.up(StepId::Serve).await.unwrap();
    let deleted: Vec<_> = writes.iter().filter(|write| write.starts_with("DELETE")).collect();
    assert_eq!(deleted, ["DELETE deployments/vllm-worker", "DELETE poddisruptionbudgets/vllm-worker", "DELETE services/vllm-worker-system"], "{writes:?}");
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep);
}

#[tokio::test]
async fn nothing_goes_when_what_comes_instead_would_be_refused() {
    let mut deployment = Deployment::new(nowhere());
    deployment.up(StepId::Serve).await.unwrap();
    let theirs = "/api/v1/namespaces/nemo/services/vllm-worker-system";
    deployment.api.put(theirs, labelled("Service", "vllm-worker-system", &json!({})));
    deployment.spec.serve.topology = Topology::PipelineParallel;
    deployment.spec.gpu.nodes = 2;
    assert!(matches!(deployment.verdict(StepId::Serve).await, Verdict::Refuse { .. }));
    deployment.up(StepId::Serve).await.unwrap_err();
    assert!(deployment.api.get(WORKER).is_some());
}

#[tokio::test]
async fn a_change_of_the_workers_says_that_nothing_serves_meanwhile() {
    let mut deployment = Deployment::new(nowhere());
    deployment.up(StepId::Serve).await.unwrap();
    deployment.spec.serve.max_model_len = 4096;
    let Verdict::Update { why } = deployment.verdict(StepId::Serve).await else { panic!("settings have changed") };
    assert!(why.contains("vllm-worker was made from other settings; nothing serves until"), "{why}");
}
