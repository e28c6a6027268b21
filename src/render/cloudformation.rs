//! The templates of the CloudFormation stacks.

use serde::Serialize;

use super::environment::{Rendered, render};

/// The VPC with its subnets and security groups.
#[derive(Debug, Clone, Serialize)]
pub struct Network {
    /// Of the deployment.
    pub name: String,
    pub cidr: String,
    pub zones: Vec<ZoneShare>,
}

/// What the subnets of one zone get of the VPC's addresses.
#[derive(Debug, Clone, Serialize)]
pub struct ZoneShare {
    /// `us-east-2a`
    pub name: String,
    /// `use2-az1`
    pub id: String,
    pub private_cidr: String,
    pub public_cidr: String,
}

/// The private subnets' way out.
#[derive(Debug, Clone, Serialize)]
pub struct Nat {
    /// Of the deployment.
    pub name: String,
    /// The public subnet that it stands in.
    pub subnet: String,
    /// The route table of the private subnets.
    pub table: String,
}

/// The launch template of the GPU nodes.
#[derive(Debug, Clone, Serialize)]
pub struct GpuNodes {
    /// Of the deployment.
    pub name: String,
    pub instance_type: String,
    pub disk_gib: u32,
    /// Security groups of every interface.
    pub groups: Vec<String>,
    pub interfaces: Vec<Interface>,
    /// Key of the tag that says whose the instances are.
    pub tag: &'static str,
}

/// One network interface of the launch template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub card: u32,
    pub device: u32,
    /// `interface` (ENA) or `efa-only`, which takes no address.
    pub kind: &'static str,
}

/// Stack `<name>-network`.
pub fn network(values: &Network) -> anyhow::Result<Rendered> {
    render("network.yaml", values)
}

/// Stack `<name>-nat`.
pub fn nat(values: &Nat) -> anyhow::Result<Rendered> {
    render("nat.yaml", values)
}

/// Stack `<name>-roles`; it needs no values.
pub fn roles() -> anyhow::Result<Rendered> {
    render("roles.yaml", &serde_json::json!({}))
}

/// Stack `<name>-gpu-nodes`.
pub fn gpu_nodes(values: &GpuNodes) -> anyhow::Result<Rendered> {
    render("gpu-nodes.yaml", values)
}
