//! The catalogue files under `configs/`: instance types and sets of versions (models are in `model`). Each figure carries its source.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A figure with where it comes from, or `status = "unverified"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    pub value: T,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

impl<T> Figure<T> {
    /// Nobody has read it at a source: said so in plan and check.
    pub fn unverified(&self) -> bool {
        self.source.is_none() || self.status.as_deref() == Some("unverified")
    }
}

/// An EC2 instance type (`configs/instances/*.toml`): a prediction, checked against DescribeInstanceTypes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    #[serde(rename = "type")]
    pub type_name: String,
    /// `x86_64` or `arm64`, as EC2 writes it.
    pub architecture: String,
    #[serde(default)]
    pub gpus: Option<Figure<u32>>,
    /// As vLLM and the published tables write it: `H200`.
    #[serde(default)]
    pub gpu: Option<String>,
    /// GB (10^9) of one GPU, the vendor's figure.
    #[serde(default)]
    pub gpu_memory_gb: Option<Figure<u32>>,
    /// GiB (2^30) of one GPU that CUDA reports: what `gpu_memory_utilization` is a share of.
    #[serde(default)]
    pub gpu_memory_visible_gib: Option<Figure<f64>>,
    pub vcpus: Figure<u32>,
    pub memory_gib: Figure<u32>,
    /// What a node really allocates, in thousandths of a CPU.
    #[serde(default)]
    pub allocatable_cpu_milli: Option<Figure<u32>>,
    #[serde(default)]
    pub network_cards: Option<Figure<u32>>,
    /// EFA adapters.
    #[serde(default)]
    pub efa: Option<Figure<u32>>,
    /// EKS AMI type of a managed node group.
    pub ami_type: Figure<String>,
    pub quota: Quota,
    /// Settings that this type changes: a layer over the defaults.
    #[serde(default, skip_serializing)]
    pub settings: toml::Table,
}

/// Who makes the GPU nodes (`configs/compute.toml`), and what of that the manifests have to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    pub title: String,
    /// `nemo up` makes such nodes.
    pub walked: bool,
    /// Before the type in the label `node.kubernetes.io/instance-type`.
    pub instance_type_prefix: String,
    /// What GPU pods ask of a node beside its type.
    pub node_labels: Vec<NodeLabel>,
    /// Charts of the platform's set that are there already.
    pub brings: Vec<String>,
    pub source: String,
    pub read: String,
}

/// A label of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLabel {
    pub key: String,
    pub value: String,
}

/// The service quota that an on-demand instance counts against, in vCPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    pub code: String,
    pub name: String,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub read: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
}

/// Versions that belong together (`configs/platform.toml`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlatformSet {
    pub kubernetes: VersionCell,
    pub dynamo: VersionCell,
    pub vllm: VersionCell,
    pub aiperf: VersionCell,
    /// By which `ec_connector` of `--ec-transfer-config` encoded pictures reach another node in this vLLM.
    pub ec_connector: Figure<String>,
    /// In the serving image.
    pub efa_installer: VersionCell,
    pub aws_ofi_nccl: VersionCell,
    /// `None`: none is known that goes with this set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grove: Option<VersionCell>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kai_scheduler: Option<VersionCell>,
    pub images: BTreeMap<String, ImageSource>,
    pub charts: BTreeMap<String, ChartSource>,
    pub addons: Addons,
}

/// A version with its source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionCell {
    pub version: String,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub read: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
}

/// An image that is copied into ECR.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSource {
    /// `registry/repository:tag`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The first step that cannot go on without it, `platform` or `serve`; or what alone needs it: `gateway`, `encode`.
    pub needed_by: String,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub read: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
}

/// A chart that is copied into ECR as an OCI artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartSource {
    /// `oci://registry/repository:version`, or the `https://….tgz` of a chart repository.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Where it is installed.
    pub namespace: String,
    /// Whether helm may bring an installed release to another version.
    #[serde(default = "yes")]
    pub in_place_upgrade: bool,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub read: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
}

/// EKS's own add-ons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addons {
    pub names: Vec<String>,
    /// Which versions of them are taken.
    pub versions: VersionCell,
}

fn yes() -> bool {
    true
}
