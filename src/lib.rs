//! From an AWS account to a validated, benchmarked endpoint for an NVIDIA Nemotron model on Amazon EKS, and back to nothing.
//!
//! ARCHITECTURE.md is the map.

pub mod agent;
pub mod aws;
pub mod bench;
pub mod check;
pub mod cli;
pub mod compare;
pub mod config;
pub mod endpoint;
pub mod engine;
pub mod error;
pub mod explain;
pub mod fit;
pub mod hub;
pub mod k8s;
pub mod lint;
pub mod nccl;
pub mod node;
pub mod proof;
pub mod registry;
pub mod render;
pub mod report;
pub mod secret;
pub mod slo;
pub mod steps;
pub mod ui;
