//! What the cluster has decides: EFA adapters that its nodes allocate, controllers that it serves kinds of.

use nemo::config::{Form, FormSetting, Topology};
use nemo::engine::plan::Verdict;
use nemo::engine::step::StepId;
use nemo::error::Kind;
use nemo::steps::serve::Serve;
use serde_json::json;

use crate::deployment::Deployment;
use crate::nowhere;

const EFA: &str = "vpc.amazonaws.com/efa";
const NODE: &str = "/api/v1/nodes/a";

#[tokio::test]
async fn workers_ask_for_as_many_adapters_as_the_nodes_allocate() {
    let deployment = Deployment::new(nowhere());
    let node = |count: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"node.kubernetes.io/instance-type": "p5en.48xlarge"}},
            "status": {"allocatable": {EFA: count}}})
    };
    let asked = || {
        let worker = deployment.api.get("/apis/apps/v1/namespaces/nemo/deployments/vllm-worker").unwrap();
        worker["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][EFA].clone()
    };
    deployment.up(StepId::Serve).await.unwrap();
    assert_eq!(asked(), "16", "the catalogue's, since there is no node");
    deployment.api.put(NODE, node("16"));
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep, "where the figure is from changes nothing of what is applied");
    deployment.api.put(NODE, node("15"));
    deployment.up(StepId::Serve).await.unwrap();
    assert_eq!(asked(), "15");
    // The plug-in is gone for a while.
    deployment.api.put(NODE, node("0"));
    deployment.up(StepId::Serve).await.unwrap();
    assert_eq!(asked(), "16");
}

#[tokio::test]
async fn the_plan_says_which_form_and_why() {
    let mut deployment = Deployment::new(nowhere());
    assert!(deployment.planned(StepId::Serve).await.notes[0].starts_with("aggregated as deployments: each pod is a whole worker"));
    deployment.spec.serve.topology = Topology::PipelineParallel;
    deployment.spec.gpu.nodes = 2;
    let planned = deployment.planned(StepId::Serve).await;
    assert!(planned.notes[0].starts_with("pipeline-parallel as lws: a replica is a group of pods"), "{:?}", planned.notes);
    assert!(planned.makes.iter().any(|made| made.what == "LeaderWorkerSet"), "{:?}", planned.makes);
    deployment.spec.serve.topology = Topology::Disaggregated;
    deployment.spec.serve.form = FormSetting::As(Form::DgdV1beta1);
    assert_eq!(deployment.planned(StepId::Serve).await.notes, ["disaggregated as dgd-v1beta1: asked for"]);
}

#[tokio::test]
async fn what_no_controller_there_makes_is_refused_with_what_is_missing() {
    let mut deployment = Deployment::new(nowhere());
    deployment.spec.serve.topology = Topology::PipelineParallel;
    deployment.spec.gpu.nodes = 2;
    for (form, missing) in [(Form::DgdV1beta1, "Volcano"), (Form::DgdGrove, "Grove")] {
        deployment.spec.serve.form = FormSetting::As(form);
        let Verdict::Refuse { why, hint, kind } = deployment.verdict(StepId::Serve).await else { panic!("{form}: it would never serve") };
        assert!(kind == Kind::Usage && why.contains(missing) && why.contains("the cluster has none") && hint.contains("--as auto"), "{why}; {hint}");
        assert_eq!(deployment.up(StepId::Serve).await.unwrap_err().kind, Kind::Usage);
        let refused = Serve::new(deployment.deps()).diff(&deployment.api.client(), &deployment.serve_inputs()).await.unwrap_err();
        assert!(refused.to_string().contains(missing), "what apply refuses is no difference that it would make: {refused}");
    }
    assert_eq!(deployment.api.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn nothing_is_applied_in_a_namespace_that_is_being_deleted() {
    let deployment = Deployment::new(nowhere());
    deployment.up(StepId::Serve).await.unwrap();
    let before = deployment.api.writes();
    let metadata = json!({"name": "nemo", "deletionTimestamp": "2026-11-30T12:00:00Z"});
    deployment.api.put("/api/v1/namespaces/nemo", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
    let failure = deployment.up(StepId::Serve).await.unwrap_err();
    assert!(failure.kind == Kind::Conflict && failure.message.contains("the namespace nemo is being deleted"), "{failure:?}");
    assert!(failure.hints[0].contains("kubectl wait --for=delete namespace/nemo"), "{failure:?}");
    assert!(failure.message.ends_with("; nothing was changed") && failure.left.is_empty(), "{failure:?}");
    assert_eq!(deployment.api.writes(), before);
    let inputs = deployment.serve_inputs();
    let refused = Serve::new(deployment.deps()).diff(&deployment.api.client(), &inputs).await.unwrap_err();
    assert!(refused.to_string().contains("the namespace nemo is being deleted"), "{refused}");
}
