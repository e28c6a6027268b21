//! Sets of manifests that have served are kept, and gone back to.

use nemo::engine::plan::Verdict;
use nemo::engine::step::StepId;
use nemo::steps;
use nemo::steps::history::{self, Revision};
use nemo::steps::serve::Serve;
use serde_json::Value;

use crate::deployment::Deployment;
use crate::nowhere;

const WORKER: &str = "/apis/apps/v1/namespaces/nemo/deployments/vllm-worker";

fn longest(deployment: &Deployment) -> String {
    let worker = deployment.api.get(WORKER).unwrap();
    let args = worker["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap().clone();
    let at = args.iter().position(|arg| arg == "--max-model-len").unwrap();
    args[at + 1].as_str().unwrap().to_owned()
}

async fn is_there(deployment: &Deployment, revision: &Revision) -> bool {
    Serve::new(deployment.deps()).is_there(&deployment.api.client(), revision).await.unwrap()
}

/// A deployment with two sets, of which the second is there.
async fn twice() -> Deployment {
    let mut deployment = Deployment::new(nowhere());
    deployment.spec.serve.max_model_len = 4096;
    deployment.up(StepId::Serve).await.unwrap();
    deployment.spec.serve.max_model_len = 8192;
    deployment.up(StepId::Serve).await.unwrap();
    deployment
}

fn numbers(revisions: &[Revision]) -> Vec<u32> {
    revisions.iter().map(|revision| revision.number).collect()
}

#[tokio::test]
async fn back_and_forth_and_what_up_says_then() {
    let deployment = twice().await;
    let revisions = deployment.revisions().await;
    assert_eq!(numbers(&revisions), [2, 1]);
    assert_eq!(revisions[0].settings["serve.form"], "deployments", "what auto came to");
    assert!(is_there(&deployment, &revisions[0]).await && !is_there(&deployment, &revisions[1]).await);
    let target = history::previous(&revisions, true).unwrap();
    let secret = format!("/api/v1/namespaces/nemo/secrets/serve-{}", target.digest);
    let kept = deployment.api.get(&secret).unwrap();
    let writes = deployment.back_to(target, Some(&revisions[0].digest)).await;
    assert_eq!((longest(&deployment).as_str(), writes.iter().filter(|write| !write.contains("secrets/")).count()), ("4096", 1), "{writes:?}");
    let raised = deployment.api.get(&secret).unwrap();
    assert_eq!((&raised["data"], &raised["immutable"], raised["metadata"]["labels"]["nemo.dev/revision"].as_str()), (&kept["data"], &Value::Bool(true), Some("3")));
    let Verdict::Update { why } = deployment.verdict(StepId::Serve).await else { panic!("the settings still ask for the other set") };
    assert!(why.starts_with("these settings were rolled back from, to revision 3, and would be applied again: Deployment nemo/vllm-worker was made from other settings"), "{why}");
    // Once more goes forward again: the newest that is not what is there.
    let revisions = deployment.revisions().await;
    assert_eq!(numbers(&revisions), [3, 2]);
    assert_eq!(history::previous(&revisions, is_there(&deployment, &revisions[0]).await).unwrap().number, 2);
    deployment.up(StepId::Serve).await.unwrap();
    assert_eq!((longest(&deployment).as_str(), numbers(&deployment.revisions().await)), ("8192", vec![4, 3]));
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep);
    assert_eq!(deployment.up(StepId::Serve).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_set_that_does_not_serve_is_not_kept_and_what_served_last_comes_back() {
    let mut deployment = twice().await;
    deployment.spec.serve.max_model_len = 16384;
    // It is applied and never serves: somebody stops waiting.
    let mut worker = deployment.api.get(WORKER).unwrap();
    worker["metadata"]["annotations"]["nemo.dev/inputs"] = "another".into();
    deployment.api.put(WORKER, worker);
    let revisions = deployment.revisions().await;
    assert!(!is_there(&deployment, &revisions[0]).await);
    let target = history::previous(&revisions, false).unwrap();
    assert_eq!(target.number, 2);
    deployment.back_to(target, None).await;
    assert_eq!((longest(&deployment).as_str(), numbers(&deployment.revisions().await)), ("8192", vec![2, 1]));
}

#[tokio::test]
async fn whoever_is_stopped_halfway_goes_on_to_the_same() {
    let deployment = twice().await;
    let revisions = deployment.revisions().await;
    history::raise(&deployment.api.client(), &deployment.spec, &revisions[1], None).await.unwrap();
    let again = deployment.revisions().await;
    assert_eq!(history::previous(&again, is_there(&deployment, &again[0]).await).unwrap().digest, revisions[1].digest);
    // With the number that was typed, too, however often.
    history::raise(&deployment.api.client(), &deployment.spec, &again[0], None).await.unwrap();
    let again = deployment.revisions().await;
    let found: Vec<_> = again.iter().filter(|revision| revision.is(1)).map(|revision| (revision.number, revision.digest.as_str())).collect();
    assert_eq!(found, [(3, revisions[1].digest.as_str())]);
    let apart = steps::apart(&again[0], &again[1]);
    assert!(apart.len() == 1 && apart[0].starts_with("Deployment vllm-worker differs at spec.template.spec.containers[0].args["), "{apart:?}");
}

#[tokio::test]
async fn a_set_that_serves_and_is_not_kept_yet_is_kept_by_the_next_walk() {
    let deployment = Deployment::new(nowhere());
    deployment.up(StepId::Serve).await.unwrap();
    let digest = deployment.revisions().await[0].digest.clone();
    deployment.api.take(&format!("/api/v1/namespaces/nemo/secrets/serve-{digest}")).unwrap();
    assert!(matches!(deployment.verdict(StepId::Serve).await, Verdict::Wait { .. }));
    assert_eq!(deployment.up(StepId::Serve).await.unwrap(), [format!("PATCH secrets/serve-{digest}")]);
}

#[tokio::test]
async fn ten_are_kept_and_go_with_the_step() {
    let mut deployment = Deployment::new(nowhere());
    for length in 0..12 {
        deployment.spec.serve.max_model_len = 4096 + length;
        deployment.up(StepId::Serve).await.unwrap();
    }
    assert_eq!(numbers(&deployment.revisions().await), (3..=12).rev().collect::<Vec<_>>());
    deployment.remove(StepId::Serve).await;
    assert_eq!(deployment.revisions().await, []);
}
