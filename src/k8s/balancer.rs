//! The load balancer of a Service: the cloud's controller makes it and writes its address into the Service's status.

use k8s_openapi::api::core::v1::{Event, Service};
use kube::Client;
use kube::api::{Api, ListParams};

use super::error::Answer;
use crate::error::ServiceError;

/// How the load balancer of a Service stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Balancer {
    /// Its name, or its address where it has no name.
    At(String),
    /// None yet; what the controller says about it, if it says something.
    Waiting(Option<String>),
}

/// Of this Service.
pub async fn balancer(client: &Client, namespace: &str, name: &str) -> Result<Balancer, ServiceError> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let found = services.get_opt(name).await.answer(&format!("GET services/{name}"))?;
    if let Some(address) = found.and_then(address) {
        return Ok(Balancer::At(address));
    }
    let about = format!("involvedObject.kind=Service,involvedObject.name={name},type=Warning");
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let mut warnings = events.list(&ListParams::default().fields(&about)).await.answer("LIST events")?.items;
    warnings.sort_by_key(|event| event.last_timestamp.clone().map(|time| time.0));
    Ok(Balancer::Waiting(warnings.pop().map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()))))
}

fn address(service: Service) -> Option<String> {
    let ingress = service.status?.load_balancer?.ingress?.into_iter().next()?;
    ingress.hostname.or(ingress.ip)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_counts_before_the_address() {
        let of = |status| address(serde_json::from_value(json!({"apiVersion": "v1", "kind": "Service", "status": {"loadBalancer": status}})).unwrap());
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({"ingress": [{"hostname": "a.elb.us-east-2.amazonaws.com"}]})).as_deref(), Some("a.elb.us-east-2.amazonaws.com"));
        assert_eq!(of(json!({"ingress": [{"ip": "10.0.0.9"}]})).as_deref(), Some("10.0.0.9"));
    }
}
