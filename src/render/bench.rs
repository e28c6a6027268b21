//! The benchmark's Job and the plan that its agent reads.

use serde::Serialize;

use super::environment::{Rendered, render};

/// Where the pods of a benchmark see the shared volume.
pub const SHARED: &str = "/shared";

/// What the manifests are made from.
#[derive(Debug, Clone, Serialize)]
pub struct Bench {
    pub namespace: String,
    /// Of Job and ConfigMap.
    pub name: String,
    /// Pinned by digest, both.
    pub agent_image: String,
    pub runtime_image: String,
    pub claim: String,
    /// Where the pod sees the shared volume.
    pub shared: &'static str,
    /// What the agent reads: JSON.
    pub plan: String,
}

/// ConfigMap and Job.
pub fn bench(values: &Bench) -> anyhow::Result<Vec<Rendered>> {
    Ok(vec![render("bench.yaml", values)?])
}
