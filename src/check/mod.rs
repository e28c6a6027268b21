//! The questions that are asked before anything is made, all at once: each with a verdict, and a fix where there is something to fix.
//! What the answers resolve (revisions, digests, versions, zone, prices) becomes the deployment's pins.

mod account;
mod artefacts;
mod capacity;
mod compute;
mod expose;
mod filesystem;
mod fit;
mod hub;
mod names;
mod network;
mod overlay;
mod price;
mod report;
mod run;
mod zone;

#[cfg(test)]
mod tests;

pub use report::{Answered, Report, Verdict};
pub use run::{Inputs, run};
