//! What goes and is held, and what does not come: by which finalizer, and how the controller stands that would have to act.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};

use super::error::Answer;
use super::ready::{self, Readiness};
use crate::error::ServiceError;

/// Who makes pods of a kind, by the release that it is installed with, and the beginning of its finalizers' names.
struct Controller {
    kind: &'static str,
    release: &'static str,
    finalizers: &'static str,
    name: &'static str,
}

/// Dynamo's operator sets `nvidia.com/finalizer` on its objects; LeaderWorkerSet's controller sets none of its own so far.
const CONTROLLERS: [Controller; 2] = [
    Controller { kind: "DynamoGraphDeployment", release: "dynamo-platform", finalizers: "nvidia.com/", name: "Dynamo's operator" },
    Controller { kind: "LeaderWorkerSet", release: "lws", finalizers: "leaderworkerset.", name: "the controller of LeaderWorkerSets" },
];

/// Kubernetes' own finalizers, and when each comes off.
const OWN: [(&str, &str); 4] = [
    ("foregroundDeletion", "Kubernetes' own, until what was made from it is gone"),
    ("service.kubernetes.io/load-balancer-cleanup", "Kubernetes' own, until AWS has taken the load balancer away"),
    ("kubernetes.io/pvc-protection", "Kubernetes' own, until no pod uses the claim"),
    ("kubernetes.io/pv-protection", "Kubernetes' own, until no claim is bound to the volume"),
];

/// The controller that has to make pods of this kind and does not work, in words; `None`: it works, or none of ours makes them.
pub async fn idle(client: &Client, kind: &str) -> Result<Option<String>, ServiceError> {
    match CONTROLLERS.iter().find(|controller| controller.kind == kind) {
        Some(controller) => not_working(client, controller).await,
        None => Ok(None),
    }
}

async fn not_working(client: &Client, controller: &Controller) -> Result<Option<String>, ServiceError> {
    let api: Api<Deployment> = Api::all(client.clone());
    let found = api.list(&ListParams::default().labels(&format!("app.kubernetes.io/instance={}", controller.release))).await.answer("LIST deployments")?.items;
    let name = controller.name;
    if found.is_empty() {
        return Ok(Some(format!("{name} is not there: no Deployment of the release {}", controller.release)));
    }
    for one in found {
        let title = format!("Deployment {}/{}", one.namespace().unwrap_or_default(), one.name_any());
        // One that shall have no pods is ready.
        if one.spec.as_ref().and_then(|spec| spec.replicas) == Some(0) {
            return Ok(Some(format!("{name} does not run: {title} is scaled to 0")));
        }
        match ready::of_deployment(client, one).await? {
            Readiness::Waiting(why) | Readiness::Failed(why) => return Ok(Some(format!("{name} does not run: {title}: {why}"))),
            Readiness::Ready | Readiness::Absent => {}
        }
    }
    Ok(None)
}

/// Is a Deployment or a LeaderWorkerSet scaled to nothing? It is ready then, and nobody serves.
pub async fn scaled_to_0(client: &Client, kind: &str, namespace: &str, name: &str) -> Result<bool, ServiceError> {
    let (group, version) = if kind == "Deployment" { ("apps", "v1") } else { ("leaderworkerset.x-k8s.io", "v1") };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = api.get_opt(name).await.answer(&format!("GET {}/{name}", resource.plural))?;
    Ok(found.is_some_and(|found| found.data["spec"]["replicas"] == 0))
}

/// By what an object is held that is being deleted: each finalizer, whose it is, and how that one stands. Empty without finalizers.
pub async fn held(client: &Client, finalizers: &[String]) -> Result<String, ServiceError> {
    let mut words = Vec::new();
    for finalizer in finalizers {
        let own = OWN.iter().find(|(name, _)| name == finalizer).map(|(_, whose)| *whose);
        let controller = CONTROLLERS.iter().find(|controller| finalizer.starts_with(controller.finalizers));
        words.push(match (own, controller) {
            (Some(whose), _) => format!("held by the finalizer {finalizer} ({whose})"),
            (None, Some(controller)) => {
                let state = not_working(client, controller).await?.unwrap_or_else(|| format!("{} works, and takes it off when it is done", controller.name));
                format!("held by the finalizer {finalizer} of {}: {state}", controller.name)
            }
            (None, None) => format!("held by the finalizer {finalizer}, which is no one's that nemo knows"),
        });
    }
    Ok(words.join("; "))
}

