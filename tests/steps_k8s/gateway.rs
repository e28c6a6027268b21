//! The gateway of the step `serve`, with the state file lost at each turn.

use nemo::config::Expose;
use nemo::engine::plan::Verdict;
use nemo::engine::step::StepId;
use nemo::error::Kind;
use nemo::secret::Secret;
use nemo::steps::certificate::Pair;
use serde_json::json;

use crate::deployment::Deployment;
use crate::nowhere;

const SECRETS: &str = "/api/v1/namespaces/nemo/secrets";
const KEY: &str = "sk-0123456789abcdef0123";

fn exposed() -> Deployment {
    let mut deployment = Deployment::new(nowhere());
    deployment.spec.serve.expose = Expose::Internal;
    deployment.spec.serve.tls_certificate = "tls.crt".into();
    deployment.spec.serve.tls_key = "tls.key".into();
    let until = "2027-01-31T00:00:00Z".parse().unwrap();
    deployment.gateway.certificate = Some(Ok(Pair { certificate: "-----BEGIN CERTIFICATE-----".into(), key: Secret::new("-----BEGIN PRIVATE KEY-----"), until }));
    deployment
}

/// Everything that the API server keeps beside Secrets.
fn kept(deployment: &Deployment) -> String {
    let store = deployment.api.0.lock().unwrap();
    store.objects.iter().filter(|(path, _)| !path.starts_with(SECRETS)).map(|(_, object)| object.to_string()).collect()
}

fn key(deployment: &Deployment) -> String {
    use base64::Engine as _;
    let secret = deployment.api.get(&format!("{SECRETS}/gateway-key")).unwrap();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(secret["data"]["key"].as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn the_secrets_come_first_and_a_made_key_is_kept() {
    let deployment = exposed();
    let writes = deployment.up(StepId::Serve).await.unwrap();
    assert_eq!(writes[..2], ["PATCH secrets/gateway-tls", "PATCH secrets/gateway-key"], "{writes:?}");
    for object in ["services/gateway", "configmaps/gateway", "deployments/gateway", "poddisruptionbudgets/gateway"] {
        assert!(writes.contains(&format!("PATCH {object}")), "{object}: {writes:?}");
    }
    let made = key(&deployment);
    assert!(made.len() == 64 && !kept(&deployment).contains(&made));
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep);
    assert_eq!(deployment.up(StepId::Serve).await.unwrap(), Vec::<String>::new());
    assert_eq!(key(&deployment), made);
    // Also where the files are not: who renders or looks needs none.
    let mut elsewhere = deployment;
    elsewhere.gateway.certificate = Some(Err("tls.crt cannot be read".into()));
    assert_eq!(elsewhere.verdict(StepId::Serve).await, Verdict::Keep);
    let removed = elsewhere.remove(StepId::Serve).await;
    assert_eq!(removed.iter().filter(|write| write.contains("secrets/gateway")).count(), 2, "{removed:?}");
    assert_eq!(elsewhere.existing(StepId::Serve).await, []);
}

#[tokio::test]
async fn another_key_is_written_and_its_pods_are_new() {
    let mut deployment = exposed();
    deployment.up(StepId::Serve).await.unwrap();
    deployment.gateway.key = Some(Secret::new(KEY));
    let Verdict::Update { why } = deployment.verdict(StepId::Serve).await else { panic!("no update") };
    assert!(why.contains("Secret nemo/gateway-key") && !why.contains(KEY), "{why}");
    assert_eq!(deployment.up(StepId::Serve).await.unwrap(), ["PATCH secrets/gateway-key", "DELETE pods/*"]);
    assert_eq!(key(&deployment), KEY);
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep);
}

