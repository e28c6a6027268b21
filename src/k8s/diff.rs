//! What applying would change: each object as it is there, against what the API server would make of it, as a unified diff.

use futures::future::try_join_all;
use kube::Client;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::{Value, json};
use similar::TextDiff;

use super::apply::{Document, Found, KindOf, patched};
use super::change::about_the_change;
use super::error::Answer;
use super::{LABEL_DEPLOYMENT, LABEL_MANAGED_BY};
use crate::error::ServiceError;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// What would become of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    Create,
    Update,
    /// It cannot become what is wanted: it is removed and made anew.
    Recreate,
    /// It is rendered no more.
    Remove,
}

/// An object that would not stay as it is.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Difference {
    /// Kind, namespace and name: `Deployment nemo/vllm-worker`.
    pub object: String,
    pub change: Change,
    /// Unified diff of the YAML.
    pub diff: String,
    /// Why it would be refused: somebody else owns it, or fields of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
    /// Why it is made anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What applying the documents and removing what is stale would change, in the order in which it would be done. Nothing is stored.
pub async fn diff(client: &Client, documents: &[Document], stale: &[Found], kinds: &[KindOf]) -> Result<Vec<Difference>, ServiceError> {
    let (removed, applied) =
        futures::try_join!(try_join_all(stale.iter().map(|found| removed(client, found, kinds))), try_join_all(documents.iter().map(|document| applied(client, document))))?;
    Ok(removed.into_iter().chain(applied).flatten().collect())
}

async fn removed(client: &Client, found: &Found, kinds: &[KindOf]) -> Result<Option<Difference>, ServiceError> {
    let Some((api, resource)) = found.api(client, kinds) else { return Ok(None) };
    let there = api.get_opt(&found.name).await.answer(&format!("GET {}/{}", resource.plural, found.name))?;
    Ok(there.map(|there| difference(&found.title(), Some(&there), None, None)))
}

async fn applied(client: &Client, document: &Document) -> Result<Option<Difference>, ServiceError> {
    let name = document.object().metadata.name.clone().unwrap_or_default();
    let there = document.api(client).get_opt(&name).await.answer(&format!("GET {}", document.path()));
    let there = document.served(client, there).await?;
    let foreign = there.as_ref().is_some_and(|there| {
        let label = |object: &DynamicObject, key: &str| object.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        [LABEL_MANAGED_BY, LABEL_DEPLOYMENT].iter().any(|key| label(there, key) != label(document.object(), key))
    });
    if foreign && document.is_clusters() {
        return Ok(None);
    }
    let mut conflict = foreign.then(|| "it is there and does not carry our mark".to_owned());
    let would = match patched(client, document, true, false).await {
        Err(error) if error.is(&["Conflict"]) => {
            conflict = conflict.or(Some(error.message));
            patched(client, document, true, true).await?
        }
        Err(error) if about_the_change(&error) => {
            let other = document.elsewhere();
            let mut would = patched(client, &other, true, false).await.map_err(|error| document.named(&other, error))?;
            would.metadata.name = document.object().metadata.name.clone();
            let changed = difference(&document.title(), there.as_ref(), Some(&would), conflict);
            return Ok(Some(Difference { change: Change::Recreate, why: Some(error.message), ..changed }));
        }
        would => would?,
    };
    let difference = difference(&document.title(), there.as_ref(), Some(&would), conflict);
    Ok((!difference.diff.is_empty() || difference.conflict.is_some()).then_some(difference))
}

fn difference(object: &str, there: Option<&DynamicObject>, would: Option<&DynamicObject>, conflict: Option<String>) -> Difference {
    let (mut old, mut new) = (there.map(plain), would.map(plain));
    hide(old.as_mut(), new.as_mut());
    let text = |value: &Option<Value>| value.as_ref().and_then(|value| serde_saphyr::to_string(value).ok()).unwrap_or_default();
    let (before, after) = (text(&old), text(&new));
    let change = match (there, would) {
        (None, _) => Change::Create,
        (_, None) => Change::Remove,
        _ => Change::Update,
    };
    let diff = TextDiff::from_lines(&before, &after);
    let diff = diff.unified_diff().context_radius(CONTEXT).header(&format!("{object} (live)"), &format!("{object} (rendered)")).to_string();
    Difference { object: object.to_owned(), change, diff, conflict, why: None }
}

/// Without what the API server keeps for itself and what controllers say.
fn plain(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"] {
            metadata.shift_remove(field);
        }
    }
    value
}