/// A namespace that is being deleted: what holds it, in the API server's words, and whose the finalizers are. `None`: it stays, or is not there,
/// or the caller may not look at namespaces: the first write tells it then.
pub async fn going(client: &Client, namespace: &str) -> Result<Option<String>, ServiceError> {
    let api: Api<Namespace> = Api::all(client.clone());
    let there = match api.get_opt(namespace).await.answer(&format!("GET namespaces/{namespace}")) {
        Err(error) if error.status == Some(403) => None,
        answer => answer?,
    };
    let Some(there) = there.filter(|there| there.metadata.deletion_timestamp.is_some()) else { return Ok(None) };
    let conditions = there.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut words: Vec<String> = conditions.into_iter().filter(|one| one.status == "True").filter_map(|one| one.message).collect();
    let remaining = words.join("; ");
    // Of the finalizers within it the API server tells only the names.
    for controller in CONTROLLERS.iter().filter(|controller| remaining.contains(controller.finalizers)) {
        words.extend(not_working(client, controller).await?);
    }
    let held = held(client, there.finalizers()).await?;
    words.extend((!held.is_empty()).then_some(held));
    Ok(Some(words.join("; ")))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server with these Deployments and this namespace.
    fn server(deployments: Value, namespace: Value) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let body = match path {
                "/apis/apps/v1/deployments" => json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {}, "items": deployments}),
                "/api/v1/namespaces/nemo" => namespace.clone(),
                _ => panic!("{path}"),
            };
            async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(body.to_string().into_bytes()))) }
        });
        Client::new(service, "default")
    }

    fn operator(replicas: u32) -> Value {
        json!([{"metadata": {"name": "operator", "namespace": "dynamo-system"}, "spec": {"replicas": replicas, "selector": {}, "template": {}},
            "status": {"replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas}}])
    }

    #[tokio::test]
    async fn a_finalizer_is_told_with_whose_it_is_and_how_that_one_stands() {
        let said = async |deployments: Value, finalizer: &str| held(&server(deployments, json!(null)), &[finalizer.to_owned()]).await.unwrap();
        assert_eq!(
            said(operator(0), "nvidia.com/finalizer").await,
            "held by the finalizer nvidia.com/finalizer of Dynamo's operator: Dynamo's operator does not run: Deployment dynamo-system/operator is scaled to 0"
        );
        assert!(said(operator(1), "nvidia.com/finalizer").await.ends_with("Dynamo's operator works, and takes it off when it is done"));
        assert!(said(json!([]), "nvidia.com/finalizer").await.contains("no Deployment of the release dynamo-platform"));
        assert!(said(json!([]), "foregroundDeletion").await.contains("until what was made from it is gone"));
        assert!(said(json!([]), "example.com/x").await.contains("no one's that nemo knows"));
        assert_eq!(held(&server(json!([]), json!(null)), &[]).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_namespace_that_goes_says_what_holds_it() {
        let message = "Some content in the namespace has finalizers remaining: nvidia.com/finalizer in 1 resource instances";
        let namespace = |metadata: Value| {
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "status": {"conditions": [
                {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "All resources successfully discovered"},
                {"type": "NamespaceFinalizersRemaining", "status": "True", "message": message}]}})
        };
        let goes = namespace(json!({"name": "nemo", "deletionTimestamp": "2026-12-01T10:00:00Z"}));
        let held = going(&server(operator(0), goes), "nemo").await.unwrap().unwrap();
        assert_eq!(held, format!("{message}; Dynamo's operator does not run: Deployment dynamo-system/operator is scaled to 0"));
        assert_eq!(going(&server(operator(0), namespace(json!({"name": "nemo"}))), "nemo").await.unwrap(), None);
    }

    #[tokio::test]
    async fn who_makes_no_pods_is_idle() {
        let idle = async |kind: &str, replicas| idle(&server(operator(replicas), json!(null)), kind).await.unwrap();
        assert!(idle("DynamoGraphDeployment", 0).await.unwrap().contains("scaled to 0"));
        assert_eq!((idle("DynamoGraphDeployment", 1).await, idle("Deployment", 0).await), (None, None));
    }
}
