//! The steps that are made of Kubernetes objects, over an API server in memory: the cases of idempotence, each with the state file lost.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod api;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod common;
mod deployment;
mod gateway;
mod live;
mod platform;
mod prune;
mod rollback;
mod storage;
mod taken;

use deployment::Deployment;
use nemo::aws::Aws;
use nemo::engine::plan::Verdict;
use nemo::engine::step::StepId;
use nemo::error::Kind;
use serde_json::json;

/// No call of these steps goes to AWS.
fn nowhere() -> Aws {
    let config = aws_config::SdkConfig::builder().region(aws_config::Region::new("us-east-2")).behavior_version(aws_config::BehaviorVersion::latest()).build();
    Aws::of(config).unwrap()
}

/// What one step is put through.
struct Case {
    step: StepId,
    /// Path of an object that it makes first of all, and of one that may go missing.
    first: &'static str,
    missing: &'static str,
    objects: usize,
    change: fn(&mut Deployment),
}

const CASES: [Case; 2] = [
    Case {
        step: StepId::Storage,
        first: "/api/v1/namespaces/nemo",
        missing: "/api/v1/namespaces/nemo/persistentvolumeclaims/shared",
        objects: 3,
        change: |deployment| deployment.file_system = "fs-0123456789abcdef1".into(),
    },
    Case {
        step: StepId::Serve,
        first: "/api/v1/namespaces/nemo/services/frontend",
        missing: "/apis/apps/v1/namespaces/nemo/deployments/vllm-worker",
        // With the Secret that keeps them.
        objects: 9,
        change: |deployment| deployment.spec.serve.max_model_len = 4096,
    },
];

#[tokio::test]
async fn absent_is_made_and_twice_is_once() {
    for case in CASES {
        let deployment = Deployment::new(nowhere());
        assert!(matches!(deployment.verdict(case.step).await, Verdict::Create { .. }), "{}", case.step);
        assert_eq!(deployment.up(case.step).await.unwrap().len(), case.objects, "{}", case.step);
        assert_eq!(deployment.verdict(case.step).await, Verdict::Keep);
        assert_eq!(deployment.up(case.step).await.unwrap(), Vec::<String>::new(), "{}: nothing is written when all is there", case.step);
        assert_eq!(deployment.existing(case.step).await.len(), case.objects);
    }
}

#[tokio::test]
async fn changed_is_followed() {
    for case in CASES {
        let mut deployment = Deployment::new(nowhere());
        deployment.up(case.step).await.unwrap();
        (case.change)(&mut deployment);
        assert!(matches!(deployment.verdict(case.step).await, Verdict::Update { .. }), "{}", case.step);
        assert!(!deployment.up(case.step).await.unwrap().is_empty());
        assert_eq!(deployment.verdict(case.step).await, Verdict::Keep, "{}", case.step);
    }
    let mut moved = Deployment::new(nowhere());
    moved.up(StepId::Storage).await.unwrap();
    moved.file_system = "fs-0123456789abcdef1".into();
    let writes = moved.up(StepId::Storage).await.unwrap();
    assert!(writes.contains(&"DELETE persistentvolumes/nemo-shared".into()), "a volume cannot be pointed elsewhere, only made anew: {writes:?}");
    assert!(!writes.iter().any(|write| write.contains("namespaces/")), "the namespace stays: {writes:?}");
}

