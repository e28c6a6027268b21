//! The real API server takes every rendered document, with strict field validation: an unknown or doubled field is refused.
//!
//! Needs a cluster, as of `scripts/sandbox up`: `eval "$(scripts/sandbox env)"; cargo test --test strict -- --ignored`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

use kube::Client;
use kube::api::{Api, DeleteParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use nemo::k8s::{Document, Owner, apply};
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
    for rendered in documents::everything().into_iter().chain(forms) {
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

fn named(mut manifest: Value) -> Value {
    manifest["metadata"]["name"] = json!("strict-test");
    manifest
}
