//! The six cases of every AWS step against the emulator, with the state file lost each time: absent, ours and same, ours and changed,
//! somebody else's, half-made, removed twice. And what goes wrong, in the words of the service.

#![expect(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

#[path = "../common/mod.rs"]
mod common;
mod deployment;
mod six_cases;
mod troubles;

use deployment::Deployment;
use nemo::engine::step::StepId;

/// AWS's latencies divided by this: a control plane takes a quarter of a second.
const FACTOR: u32 = 2000;

/// The steps of these tests, all of them.
const ALL: [StepId; 5] = [StepId::Network, StepId::Cluster, StepId::SystemNodes, StepId::GpuNodes, StepId::Filesystem];
