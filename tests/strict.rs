//! The real API server takes every rendered document, with strict field validation: an unknown or doubled field is refused.
//!
//! Needs a cluster, as of `scripts/sandbox up`: `eval "$(scripts/sandbox env)"; cargo test --test strict -- --ignored`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use nemo::k8s::apply::KindOf;
use nemo::k8s::diff::Change;
use nemo::k8s::{self, Document, Owner, apply};
use nemo::render::serving;
use serde_json::{Value, json};

#[path = "golden/documents.rs"]
mod documents;

/// A deployment that nobody has.
const OWNER: Owner<'_> = Owner { deployment: "strict-test", step: "serve" };

async fn client() -> Client {
    let path = std::env::var("KUBECONFIG").expect("KUBECONFIG names the sandbox's");
    let config = kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(path).unwrap(), &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// In a namespace of the test's own, since a dry run in one that is not there is refused.
fn moved(mut manifest: Value) -> Value {
    if manifest["metadata"].get("namespace").is_some() {
        manifest["metadata"]["namespace"] = json!("strict-test");
    }
    for subject in manifest.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        subject["namespace"] = json!("strict-test");
    }
    manifest
}

fn document(manifest: Value) -> Document {
    Document::new(moved(manifest), OWNER).unwrap()
}

#[tokio::test]
#[ignore = "needs a cluster"]
async fn every_document_is_accepted_strictly() {
    let client = client().await;
    let namespace = document(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict-test"}}));
    apply::apply(&client, std::slice::from_ref(&namespace)).await.unwrap();
    let mut refused = Vec::new();
    let forms = documents::every_form().into_iter().flat_map(|(_, settings)| serving(&documents::serving_values(&settings)).unwrap());
    let gateways = documents::exposed().into_iter().map(|(_, rendered)| rendered);
    for rendered in documents::everything().into_iter().chain(forms).chain(gateways) {
        for manifest in rendered.manifests {
            // A volume that exists may not be given another claim; here it must only be well-formed.
            let manifest = if manifest["kind"] == "PersistentVolume" { named(manifest) } else { manifest };
            let document = document(manifest);
            if let Err(error) = apply::dry_run(&client, std::slice::from_ref(&document)).await {
                refused.push(format!("{}: {}: {error}", rendered.file, document.title()));
            }
        }
    }
    let wrong = document(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "wrong", "namespace": "n"}, "spec": {"ports": [{"port": 1}], "portz": 1}}));
    let error = apply::dry_run(&client, &[wrong]).await.unwrap_err();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
    namespaces.delete("strict-test", &DeleteParams::default()).await.unwrap();
    assert_eq!(refused, Vec::<String>::new());
    assert!(error.message.contains("portz"), "the validation is strict: {error}");
}

/// What the diff says is what the API server does: defaults are no difference, a removal is shown, and who owns a field is named.
#[tokio::test]
#[ignore = "needs a cluster"]
async fn a_diff_is_what_applying_would_change() {
    const KINDS: &[KindOf] = &[KindOf::new("", "v1", "Service"), KindOf::new("", "v1", "ConfigMap")];
    let (client, owner) = (client().await, Owner { deployment: "diff-test", step: "serve" });
    let marked = |manifest: Value| Document::new(manifest, owner).unwrap();
    let namespace = marked(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "diff-test"}}));
    let service = |port: u16| {
        marked(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "diff-test"}, "spec": {"ports": [{"name": "http", "port": port}], "selector": {"a": "b"}}}),
        )
    };
    let notes = |text: &str| marked(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "diff-test"}, "data": {"notes": text}}));
    apply::apply(&client, &[namespace, service(80), notes("one")]).await.unwrap();
    let diff = async |documents: &[Document]| {
        let stale = apply::stale(apply::list(&client, KINDS, owner).await.unwrap(), documents);
        k8s::diff::diff(&client, documents, &stale, KINDS).await.unwrap()
    };
    let same = diff(&[service(80), notes("one")]).await;
    let changed = diff(&[service(8080)]).await;
    let configs: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), "diff-test");
    let theirs = PatchParams { field_manager: Some("somebody".into()), ..PatchParams::default() };
    configs.patch("b", &theirs, &Patch::Merge(json!({"data": {"notes": "theirs"}}))).await.unwrap();
    let taken = diff(&[service(80), notes("two")]).await;
    let untouched = configs.get("b").await.unwrap().data.unwrap()["notes"].clone();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    namespaces.delete("diff-test", &DeleteParams::default()).await.unwrap();
    assert_eq!(same, []);
    assert_eq!(
        changed.iter().map(|one| (one.object.as_str(), one.change)).collect::<Vec<_>>(),
        [("ConfigMap diff-test/b", Change::Remove), ("Service diff-test/a", Change::Update)]
    );
    assert!(changed[1].diff.contains("-  - name: http\n") || changed[1].diff.contains("port: 80\n") && changed[1].diff.contains("port: 8080\n"), "{}", changed[1].diff);
    assert!(!changed[1].diff.contains("resourceVersion") && !changed[1].diff.contains("managedFields"), "{}", changed[1].diff);
    let [one] = &taken[..] else { panic!("{taken:?}") };
    assert!(one.conflict.as_ref().is_some_and(|words| words.contains(".data.notes") && words.contains("somebody")), "{one:?}");
    assert!(one.diff.contains("-  notes: theirs\n+  notes: two\n"), "{}", one.diff);
    assert_eq!(untouched, "theirs", "a diff stores nothing");
}

fn named(mut manifest: Value) -> Value {
    manifest["metadata"]["name"] = json!("strict-test");
    manifest
}
