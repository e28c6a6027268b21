//! What `nemo explain` asks of the cluster.

use kube::Client;

use super::platform;
use super::serve::with_devices;
use crate::config::Spec;
use crate::engine::clock;
use crate::engine::step::StepId;
use crate::error::ServiceError;
use crate::explain::PodFacts;
use crate::k8s::ready::Readiness;
use crate::k8s::told::{self, Told};

/// Where the pods of a step are; of no step in particular: those that serve.
pub fn namespaces(spec: &Spec, step: Option<StepId>) -> Vec<String> {
    match step {
        // EKS's own add-ons are in kube-system.
        Some(StepId::Platform) => [vec!["kube-system".to_owned()], platform::namespaces(spec)].concat(),
        _ => vec![spec.serve.namespace.clone()],
    }
}

/// The pods of these namespaces, in words. Where devices are missing the reason of their plug-in is said, too.
pub async fn pods(client: &Client, namespaces: &[String]) -> Result<Vec<PodFacts>, ServiceError> {
    let mut facts = Vec::new();
    for namespace in namespaces {
        for told in told::pods(client, namespace, clock::now()).await? {
            let mut pod = facts_of(told);
            for words in &mut pod.said {
                if let Readiness::Waiting(more) = with_devices(client, Readiness::Waiting(words.clone())).await? {
                    *words = more;
                }
            }
            facts.push(pod);
        }
    }
    Ok(facts)
}

fn facts_of(told: Told) -> PodFacts {
    let label = |name: &str| told.labels.get(&format!("leaderworkerset.sigs.k8s.io/{name}")).cloned();
    let group = label("name").zip(label("group-index"));
    PodFacts {
        name: told.name,
        node: told.node,
        phase: told.phase,
        ready: told.ready,
        group,
        said: told.said,
        log: told.log,
        ended: told.ended,
        loading: told.loading,
        held: told.held,
    }
}
