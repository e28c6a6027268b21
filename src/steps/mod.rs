//! One file per step. Steps never ask the user, read flags, print, or write the state.

mod apart;
pub mod bench;
mod bench_job;
#[cfg(test)]
mod bench_test;
pub mod certificate;
mod cidr;
pub mod cluster;
mod encoded;
mod engines;
pub mod explain;
pub mod facts;
pub mod filesystem;
pub mod gateway;
pub mod gpu_nodes;
pub mod history;
pub mod images;
pub mod linted;
pub mod live;
mod loading;
mod mark;
mod moved;
pub mod network;
mod nodegroup;
mod objects;
pub mod platform;
pub mod serve;
mod serve_change;
mod served;
mod stack;
pub mod storage;
pub mod system_nodes;
mod taken;
pub mod test;
mod vpc;
pub mod weights;
mod weights_job;
#[cfg(test)]
mod weights_test;

use std::sync::{Arc, RwLock};

use crate::aws::Aws;
use crate::config::{Pins, Spec};
use crate::engine::clock;
use crate::engine::step::{Cx, Step, StepId};
use crate::k8s;
use crate::secret::Secret;

pub use apart::apart;

use facts::ClusterFacts;
use live::Live;

/// What the steps work with: checked settings, what was resolved at plan time, and the clients.
pub struct Deps {
    pub spec: Arc<Spec>,
    pub pins: Arc<Pins>,
    pub aws: Aws,
    /// For registries and the hub.
    pub http: reqwest::Client,
    /// `HF_TOKEN`, if there is one.
    pub hub_token: Option<Secret>,
    /// For the gateway, where the model is exposed.
    pub gateway: gateway::Given,
    /// Filled by [`Deps::kube`].
    pub kube_clients: k8s::Clients,
    /// Filled by [`Deps::look_live`].
    live: RwLock<Live>,
}

impl Deps {
    /// Puts them together.
    pub fn new(spec: Arc<Spec>, pins: Arc<Pins>, aws: Aws, http: reqwest::Client, hub_token: Option<Secret>) -> Self {
        Self { spec, pins, aws, http, hub_token, gateway: gateway::Given::default(), kube_clients: k8s::Clients::default(), live: RwLock::default() }
    }

    /// The same with what the user gave for the gateway.
    pub fn with_gateway(self, gateway: gateway::Given) -> Self {
        Self { gateway, ..self }
    }

    /// The client of the cluster that the step `cluster` noted; its tokens are signed and renewed in the process.
    pub fn kube(&self, cx: &Cx) -> anyhow::Result<kube::Client> {
        self.kube_of(&cx.facts_of(StepId::Cluster)?)
    }

    /// As [`Deps::kube`], for commands that have the facts at hand.
    pub fn kube_of(&self, cluster: &ClusterFacts) -> anyhow::Result<kube::Client> {
        let endpoint = k8s::Endpoint { url: cluster.endpoint.clone(), certificate_authority: cluster.certificate_authority.clone() };
        let client = self.kube_clients.get_or_make(&endpoint, &cluster.name, || {
            let (aws, name) = (self.aws.clone(), cluster.name.clone());
            let tokens: k8s::TokenSource = Arc::new(move || {
                let (aws, name) = (aws.clone(), name.clone());
                Box::pin(async move {
                    let token = aws.cluster_token(&name, clock::now()).await?;
                    Ok(k8s::Bearer { token: token.value, expires: token.expires })
                })
            });
            k8s::client(&endpoint, tokens, clock::now)
        })?;
        Ok(client)
    }
}

/// All steps of the walk.
pub fn all(deps: &Arc<Deps>) -> Vec<Arc<dyn Step>> {
    vec![
        Arc::new(network::Network { deps: deps.clone() }),
        Arc::new(cluster::Cluster { deps: deps.clone() }),
        Arc::new(system_nodes::SystemNodes { deps: deps.clone() }),
        Arc::new(gpu_nodes::GpuNodes { deps: deps.clone() }),
        Arc::new(filesystem::Filesystem { deps: deps.clone() }),
        Arc::new(platform::Platform { deps: deps.clone() }),
        Arc::new(storage::Storage { deps: deps.clone() }),
        Arc::new(serve::Serve::new(deps.clone())),
        Arc::new(test::Test { deps: deps.clone() }),
        Arc::new(bench::Bench { deps: deps.clone() }),
        Arc::new(images::Images { deps: deps.clone() }),
        Arc::new(weights::Weights { deps: deps.clone() }),
    ]
}
