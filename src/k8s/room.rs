//! A pod that finds no room: could a node ever give what it asks for, and who holds it now?

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;

use super::ready::phase;

/// The resources of which no node has enough for the pod now, by the scheduler's words.
pub(super) fn short(pod: &Pod) -> BTreeSet<String> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let words = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "False").filter_map(|one| one.message.as_deref());
    let name = |rest: &str| rest.split([',', ' ', ';']).next().unwrap_or_default().trim_end_matches('.').to_owned();
    words.flat_map(|words| words.split("Insufficient ").skip(1)).map(name).collect()
}

/// The nodes that could give what the pod is short of, once other pods are gone that are named; none where no node could.
pub(super) fn held(pod: &Pod, pods: &[Pod], nodes: &[Node]) -> Option<String> {
    let short = short(pod);
    let on = |other: &&Pod, node: &str| other.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node) && !["Succeeded", "Failed"].contains(&phase(other));
    // What DaemonSets have never comes free.
    let stays = |other: &&Pod| other.owner_references().iter().any(|owner| owner.kind == "DaemonSet");
    let gives = |node: &&Node| {
        let name = node.name_any();
        short.iter().all(|resource| {
            let of_daemons: f64 = pods.iter().filter(|other| on(other, &name) && stays(other)).map(|other| asked(other, resource)).sum();
            allocatable(node, resource) - of_daemons >= asked(pod, resource)
        })
    };
    let could: Vec<String> = nodes.iter().filter(|node| selected(pod, node)).filter(gives).map(ResourceExt::name_any).collect();
    let holds = |other: &&Pod| !stays(other) && could.iter().any(|node| on(other, node)) && short.iter().any(|resource| asked(other, resource) > 0.0);
    let ending = |other: &Pod| if other.metadata.deletion_timestamp.is_some() { " (ending)" } else { "" };
    let holders: Vec<String> = pods.iter().filter(holds).map(|other| format!("{}{}", other.name_any(), ending(other))).collect();
    (!short.is_empty() && !holders.is_empty()).then(|| format!("{} could give it {}, held now by {}", could.join(", "), Vec::from_iter(short).join(", "), holders.join(", ")))
}

fn selected(pod: &Pod, node: &Node) -> bool {
    let wanted = pod.spec.iter().flat_map(|spec| spec.node_selector.iter().flatten());
    wanted.into_iter().all(|(key, value)| node.labels().get(key) == Some(value))
}

fn asked(pod: &Pod, resource: &str) -> f64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|one| one.resources.as_ref());
    let of = |from: &Option<BTreeMap<String, Quantity>>| from.as_ref().and_then(|all| all.get(resource)).map(amount);
    containers.filter_map(|resources| of(&resources.requests).or_else(|| of(&resources.limits))).sum()
}

fn allocatable(node: &Node, resource: &str) -> f64 {
    node.status.as_ref().and_then(|status| status.allocatable.as_ref()?.get(resource)).map_or(0.0, amount)
}

/// `8`, `95690m`, `16Gi`; what is none of these is taken for nothing.
fn amount(quantity: &Quantity) -> f64 {
    const UNITS: [(&str, f64); 10] =
        [("Ki", 1024.0), ("Mi", 1_048_576.0), ("Gi", 1_073_741_824.0), ("Ti", 1_099_511_627_776.0), ("m", 1e-3), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("", 1.0)];
    UNITS.iter().find_map(|(unit, factor)| Some(quantity.0.strip_suffix(unit)?.parse::<f64>().ok()? * factor)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: Option<&str>, requests: &Value, owner: &str) -> Pod {
        let message = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient vpc.amazonaws.com/efa. preemption: 0/1 nodes are available";
        let condition = if node.is_some() { json!({"type": "PodScheduled", "status": "True"}) } else { json!({"type": "PodScheduled", "status": "False", "message": message}) };
        serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": [{"kind": owner, "name": "o", "apiVersion": "v1", "uid": ""}]},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": if node.is_some() { "Running" } else { "Pending" }, "conditions": [condition]},
        }))
        .unwrap()
    }

    #[test]
    fn what_others_hold_is_told_apart_from_what_no_node_has() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "95690m", "vpc.amazonaws.com/efa": "16"}}})).unwrap();
        let asks = |cpu: &str, efa: &str| json!({"cpu": cpu, "vpc.amazonaws.com/efa": efa});
        let waits = |cpu: &str, efa: &str, others: &[Pod]| held(&pod("w", None, &asks(cpu, efa), "ReplicaSet"), others, std::slice::from_ref(&node));
        let mut old = pod("old", Some("n"), &asks("48", "16"), "ReplicaSet");
        old.metadata.deletion_timestamp = serde_json::from_value(json!("2026-12-01T10:00:00Z")).unwrap();
        let daemon = pod("d", Some("n"), &json!({"cpu": "500m"}), "DaemonSet");
        let others = [old, daemon];
        assert_eq!(waits("48", "16", &others).as_deref(), Some("n could give it cpu, vpc.amazonaws.com/efa, held now by old (ending)"));
        assert_eq!(waits("48", "32", &others), None, "no node has so many");
        assert_eq!(waits("95500m", "16", &others), None, "DaemonSets leave less");
        assert_eq!(waits("48", "16", &others[1..]), None, "nobody holds it");
        assert_eq!(held(&pod("w", Some("n"), &asks("48", "16"), "ReplicaSet"), &others, std::slice::from_ref(&node)), None, "it has its place");
    }
}
