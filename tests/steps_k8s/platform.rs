//! The step `platform`: add-ons in the AWS emulator, charts by a helm that ends at once.

use nemo::aws::Aws;
use nemo::config::AddonPin;
use nemo::engine::plan::Verdict;
use nemo::engine::step::StepId;
use serde_json::json;

use crate::common::Emulator;
use crate::deployment::Deployment;

/// AWS's latencies are divided by it.
const FACTOR: u32 = 5000;

async fn deployment(emulator: &Emulator) -> Deployment {
    let mut deployment = Deployment::new(Aws::of(emulator.sdk().await).unwrap());
    deployment.pins.zone_id = "use2-az2".into();
    deployment.pins.zone = "us-east-2b".into();
    for (name, version) in [
        ("vpc-cni", "v1.20.1-eksbuild.1"),
        ("kube-proxy", "v1.35.0-eksbuild.1"),
        ("eks-pod-identity-agent", "v1.3.8-eksbuild.2"),
        ("coredns", "v1.12.3-eksbuild.1"),
        ("aws-ebs-csi-driver", "v1.48.0-eksbuild.1"),
        ("aws-fsx-csi-driver", "v1.9.0-eksbuild.1"),
    ] {
        deployment.pins.addons.insert(name.into(), AddonPin { version: version.into() });
    }
    deployment.make_cluster().await;
    deployment
}

fn of<'a>(writes: &'a [String], what: &str) -> Vec<&'a str> {
    writes.iter().map(String::as_str).filter(|write| write.contains(what)).collect()
}

#[tokio::test]
async fn is_made_once_and_nobody_keeps_the_installers_rights() {
    let emulator = Emulator::start(FACTOR, None).await;
    let deployment = deployment(&emulator).await;
    assert!(matches!(deployment.verdict(StepId::Platform).await, Verdict::Create { .. }));
    let writes = deployment.up(StepId::Platform).await.unwrap();
    assert_eq!(of(&writes, "PATCH jobs/helm-").len(), 4, "{writes:?}");
    assert_eq!(emulator.writes().await.of("eks:CreateAddon"), 3 + 3, "those of nodes by the step cluster");
    for left in ["/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nemo-helm", "/api/v1/namespaces/nemo-system/secrets/registry"] {
        assert!(deployment.api.get(left).is_none(), "{left}");
    }
    let aws_writes = emulator.writes().await;
    assert_eq!(deployment.verdict(StepId::Platform).await, Verdict::Keep);
    assert_eq!(deployment.up(StepId::Platform).await.unwrap(), Vec::<String>::new());
    assert_eq!(emulator.writes().await, aws_writes);
    assert_eq!(deployment.existing(StepId::Platform).await.len(), 3 + 4 + 3, "add-ons, releases, namespaces");

    // Helm needs a node to run on.
    deployment.api.put("/api/v1/nodes/a", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"nemo.dev/role": "system"}}}));
    deployment.remove(StepId::Platform).await;
    assert_eq!(deployment.existing(StepId::Platform).await, []);
    assert_eq!(emulator.writes().await.of("eks:DeleteAddon"), 3);
    assert!(deployment.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/dynamoworkermetadatas.nvidia.com").is_none(), "definitions that helm leaves go, too");
    assert_eq!(deployment.remove(StepId::Platform).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_namespace_with_what_others_made_stays_and_the_rest_goes() {
    let emulator = Emulator::start(FACTOR, None).await;
    let deployment = deployment(&emulator).await;
    deployment.up(StepId::Platform).await.unwrap();
    deployment.api.put("/api/v1/nodes/a", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"nemo.dev/role": "system"}}}));
    for (namespace, name) in [("dynamo-system", "webhook-server-cert"), ("lws-system", "bobs")] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}});
        deployment.api.put(&format!("/api/v1/namespaces/{namespace}/secrets/{name}"), secret);
    }
    let failures = deployment.try_remove(StepId::Platform).await;
    let [failure] = failures.as_slice() else { panic!("{failures:?}") };
    assert_eq!(failure.kind, nemo::error::Kind::Conflict);
    assert!(failure.message.contains("namespace lws-system stays") && failure.message.contains("Secret bobs"), "{}", failure.message);
    let left: Vec<String> = deployment.existing(StepId::Platform).await.into_iter().map(|resource| resource.id).collect();
    assert_eq!(left, ["lws-system"], "what the operator made on its own keeps no namespace; the add-ons went, too");
}