#[tokio::test]
async fn somebody_elses_is_refused_before_anything_is_written() {
    for case in CASES {
        let deployment = Deployment::new(nowhere());
        let name = case.first.rsplit('/').next().unwrap();
        deployment
            .api
            .put(case.first, json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": name, "namespace": "nemo", "labels": {"app.kubernetes.io/managed-by": "Helm"}}}));
        let Verdict::Refuse { kind, why, .. } = deployment.verdict(case.step).await else { panic!("{}: not refused", case.step) };
        assert_eq!(kind, Kind::Conflict);
        assert!(why.contains(name), "{why}");
        assert_eq!(deployment.up(case.step).await.unwrap_err().kind, Kind::Conflict);
        assert_eq!(deployment.remove(case.step).await, Vec::<String>::new(), "and is not taken away either");
        assert!(deployment.api.get(case.first).is_some());
    }
}

#[tokio::test]
async fn half_made_is_completed() {
    for case in CASES {
        let deployment = Deployment::new(nowhere());
        deployment.up(case.step).await.unwrap();
        deployment.api.take(case.missing).unwrap();
        assert!(matches!(deployment.verdict(case.step).await, Verdict::Wait { .. }), "{}", case.step);
        let writes = deployment.up(case.step).await.unwrap();
        assert_eq!(writes.len(), 1, "{}: only what is missing is made: {writes:?}", case.step);
    }
}

#[tokio::test]
async fn removed_twice_is_fine() {
    for case in CASES {
        let deployment = Deployment::new(nowhere());
        deployment.up(case.step).await.unwrap();
        assert_eq!(deployment.remove(case.step).await.len(), case.objects, "{}", case.step);
        assert_eq!(deployment.remove(case.step).await, Vec::<String>::new(), "what is gone is not deleted again");
        assert_eq!(deployment.existing(case.step).await, []);
    }
}

#[tokio::test]
async fn a_worker_that_crashes_is_told_with_its_last_lines() {
    let deployment = Deployment::new(nowhere());
    deployment.up(StepId::Serve).await.unwrap();
    let path = "/apis/apps/v1/namespaces/nemo/deployments/vllm-worker";
    let mut worker = deployment.api.get(path).unwrap();
    worker["status"]["readyReplicas"] = json!(0);
    deployment.api.put(path, worker);
    deployment.api.put(
        "/api/v1/namespaces/nemo/pods/vllm-worker-1",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vllm-worker-1", "namespace": "nemo", "labels": {"app.kubernetes.io/name": "vllm-worker"}},
            "status": {"phase": "Running", "containerStatuses": [{"name": "worker", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "lastState": {"terminated": {"exitCode": 1}}}]}}),
    );
    deployment.api.put("/api/v1/namespaces/nemo/pods/vllm-worker-1/log", json!("ValueError: no such model"));
    let Verdict::Update { why } = deployment.verdict(StepId::Serve).await else { panic!("it is broken") };
    assert!(why.contains("vllm-worker-1 crashes (exit code 1, 3 restarts)") && why.contains("no such model"), "{why}");
    // The cause is mended and the pod on its way out: its last words are no news of the one to come.
    let path = "/api/v1/namespaces/nemo/pods/vllm-worker-1";
    let mut pod = deployment.api.get(path).unwrap();
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-30T12:00:00Z");
    deployment.api.put(path, pod);
    let Verdict::Wait { why } = deployment.verdict(StepId::Serve).await else { panic!("it comes") };
    assert!(!why.contains("crashes"), "{why}");
}

#[tokio::test]
async fn what_somebody_changed_is_told_with_whom() {
    let deployment = Deployment::new(nowhere());
    deployment.up(StepId::Serve).await.unwrap();
    let path = "/apis/apps/v1/namespaces/nemo/deployments/vllm-worker";
    let mut worker = deployment.api.get(path).unwrap();
    let entry = |manager: &str, operation: &str, fields: serde_json::Value| json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    let restarted = entry("kubectl-rollout", "Update", json!({"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:restartedAt": {}}}}}}));
    worker["metadata"]["managedFields"] = json!([entry("nemo", "Apply", json!({"f:spec": {}})), restarted]);
    deployment.api.put(path, worker.clone());
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep, "a restart changes nothing of what we set");
    let mut spec = worker["spec"].as_object().unwrap().keys().map(|key| (format!("f:{key}"), json!({}))).collect::<serde_json::Map<_, _>>();
    spec.remove("f:replicas").unwrap();
    worker["metadata"]["managedFields"] = json!([entry("nemo", "Apply", json!({"f:spec": spec})), entry("kubectl-edit", "Update", json!({"f:spec": {"f:replicas": {}}}))]);
    deployment.api.put(path, worker);
    let Verdict::Update { why } = deployment.verdict(StepId::Serve).await else { panic!("it was changed") };
    assert!(why.contains("vllm-worker") && why.contains(".spec.replicas by kubectl-edit"), "{why}");
}