/// What a Secret holds is nobody's to read here: only whether it would change.
fn hide(old: Option<&mut Value>, new: Option<&mut Value>) {
    let (mut none_old, mut none_new) = (Value::Null, Value::Null);
    let (old, new) = (old.unwrap_or(&mut none_old), new.unwrap_or(&mut none_new));
    if [&*old, &*new].iter().all(|value| value["kind"] != "Secret") {
        return;
    }
    for field in ["data", "stringData"] {
        let (before, after) = (old[field].clone(), new[field].clone());
        for (value, other, word) in [(&mut *old, &after, "before"), (&mut *new, &before, "after")] {
            for (key, hidden) in value.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten() {
                let changes = !other[key.as_str()].is_null() && other[key.as_str()] != *hidden;
                *hidden = if changes { json!(format!("*** ({word})")) } else { json!("***") };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;
    use crate::k8s::Owner;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn service(port: u16, version: &str) -> DynamicObject {
        object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n", "resourceVersion": version, "uid": version, "generation": 1,
            "creationTimestamp": "2026-11-30T12:00:00Z", "managedFields": [{"manager": version}]}, "spec": {"type": "ClusterIP", "ports": [{"port": port}]}, "status": {"is": version}}))
    }

    #[test]
    fn what_the_api_server_keeps_for_itself_is_no_difference() {
        assert_eq!(difference("Service n/a", Some(&service(1, "1")), Some(&service(1, "2")), None).diff, "");
        let changed = difference("Service n/a", Some(&service(1, "1")), Some(&service(2, "2")), None);
        assert_eq!(changed.change, Change::Update);
        assert_eq!(changed.diff, "--- Service n/a (live)\n+++ Service n/a (rendered)\n@@ -6,4 +6,4 @@\n spec:\n   type: ClusterIP\n   ports:\n-  - port: 1\n+  - port: 2\n");
        let (made, gone) = (difference("a", None, Some(&service(1, "1")), None), difference("a", Some(&service(1, "1")), None, None));
        assert_eq!((made.change, gone.change), (Change::Create, Change::Remove));
        assert!(made.diff.contains("+kind: Service") && gone.diff.contains("-kind: Service"), "{}{}", made.diff, gone.diff);
    }

    #[tokio::test]
    async fn what_cannot_be_changed_is_shown_as_it_would_be_made_anew() {
        let graph = |name: &str, backend: &str| json!({"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": name, "namespace": "n"}, "spec": {"backendFramework": backend}});
        let document = Document::new(graph("nemo", "vllm"), Owner { deployment: "nemo", step: "serve" }).unwrap();
        let mut there = graph("nemo", "sglang");
        there["metadata"]["labels"] = json!(document.object().metadata.labels);
        let denied = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "admission webhook denied the request: spec.backendFramework is immutable"});
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = match (request.method().as_str(), request.uri().path().ends_with("/nemo")) {
                ("GET", _) => (200, there.clone()),
                (_, true) => (403, denied.clone()),
                _ => (200, graph("nemx", "vllm")),
            };
            async move { Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()) }
        });
        let found = diff(&Client::new(service, "default"), &[document], &[], &[]).await.unwrap();
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.change, one.object.as_str()), (Change::Recreate, "DynamoGraphDeployment n/nemo"));
        assert!(one.why.as_ref().is_some_and(|why| why.contains("denied the request")) && one.conflict.is_none(), "{one:?}");
        assert!(one.diff.contains("-  backendFramework: sglang\n+  backendFramework: vllm\n") && !one.diff.contains("nemx"), "{}", one.diff);
    }

    #[test]
    fn a_secret_shows_that_it_changes_and_not_what_it_holds() {
        let secret = |value: &str| object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"same": "c2FtZQ==", "key": value}}));
        let diff = difference("Secret a", Some(&secret("b2xk")), Some(&secret("bmV3")), None).diff;
        assert!(diff.contains("*** (before)") && diff.contains("*** (after)") && !diff.contains("b2xk") && !diff.contains("bmV3") && !diff.contains("c2FtZQ"), "{diff}");
        let made = difference("Secret a", None, Some(&secret("bmV3")), None).diff;
        assert!(made.contains("***") && !made.contains("bmV3"), "{made}");
        assert_eq!(difference("Secret a", Some(&secret("b2xk")), Some(&secret("b2xk")), None).diff, "");
    }
}
