//! The Job that fetches a model's files, and the plan that its agents read.

use serde::Serialize;

use super::SHARED;
use super::environment::{Rendered, render};

/// What the manifests are made from.
#[derive(Debug, Clone, Serialize)]
pub struct Weights {
    pub namespace: String,
    /// Of Job and ConfigMap.
    pub name: String,
    /// The agent's, pinned by digest.
    pub image: String,
    pub workers: u32,
    pub claim: String,
    /// Of the file system behind the claim: what was fetched to another one is not here.
    pub file_system_id: String,
    /// Holds the hub's token while it is needed.
    pub secret: String,
    /// What the agents read: JSON.
    pub plan: String,
}

/// ConfigMap and Job.
pub fn weights(values: &Weights) -> anyhow::Result<Vec<Rendered>> {
    #[derive(Serialize)]
    struct Values<'a> {
        #[serde(flatten)]
        weights: &'a Weights,
        shared: &'static str,
    }
    Ok(vec![render("weights.yaml", &Values { weights: values, shared: SHARED })?])
}