#[tokio::test]
async fn the_charts_stay_while_others_have_objects_of_theirs() {
    let emulator = Emulator::start(FACTOR, None).await;
    let deployment = deployment(&emulator).await;
    deployment.up(StepId::Platform).await.unwrap();
    let names = json!({"kind": "LeaderWorkerSet", "plural": "leaderworkersets"});
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/leaderworkersets.leaderworkerset.x-k8s.io";
    deployment.api.put(
        crd,
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "leaderworkersets.leaderworkerset.x-k8s.io"},
            "spec": {"group": "leaderworkerset.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [{"name": "v1", "served": true, "storage": true}]}}),
    );
    let put = |namespace: &str, name: &str, metadata: serde_json::Value| {
        let mut object = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata});
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(namespace);
        deployment.api.put(&format!("/apis/leaderworkerset.x-k8s.io/v1/namespaces/{namespace}/leaderworkersets/{name}"), object);
    };
    put("bob", "his", json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}));
    put("nemo", "ours", json!({"labels": {"app.kubernetes.io/managed-by": "nemo", "nemo.dev/deployment": "nemo"}}));
    put("bob", "made", json!({"ownerReferences": [{"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "name": "g", "uid": "u"}]}));
    let before = deployment.api.writes().len();
    let failures = deployment.try_remove(StepId::Platform).await;
    let [failure] = failures.as_slice() else { panic!("{failures:?}") };
    assert_eq!(failure.kind, nemo::error::Kind::Conflict);
    assert!(failure.message.ends_with("others made with them: LeaderWorkerSet bob/his"), "{}", failure.message);
    assert_eq!(deployment.api.writes().len(), before, "nothing is touched");
    assert!(deployment.api.get(crd).is_some());
}

#[tokio::test]
async fn goes_on_where_a_kill_left_it() {
    let emulator = Emulator::start(FACTOR, None).await;
    let deployment = deployment(&emulator).await;
    deployment.up(StepId::Platform).await.unwrap();
    // Killed before the rights were taken back.
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "nemo-helm",
        "labels": {"app.kubernetes.io/managed-by": "nemo", "nemo.dev/deployment": "nemo", "nemo.dev/step": "platform"}}});
    deployment.api.put("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nemo-helm", binding);
    assert!(matches!(deployment.verdict(StepId::Platform).await, Verdict::Wait { .. }));
    assert_eq!(deployment.up(StepId::Platform).await.unwrap(), ["DELETE clusterrolebindings/nemo-helm"]);
    // Killed while helm installed: its lock stays.
    let path = "/api/v1/namespaces/lws-system/secrets/sh.helm.release.v1.lws.v1";
    let mut secret = deployment.api.get(path).unwrap();
    secret["metadata"]["labels"]["status"] = json!("pending-install");
    deployment.api.put(path, secret);
    assert!(matches!(deployment.verdict(StepId::Platform).await, Verdict::Update { .. }));
    let writes = deployment.up(StepId::Platform).await.unwrap();
    assert_eq!(of(&writes, "PATCH jobs/helm-").len(), 1, "only the chart that is not there: {writes:?}");
    assert_eq!(deployment.verdict(StepId::Platform).await, Verdict::Keep);
}

#[tokio::test]
async fn dynamo_is_not_upgraded_in_place() {
    let emulator = Emulator::start(FACTOR, None).await;
    let deployment = deployment(&emulator).await;
    deployment.up(StepId::Platform).await.unwrap();
    let installed = |chart: &str, namespace: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/sh.helm.release.v1.{chart}.v1");
        let mut secret = deployment.api.get(&path).unwrap();
        assert!(secret["metadata"]["labels"]["nemo.dev/chart-version"].is_string(), "{secret}");
        secret["metadata"]["labels"]["nemo.dev/chart-version"] = json!("0.0.1");
        secret["metadata"]["labels"]["nemo.dev/inputs"] = json!("other");
        deployment.api.put(&path, secret);
    };
    // helm brings the one to its version; the other would have to be removed first.
    installed("lws", "lws-system");
    assert!(matches!(deployment.verdict(StepId::Platform).await, Verdict::Update { .. }));
    installed("dynamo-platform", "dynamo-system");
    let Verdict::Refuse { why, hint, kind } = deployment.verdict(StepId::Platform).await else { panic!("not refused") };
    assert!(why.contains("dynamo-system/dynamo-platform is version 0.0.1") && why.contains("cannot be upgraded in place"), "{why}");
    assert!(hint.contains("nemo cleanup --from platform") && kind == nemo::error::Kind::Conflict, "{hint}");
}

#[tokio::test]
async fn a_release_that_is_not_ours_is_refused() {
    let emulator = Emulator::start(FACTOR, None).await;
    let deployment = deployment(&emulator).await;
    let labels = json!({"owner": "helm", "name": "lws", "version": "3", "status": "deployed"});
    deployment.api.put(
        "/api/v1/namespaces/lws-system/secrets/sh.helm.release.v1.lws.v3",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sh.helm.release.v1.lws.v3", "namespace": "lws-system", "labels": labels}}),
    );
    let Verdict::Refuse { why, .. } = deployment.verdict(StepId::Platform).await else { panic!("not refused") };
    assert!(why.contains("lws-system/lws"), "{why}");
}
