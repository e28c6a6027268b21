//! One file per step. Steps never ask the user, read flags, print, or write the state.

pub mod facts;

use std::sync::Arc;

use crate::aws::Aws;
use crate::config::{Pins, Spec};
use crate::engine::step::Step;
use crate::secret::Secret;

/// What the steps work with: checked settings, what was resolved at plan time, and the clients.
pub struct Deps {
    pub spec: Arc<Spec>,
    pub pins: Arc<Pins>,
    pub aws: Aws,
    /// For registries and the hub.
    pub http: reqwest::Client,
    /// `HF_TOKEN`, if there is one.
    pub hub_token: Option<Secret>,
}

/// All steps of the walk.
pub fn all(_deps: &Arc<Deps>) -> Vec<Arc<dyn Step>> {
    Vec::new()
}
