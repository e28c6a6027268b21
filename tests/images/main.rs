//! Images on their way into ECR: copies between real registries, and the step `images`.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../common/mod.rs"]
mod common;
mod copy;
mod registries;
mod step;
