//! What `nemo explain` asks of the cluster.

use kube::Client;

use super::platform;
use super::serve::{self, with_devices};
use super::serve_change::{after, ending};
use crate::config::Spec;
use crate::engine::clock;
use crate::engine::step::StepId;
use crate::error::ServiceError;
use crate::explain::{Behind, PodFacts, Workload};
use crate::k8s::apply::Found;
use crate::k8s::ready::Readiness;
use crate::k8s::told::{self, Told};
use crate::k8s::{self, Owner, holds};

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

/// What stands behind the pods that serve: the namespace, and the workloads of the step `serve` that are not ready.
pub async fn behind(client: &Client, spec: &Spec) -> Result<Behind, ServiceError> {
    let namespace = &spec.serve.namespace;
    let owner = Owner { deployment: &spec.name, step: StepId::Serve.as_str() };
    let (going, found) = futures::try_join!(holds::going(client, namespace), k8s::apply::list(client, serve::KINDS, owner))?;
    let going = going.map(|held| (ending(namespace, &held), after(namespace)));
    let (mut workloads, mut none_in) = (Vec::new(), Some(namespace.clone()));
    for found in found.iter().filter(|found| found.has_pods() && !found.made) {
        none_in = None;
        workloads.extend(unready(client, found).await?);
    }
    Ok(Behind { namespace: going, workloads, none_in })
}

async fn unready(client: &Client, found: &Found) -> Result<Option<Workload>, ServiceError> {
    let (namespace, name) = (found.namespace.clone().unwrap_or_default(), found.name.as_str());
    let why = if found.going {
        holds::held(client, &found.finalizers).await?
    } else if matches!(found.kind, "Deployment" | "LeaderWorkerSet") && holds::scaled_to_0(client, found.kind, &namespace, name).await? {
        "it is scaled to 0, so it has no pods: nemo apply gives it back what the settings say".to_owned()
    } else {
        let readiness = match found.kind {
            "DynamoGraphDeployment" => k8s::ready::graph(client, &namespace, name).await?,
            "LeaderWorkerSet" => k8s::ready::leader_worker_set(client, &namespace, name).await?,
            _ => k8s::ready::deployment(client, &namespace, name).await?,
        };
        match readiness {
            Readiness::Waiting(why) | Readiness::Failed(why) => why,
            Readiness::Ready | Readiness::Absent => return Ok(None),
        }
    };
    Ok(Some(Workload { title: found.title(), going: found.going, why, idle: holds::idle(client, found.kind).await? }))
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
