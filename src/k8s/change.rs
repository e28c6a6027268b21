//! Changes that are not taken in place: fields that may not change, a webhook that refuses what the object is to become.

use kube::Client;

use super::apply::{Document, Live, look, patch};
use crate::error::ServiceError;

/// A document that cannot take the place of what is there, and why, in the API server's words.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    pub title: String,
    pub why: String,
}

/// Those workloads among the documents that the API server does not take as a change, and would take if nothing was there. Asked by dry runs; what it
/// would not take at all is none of them: to delete something for that would leave nothing.
pub async fn refused(client: &Client, documents: &[Document]) -> Result<Vec<Refused>, ServiceError> {
    let standing = look(client, documents).await?;
    let mut found = Vec::new();
    for document in documents.iter().zip(standing).filter(|(document, live)| *live == Live::Differs && document.has_pods()).map(|(document, _)| document) {
        let Err(error) = patch(client, document, true).await else { continue };
        if about_the_change(&error) && patch(client, &document.elsewhere(), true).await.is_ok() {
            found.push(Refused { title: document.title(), why: error.message });
        }
    }
    Ok(found)
}

/// A webhook says no, or the API server does to a field that is to stay; not: somebody else owns a field, no permission, no answer.
pub(super) fn about_the_change(error: &ServiceError) -> bool {
    error.message.contains("denied the request") || (error.status == Some(422) && error.message.contains("immutable"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::super::{ANNOTATION_INPUTS, Owner};
    use super::*;

    const OWNER: Owner<'_> = Owner { deployment: "nemo", step: "serve" };

    fn graph(name: &str) -> Document {
        Document::new(json!({"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": name, "namespace": "n"}}), OWNER).unwrap()
    }

    /// An API server that has the graph from other settings, and answers writes to it, and to others, with these.
    async fn asked(change: (u16, &str), anew: (u16, &str)) -> (Vec<Refused>, Vec<String>) {
        let there = graph("nemo");
        let meta = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "nemo", "labels": there.object().metadata.labels, "annotations": {ANNOTATION_INPUTS: "other"}}});
        let status = |(code, message): (u16, &str)| -> (u16, Value) {
            match code {
                200 => (200, json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "nemo"}})),
                code => (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "X", "message": message, "code": code})),
            }
        };
        let (change, anew) = (status(change), status(anew));
        let writes: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = writes.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().to_string();
            let (code, body) = match request.method().as_str() {
                "GET" => (200, meta.clone()),
                _ if path.contains("/nemo?") => change.clone(),
                _ => anew.clone(),
            };
            if request.method() != "GET" {
                noted.lock().unwrap().push(path);
            }
            async move { Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()) }
        });
        let found = refused(&Client::new(service, "default"), &[graph("nemo")]).await.unwrap();
        let writes = writes.lock().unwrap().clone();
        (found, writes)
    }

    const DENIED: &str = "admission webhook \"vdynamographdeployment.kb.io\" denied the request: spec.components: components cannot be added after creation: decode";

    #[tokio::test]
    async fn a_change_that_is_refused_is_told_and_only_tried() {
        let (found, writes) = asked((403, DENIED), (200, "")).await;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].title.as_str(), found[0].why.as_str()), ("DynamoGraphDeployment n/nemo", DENIED));
        assert!(writes.len() == 2 && writes.iter().all(|write| write.contains("dryRun=All")), "{writes:?}");
    }

    #[tokio::test]
    async fn nothing_goes_for_what_would_be_refused_anyway_or_for_other_reasons() {
        for (change, anew) in
            [((200, ""), (200, "")), ((403, DENIED), (403, DENIED)), ((409, "conflict with \"kubectl\""), (200, "")), ((403, "forbidden: User may not patch"), (200, ""))]
        {
            assert_eq!(asked(change, anew).await.0, [], "{change:?} {anew:?}");
        }
        assert_eq!(asked((422, "spec.selector: Invalid value: field is immutable"), (200, "")).await.0.len(), 1);
    }
}
