//! What a cluster offers to those who want to run something in it: kinds that it serves, devices of its nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::api::{Api, ListParams};

use super::error::Answer;
use crate::error::ServiceError;

/// The API groups that the API server knows.
pub async fn groups(client: &Client) -> Result<BTreeSet<String>, ServiceError> {
    Ok(client.list_api_groups().await.answer("GET /apis")?.groups.into_iter().map(|group| group.name).collect())
}

/// Is this resource (`dynamographdeployments`) served in this version of its group (`nvidia.com/v1beta1`)?
pub async fn serves(client: &Client, version: &str, plural: &str) -> Result<bool, ServiceError> {
    let served: Option<APIResourceList> = client.list_api_group_resources(version).await.or_none(&format!("GET /apis/{version}"))?;
    Ok(served.is_some_and(|served| served.resources.iter().any(|resource| resource.name == plural)))
}

/// The versions of this group in which a resource is served, as the API server lists them.
pub async fn versions(client: &Client, group: &str, plural: &str) -> Result<Vec<String>, ServiceError> {
    let groups = client.list_api_groups().await.answer("GET /apis")?.groups;
    let mut served = Vec::new();
    for known in groups.into_iter().filter(|known| known.name == group).flat_map(|known| known.versions) {
        if serves(client, &known.group_version, plural).await? {
            served.push(known.version);
        }
    }
    Ok(served)
}

/// Of the nodes with these labels that allocate any of a device, the least; none where no node does.
pub async fn least(client: &Client, labels: &str, device: &str) -> Result<Option<u32>, ServiceError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default().labels(labels)).await.answer("LIST nodes")?.items;
    Ok(nodes.iter().filter_map(|node| allocatable(node, device)).filter(|count| *count > 0).min())
}

fn allocatable(node: &Node, device: &str) -> Option<u32> {
    node.status.as_ref()?.allocatable.as_ref()?.get(device)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::super::{Document, Owner, apply, diff};
    use super::*;

    /// A client of a server that gives these answers by path; 404 in plain text for the rest, as for a group that is not served.
    fn server(answers: Vec<(&'static str, Value)>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let found = answers.iter().find(|(path, _)| *path == request.uri().path()).map(|(_, answer)| answer.clone());
            let response = match found {
                Some(answer) => Response::builder().body(Body::from(answer.to_string().into_bytes())),
                None => Response::builder().status(404).body(Body::from(b"404 page not found".to_vec())),
            };
            async move { Ok::<_, std::convert::Infallible>(response.unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_group_of_one_version_does_not_serve_the_other() {
        let list = |names: &[&str]| {
            let resources: Vec<_> = names.iter().map(|name| json!({"name": name, "kind": "K", "namespaced": true, "singularName": "", "verbs": ["get"]})).collect();
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "nvidia.com/v1", "resources": resources})
        };
        let client = server(vec![("/apis/nvidia.com/v1alpha1", list(&["dynamographdeployments"])), ("/apis/nvidia.com/v1", list(&["clusterpolicies"]))]);
        for (version, served) in [("nvidia.com/v1alpha1", true), ("nvidia.com/v1", false), ("nvidia.com/v1beta1", false)] {
            assert_eq!(serves(&client, version, "dynamographdeployments").await.unwrap(), served, "{version}");
        }
    }

    #[tokio::test]
    async fn a_version_that_is_not_served_is_told_with_those_that_are() {
        let groups = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "nvidia.com",
            "versions": [{"groupVersion": "nvidia.com/v1beta1", "version": "v1beta1"}, {"groupVersion": "nvidia.com/v1alpha1", "version": "v1alpha1"}]}]});
        let list = |name: &str| {
            let resources = json!([{"name": name, "kind": "K", "namespaced": true, "singularName": "", "verbs": ["get"]}]);
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "nvidia.com/v1", "resources": resources})
        };
        let client = server(vec![("/apis", groups), ("/apis/nvidia.com/v1alpha1", list("dynamographdeployments")), ("/apis/nvidia.com/v1beta1", list("others"))]);
        let manifest = json!({"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "nemo", "namespace": "n"}});
        let document = Document::new(manifest, Owner { deployment: "nemo", step: "serve" }).unwrap();
        for error in [apply::look(&client, std::slice::from_ref(&document)).await.unwrap_err(), diff::diff(&client, &[document], &[], &[]).await.unwrap_err()] {
            assert_eq!(error.message, "the cluster serves DynamoGraphDeployment of nvidia.com as v1alpha1 only, and this is v1beta1");
            assert!(error.hint().unwrap().contains("--as dgd-v1alpha1") && !error.to_string().contains("Failed to parse"), "{error}");
        }
    }

    #[tokio::test]
    async fn the_least_of_the_nodes_that_have_any_counts() {
        let node = |name: &str, efa: Value| json!({"metadata": {"name": name}, "status": {"allocatable": efa}});
        let efa = "vpc.amazonaws.com/efa";
        let nodes = |items: Vec<Value>| server(vec![("/api/v1/nodes", json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}))]);
        let client = nodes(vec![node("a", json!({efa: "16"})), node("b", json!({efa: "15"})), node("c", json!({efa: "0"})), node("d", json!({"cpu": "95690m"}))]);
        assert_eq!(least(&client, "a=b", efa).await.unwrap(), Some(15));
        assert_eq!(least(&nodes(vec![node("d", json!({}))]), "a=b", efa).await.unwrap(), None);
    }
}
