//! The step `storage` beside what others make in its namespace and with its claim.

use nemo::engine::plan::Verdict;
use nemo::engine::step::StepId;
use nemo::error::Kind;
use serde_json::json;

use crate::deployment::Deployment;
use crate::nowhere;

const NAMESPACE: &str = "/api/v1/namespaces/nemo";
const VOLUME: &str = "/api/v1/persistentvolumes/nemo-shared";

/// A pod that mounts the shared claim.
fn mounts(deployment: &Deployment, name: &str) -> String {
    let path = format!("{NAMESPACE}/pods/{name}");
    let claim = json!([{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]);
    deployment.api.put(
        &path,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "nemo"}, "spec": {"containers": [], "volumes": claim}, "status": {"phase": "Running"}}),
    );
    path
}

#[tokio::test]
async fn a_namespace_with_what_others_made_stays_and_they_are_named() {
    let deployment = Deployment::new(nowhere());
    deployment.up(StepId::Storage).await.unwrap();
    for name in ["kube-root-ca.crt", "bobs"] {
        deployment.api.put(
            &format!("{NAMESPACE}/configmaps/{name}"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "nemo", "uid": name, "managedFields": [{"manager": "kubectl-create"}]}}),
        );
    }
    let failures = deployment.try_remove(StepId::Storage).await;
    let [failure] = failures.as_slice() else { panic!("{failures:?}") };
    assert_eq!((failure.kind, failure.step), (Kind::Conflict, Some("storage")));
    assert!(failure.message.contains("namespace nemo stays") && failure.message.contains("ConfigMap bobs (by kubectl-create)"), "{}", failure.message);
    assert!(!failure.message.contains("kube-root-ca"), "{}", failure.message);
    assert!(deployment.api.get(NAMESPACE).is_some() && deployment.api.get(VOLUME).is_none(), "the rest went");
    deployment.api.take(&format!("{NAMESPACE}/configmaps/bobs")).unwrap();
    assert_eq!(deployment.remove(StepId::Storage).await, ["DELETE namespaces/nemo"]);
}

#[tokio::test]
async fn a_claim_that_is_mounted_is_refused_at_once_with_who_holds_it() {
    let mut deployment = Deployment::new(nowhere());
    deployment.up(StepId::Storage).await.unwrap();
    let pod = mounts(&deployment, "vllm-worker-1");
    // Somebody deleted the file system: there is another one now.
    deployment.file_system = "fs-0123456789abcdef1".into();
    let before = deployment.api.writes();
    let failure = deployment.up(StepId::Storage).await.unwrap_err();
    assert_eq!((failure.kind, failure.step), (Kind::Conflict, Some("storage")), "{}", failure.message);
    assert!(failure.message.contains("claim nemo/shared is mounted by Pod vllm-worker-1"), "{}", failure.message);
    assert!(failure.hints[0].contains("nemo cleanup --from weights"), "{:?}", failure.hints);
    let failures = deployment.try_remove(StepId::Storage).await;
    assert!(failures.len() == 1 && failures[0].kind == Kind::Conflict && failures[0].message.contains("vllm-worker-1"), "{failures:?}");
    assert_eq!(deployment.api.writes(), before, "nothing was touched");
    deployment.api.take(&pod).unwrap();
    deployment.up(StepId::Storage).await.unwrap();
    assert_eq!(deployment.verdict(StepId::Storage).await, Verdict::Keep);
}

#[tokio::test]
async fn a_volume_whose_claim_somebody_deleted_is_made_anew() {
    let deployment = Deployment::new(nowhere());
    deployment.up(StepId::Storage).await.unwrap();
    // The namespace was deleted, and the claim with it: the volume stays and remembers the claim by its uid.
    deployment.api.take(NAMESPACE).unwrap();
    deployment.api.take(&format!("{NAMESPACE}/persistentvolumeclaims/shared")).unwrap();
    let mut volume = deployment.api.get(VOLUME).unwrap();
    volume["status"] = json!({"phase": "Released"});
    volume["spec"]["claimRef"]["uid"] = json!("uid-of-before");
    deployment.api.put(VOLUME, volume);
    let writes = deployment.up(StepId::Storage).await.unwrap();
    assert_eq!(writes[0], "DELETE persistentvolumes/nemo-shared");
    assert_eq!(deployment.verdict(StepId::Storage).await, Verdict::Keep);
}

#[tokio::test]
async fn another_namespace_is_refused_while_the_deployment_stands() {
    let mut deployment = Deployment::new(nowhere());
    deployment.up(StepId::Storage).await.unwrap();
    deployment.spec.serve.namespace = "elsewhere".into();
    let Verdict::Refuse { kind, hint, .. } = deployment.verdict(StepId::Storage).await else { panic!("not refused") };
    assert!(kind == Kind::Conflict && hint.contains("nemo cleanup --from storage"), "{hint}");
    let before = deployment.api.writes();
    assert_eq!(deployment.up(StepId::Storage).await.unwrap_err().kind, Kind::Conflict);
    assert_eq!(deployment.api.writes(), before);
    deployment.remove(StepId::Storage).await;
    assert!(deployment.api.get(NAMESPACE).is_none(), "what stands is found by its labels");
    deployment.up(StepId::Storage).await.unwrap();
    assert_eq!(deployment.verdict(StepId::Storage).await, Verdict::Keep);
}
