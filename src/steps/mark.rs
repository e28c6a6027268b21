//! Our mark on AWS resources: whose they are and what they were made from.

use std::collections::BTreeMap;

use crate::aws::{TAG_DEPLOYMENT, TAG_INPUTS};
use crate::engine::step::Digest;

/// The tags of everything that a step makes.
pub(super) fn tags(deployment: &str, inputs: &Digest) -> BTreeMap<String, String> {
    BTreeMap::from([(TAG_DEPLOYMENT.to_owned(), deployment.to_owned()), (TAG_INPUTS.to_owned(), inputs.0.clone())])
}

/// Does it carry this deployment's mark?
pub(super) fn is_ours(tags: &BTreeMap<String, String>, deployment: &str) -> bool {
    tags.get(TAG_DEPLOYMENT).is_some_and(|name| name == deployment)
}

/// What it says it was made from.
pub(super) fn inputs_of(tags: &BTreeMap<String, String>) -> Option<Digest> {
    tags.get(TAG_INPUTS).cloned().map(Digest)
}

/// A request token: a call that is repeated after a crash is the same call. `before` is the id of what failed and was
/// deleted, so that making it anew is another call. At most 63 characters, which is what FSx takes.
pub(super) fn token(deployment: &str, what: &str, inputs: &Digest, before: &str) -> String {
    format!("nemo-{what}-{}", Digest::of(&(deployment, what, inputs, before)))
}
