//! The engines that serve, each with the port that it shows its metrics at.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::facts::ServeFacts;
use crate::error::ServiceError;
use crate::k8s::{Answer, Container, ready};

/// Dynamo's system port.
const SYSTEM: u16 = 9090;

/// An engine: a container of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Engine {
    pub(super) at: Container,
    port: u16,
}

impl Engine {
    /// Its metrics, in Prometheus' text format.
    pub(super) async fn metrics(&self, client: &Client) -> Result<String, ServiceError> {
        self.at.page(client, self.port, "/metrics").await
    }
}

/// The engines in the pods of this label that are ready. Those of Dynamo are the first container of their pod, vLLM's own servers may be several.
pub(super) async fn engines(client: &Client, serve: &ServeFacts, label: &str) -> Result<Vec<Engine>, ServiceError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &serve.namespace);
    let pods = pods.list(&ListParams::default().labels(label)).await.answer("LIST pods")?.items;
    Ok(pods.iter().filter(|pod| ready::ready(pod)).flat_map(|pod| of(pod, &serve.namespace)).collect())
}

fn of(pod: &Pod, namespace: &str) -> Vec<Engine> {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let engine = |container: &str, port: u16| Engine { at: Container { namespace: namespace.to_owned(), pod: pod.name_any(), container: container.to_owned() }, port };
    let serves = containers.iter().flat_map(|container| container.ports.iter().flatten().map(move |port| (container, port)));
    let own: Vec<_> = serves
        .filter(|(_, port)| port.name.as_ref().is_some_and(|name| name.starts_with("serve")))
        .map(|(container, port)| engine(&container.name, u16::try_from(port.container_port).unwrap_or(SYSTEM)))
        .collect();
    if own.is_empty() { containers.first().map(|first| engine(&first.name, SYSTEM)).into_iter().collect() } else { own }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_of_vllm_are_known_by_their_ports_and_dynamos_engine_is_the_first_container() {
        let engines = |containers: serde_json::Value| -> Vec<(String, u16)> {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})).unwrap();
            of(&pod, "n").into_iter().map(|engine| (engine.at.container, engine.port)).collect()
        };
        let named = |name: &str, port: &str, number: u16| json!({"name": name, "ports": [{"name": port, "containerPort": number}]});
        assert_eq!(engines(json!([named("worker", "system", 9090), {"name": "more"}])), [("worker".to_owned(), 9090)]);
        assert_eq!(engines(json!([named("encoder-0", "serve-0", 8200), named("encoder-1", "serve-1", 8201)])), [("encoder-0".to_owned(), 8200), ("encoder-1".to_owned(), 8201)]);
        assert_eq!(engines(json!([named("worker", "serve", 8200)])), [("worker".to_owned(), 8200)]);
    }
}
