//! Do the operators' webhooks answer? A pod is Ready before its listener is, and the first custom resource would be refused (stories 44 and 45).

use futures::future::try_join_all;
use serde_json::{Value, json};

use super::NAMESPACE;
use super::part::Part;
use crate::error::{Kind, ServiceError, fail};
use crate::k8s::{self, Document, Owner};

/// The least of each kind that a webhook looks at. Nothing is stored, and a refusal is an answer, too.
fn probes() -> [Value; 2] {
    let container = json!({"name": "probe", "image": "probe"});
    let metadata = json!({"name": "nemo-probe", "namespace": NAMESPACE});
    [
        json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata,
            "spec": {"replicas": 0, "leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": {"containers": [container]}}}}}),
        json!({"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": metadata,
            "spec": {"components": [{"name": "probe", "type": "worker", "replicas": 0, "podTemplate": {"spec": {"containers": [{"name": "main", "image": "probe"}]}}}]}}),
    ]
}

/// How the webhooks of every kind stand: by asking the API server to take an object and store nothing.
pub(super) async fn answering(client: &kube::Client, deployment: &str) -> anyhow::Result<Part> {
    let owner = Owner { deployment, step: "platform" };
    let asked = try_join_all(probes().map(|probe| async {
        let document = Document::new(probe, owner).map_err(|why| fail(Kind::Bug, why))?;
        anyhow::Ok(k8s::apply::dry_run(client, std::slice::from_ref(&document)).await.err().and_then(|error| silent(&error)))
    }));
    Ok(asked.await?.into_iter().flatten().next().map_or(Part::There, Part::Pending))
}

/// Why nobody answered; `None`: somebody did.
fn silent(error: &ServiceError) -> Option<String> {
    match error.status {
        Some(404) => Some(format!("{} is not served yet", error.operation)),
        // The API server's own 4xx, or the webhook's refusal, which comes as one.
        Some(400..=499) => None,
        _ => Some(error.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_answer_and_a_closed_port_is_none() {
        let error = |status, message: &str| ServiceError {
            service: "kubernetes".into(),
            operation: "PATCH dynamographdeployments/nemo-probe".into(),
            code: "InternalError".into(),
            message: message.into(),
            request_id: None,
            status,
        };
        let closed = "Internal error occurred: failed calling webhook \"mdynamographdeployment.kb.io\": dial tcp 10.100.7.7:443: connect: connection refused";
        assert_eq!(silent(&error(Some(500), closed)).as_deref(), Some(closed));
        assert_eq!(silent(&error(Some(404), "the server could not find the requested resource")).as_deref(), Some("PATCH dynamographdeployments/nemo-probe is not served yet"));
        assert_eq!(silent(&error(Some(403), "admission webhook denied the request: spec.components is empty")), None);
        assert_eq!(silent(&error(Some(422), "spec.components[0].type: Unsupported value")), None);
        assert!(silent(&error(None, "cannot be reached")).is_some());
    }
}
