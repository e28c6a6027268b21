//! A listener on this machine whose connections go to a ready pod of a Service. Each connection picks a pod anew, so a pod that goes is no end.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::error::Answer;
use super::ready::ready;
use crate::error::ServiceError;

/// Called with what a person who watches should know: which pod is used, or why none is.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// A Service and one of its ports.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub namespace: String,
    pub service: String,
    pub port: u16,
}

/// A listener that forwards for as long as it lives.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Forward {
    /// Where to connect to: on 127.0.0.1.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Listens on 127.0.0.1 (`local` 0: any free port) and forwards to the Service's ready pods.
pub async fn forward(client: Client, target: Target, local: u16, tell: Tell) -> Result<Forward, ServiceError> {
    // Asked once before, so that a wrong name is told now and not at the first connection.
    let route = Route::of(&client, &target).await?;
    let refused = |error: std::io::Error| ServiceError {
        service: "this machine".into(),
        operation: format!("listening on 127.0.0.1:{local}"),
        code: if error.kind() == std::io::ErrorKind::AddrInUse { "AddressInUse" } else { "Unreachable" }.into(),
        message: error.to_string(),
        request_id: None,
        status: None,
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let accepting = tokio::spawn(accept(client, route, listener, tell)).abort_handle();
    Ok(Forward { address, accepting })
}

/// Which pods, and which of their ports.
#[derive(Debug, Clone)]
struct Route {
    namespace: String,
    service: String,
    selector: String,
    port: IntOrString,
}

impl Route {
    async fn of(client: &Client, target: &Target) -> Result<Self, ServiceError> {
        let api: Api<Service> = Api::namespaced(client.clone(), &target.namespace);
        let spec = api.get(&target.service).await.answer(&format!("GET services/{}", target.service))?.spec.unwrap_or_default();
        let port = spec.ports.iter().flatten().find(|port| port.port == i32::from(target.port)).cloned();
        let port = port.ok_or_else(|| missing(&target.service, "NoSuchPort", format!("it has no port {}", target.port)))?;
        let selector: Vec<_> = spec.selector.iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
        Ok(Self {
            namespace: target.namespace.clone(),
            service: target.service.clone(),
            selector: selector.join(","),
            port: port.target_port.unwrap_or(IntOrString::Int(port.port)),
        })
    }

    /// The ready pods with the number of the port, newest first: an old one may be about to go.
    async fn pods(&self, client: &Client) -> Result<Vec<(String, u16)>, ServiceError> {
        let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let mut pods = api.list(&ListParams::default().labels(&self.selector)).await.answer("LIST pods")?.items;
        pods.retain(ready);
        pods.sort_by_key(|pod| std::cmp::Reverse(pod.metadata.creation_timestamp.clone().map(|time| time.0)));
        Ok(pods.iter().filter_map(|pod| Some((pod.name_any(), self.number(pod)?))).collect())
    }

    /// Returns when one of its pods is ready.
    async fn some_ready(&self, api: &Api<Pod>) {
        let config = watcher::Config::default().labels(&self.selector);
        let mut changes = pin!(watcher(api.clone(), config).default_backoff().applied_objects());
        while let Some(change) = changes.next().await {
            if change.is_ok_and(|pod| ready(&pod)) {
                return;
            }
        }
    }

    fn number(&self, pod: &Pod) -> Option<u16> {
        match &self.port {
            IntOrString::Int(number) => u16::try_from(*number).ok(),
            IntOrString::String(name) => {
                let containers = &pod.spec.as_ref()?.containers;
                let port = containers.iter().flat_map(|container| container.ports.iter().flatten()).find(|port| port.name.as_ref() == Some(name))?;
                u16::try_from(port.container_port).ok()
            }
        }
    }
}

async fn accept(client: Client, route: Route, listener: TcpListener, tell: Tell) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((connection, _)) => {
                    let (client, route, tell) = (client.clone(), route.clone(), tell.clone());
                    connections.spawn(async move { carry(&client, &route, connection, &tell).await });
                }
                Err(error) => tell(format!("a connection could not be taken: {error}")),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection. A pod that refuses is passed over for the next.
async fn carry(client: &Client, route: &Route, mut connection: TcpStream, tell: &Tell) {
    match stream(client, route).await {
        Ok(mut stream) => {
            // An end of either side is the end of the connection; whoever called sees it.
            let _ = tokio::io::copy_bidirectional(&mut connection, &mut stream).await;
        }
        Err(error) => tell(error.to_string()),
    }
}

/// Until a pod of the Service is ready; for as long a connection is held while none is.
const PATIENCE: Duration = Duration::from_secs(30);

async fn stream(client: &Client, route: &Route) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>, ServiceError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &route.namespace);
    let mut pods = route.pods(client).await?;
    if pods.is_empty() {
        // Whoever called waits for the answer anyway: better late than none.
        let _ = tokio::time::timeout(PATIENCE, route.some_ready(&api)).await;
        pods = route.pods(client).await?;
    }
    let mut last = missing(&route.service, "NoReadyPod", format!("none of its pods is ready, for {} s", PATIENCE.as_secs()));
    for (pod, port) in pods {
        let operation = format!("port-forward to pods/{pod}");
        match api.portforward(&pod, &[port]).await.answer(&operation) {
            Ok(mut forwarder) => match forwarder.take_stream(port) {
                Some(stream) => return Ok(stream),
                None => last = missing(&route.service, "NoStream", format!("pod {pod} gave no stream for port {port}")),
            },
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn missing(service: &str, code: &str, message: String) -> ServiceError {
    ServiceError { service: "kubernetes".into(), operation: format!("port-forward to services/{service}"), code: code.into(), message, request_id: None, status: None }
}
