//! Every question before money is spent, all at once. (Being written: this much lets the commands be built.)

use std::fmt;

use serde::Serialize;

use crate::aws::Aws;
use crate::config::{Pins, Spec};
use crate::error::Failure;
use crate::secret::Secret;

/// What the questions are about.
pub struct Inputs<'a> {
    pub spec: &'a Spec,
    pub aws: &'a Aws,
    pub http: &'a reqwest::Client,
    pub hub_token: Option<&'a Secret>,
    pub pins: Option<&'a Pins>,
}

/// The answers.
#[derive(Debug, Serialize)]
pub struct Report {
    pub account: Option<String>,
}

impl Report {
    /// The lowest kind of what is red.
    pub fn failure(&self) -> Option<Failure> {
        None
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not checked")
    }
}

/// Asks.
pub async fn run(inputs: Inputs<'_>) -> (Report, Pins) {
    (Report { account: None }, inputs.pins.cloned().unwrap_or_default())
}