#[tokio::test]
async fn exposed_no_more_everything_of_it_goes() {
    let mut deployment = exposed();
    deployment.up(StepId::Serve).await.unwrap();
    deployment.spec.serve.expose = Expose::No;
    let Verdict::Update { why } = deployment.verdict(StepId::Serve).await else { panic!("no update") };
    assert!(why.contains("Secret nemo/gateway-key") && why.contains("Secret nemo/gateway-tls"), "what goes is named: {why}");
    assert!(why.contains("Service nemo/gateway") && !why.contains("nothing serves"), "the engines stay: {why}");
    deployment.up(StepId::Serve).await.unwrap();
    let left: Vec<_> = deployment.api.0.lock().unwrap().objects.keys().filter(|path| path.contains("gateway")).cloned().collect();
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep);
}

#[tokio::test]
async fn without_a_certificate_nothing_is_written() {
    let mut deployment = exposed();
    deployment.gateway.certificate = Some(Err("tls.crt cannot be read: no such file".into()));
    let failure = deployment.up(StepId::Serve).await.unwrap_err();
    assert!(failure.kind == Kind::Config && failure.message.contains("tls.crt cannot be read"), "{failure:?}");
    assert_eq!(deployment.api.writes(), Vec::<String>::new());

    // A pair that cannot be used is never passed over, not even where another one serves.
    let mut serving = exposed();
    serving.up(StepId::Serve).await.unwrap();
    serving.gateway.certificate = Some(Err("tls.crt expired".into()));
    serving.gateway.key = Some(Secret::new(KEY));
    let before = serving.api.writes();
    assert!(serving.gateway.usable().unwrap_err().to_string().contains("tls.crt expired"));
    assert!(serving.up(StepId::Serve).await.unwrap_err().message.contains("tls.crt expired"));
    assert_eq!(serving.api.writes(), before);

    let mut deployment = exposed();
    deployment.gateway.certificate = None;
    deployment.spec.serve.tls_secret = "theirs".into();
    let failure = deployment.up(StepId::Serve).await.unwrap_err();
    assert!(failure.message.contains("no Secret nemo/theirs") && failure.hints[0].starts_with("kubectl create secret tls theirs"), "{failure:?}");
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "theirs", "namespace": "nemo"}});
    deployment.api.put(&format!("{SECRETS}/theirs"), theirs);
    let writes = deployment.up(StepId::Serve).await.unwrap();
    assert!(writes.contains(&"PATCH secrets/gateway-key".to_owned()) && !writes.iter().any(|write| write.contains("theirs")), "{writes:?}");
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep);
    deployment.remove(StepId::Serve).await;
    assert!(deployment.api.get(&format!("{SECRETS}/theirs")).is_some(), "what others made stays");
}

/// What was exposed, and is not any more: its Secrets went with it.
#[tokio::test]
async fn back_to_a_gateway_without_its_secrets_is_refused_before_anything_is_changed() {
    let mut deployment = exposed();
    deployment.up(StepId::Serve).await.unwrap();
    deployment.spec.serve.expose = Expose::No;
    let pair = deployment.gateway.certificate.take();
    deployment.up(StepId::Serve).await.unwrap();
    let target = deployment.revisions().await.into_iter().find(|revision| revision.number == 1).unwrap();
    deployment.spec.serve.expose = Expose::Internal;
    let before = deployment.api.writes();
    let Verdict::Refuse { why, hint, .. } = deployment.planned_back(&target).await.verdict else { panic!("it would never serve") };
    assert!(why.contains("no Secret nemo/gateway-tls") && why.contains("no Secret nemo/gateway-key"), "{why}");
    assert!(hint.starts_with("NEMO_API_KEY_FILE=key.txt nemo rollback --to 1 --set serve.tls_certificate=tls.crt --set serve.tls_key=tls.key"), "{hint}");
    deployment.gateway.certificate = pair;
    let Verdict::Refuse { why, hint, .. } = deployment.planned_back(&target).await.verdict else { panic!("another key would be made") };
    assert!(why.ends_with("there is no Secret nemo/gateway-key with the API key") && !hint.contains("--set"), "{why}; {hint}");
    assert_eq!(deployment.api.writes(), before);
    deployment.gateway.key = Some(Secret::new(KEY));
    deployment.back_to(&target, None).await;
    assert_eq!(key(&deployment), KEY);
    assert_eq!(deployment.verdict(StepId::Serve).await, Verdict::Keep);
}
