//! What each step notes for the others and for the state file: typed here, a table in the state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agent::fetch::ReadRate;
use crate::config::Expose;

/// A subnet of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subnet {
    pub id: String,
    /// `us-east-2a`
    pub zone: String,
    /// `use2-az1`
    pub zone_id: String,
}

/// Noted by `network`: the part `subnets` brings the network's, the part `roles` the roles'.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkFacts {
    pub vpc_id: String,
    pub private_subnets: Vec<Subnet>,
    pub public_subnets: Vec<Subnet>,
    /// All traffic to and from itself, in and out: what EFA needs.
    pub efa_security_group: String,
    /// Lustre ports from the VPC.
    pub filesystem_security_group: String,
    pub cluster_role_arn: String,
    pub node_role_arn: String,
    /// Pod identity of the FSx and EBS CSI drivers.
    pub csi_role_arn: String,
}

/// Noted by `cluster`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterFacts {
    pub name: String,
    pub arn: String,
    pub endpoint: String,
    /// PEM, base64 as EKS gives it.
    pub certificate_authority: String,
    pub version: String,
    /// The security group that EKS made for the cluster.
    pub security_group: String,
}

/// Noted by `system-nodes` and `gpu-nodes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodesFacts {
    pub nodegroup: String,
    /// Names of the Kubernetes nodes, as far as anybody has asked Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// An image or chart in our ECR.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// `account.dkr.ecr.region.amazonaws.com/repository`, from the ECR API.
    pub uri: String,
    pub tag: String,
    pub digest: String,
}

impl Stored {
    /// What a pod spec names: pinned by digest.
    pub fn pinned(&self) -> String {
        format!("{}@{}", self.uri, self.digest)
    }
}

/// Noted by `images`; each image and chart is also a part of that name (`vllm-runtime`, `helm`, `agent`, `chart-lws`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImagesFacts {
    /// By the part's name.
    pub stored: BTreeMap<String, Stored>,
}

/// Noted by `filesystem`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilesystemFacts {
    pub id: String,
    pub dns_name: String,
    pub mount_name: String,
    pub capacity_gib: u32,
}

/// Noted by `storage`: the claim through which pods see the file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageFacts {
    pub namespace: String,
    pub claim: String,
    pub volume: String,
}

/// Noted by `weights`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WeightsFacts {
    /// Folder below the volume's root: `models/nvidia/…/<revision>`.
    pub path: String,
    pub revision: String,
    pub files: u64,
    pub bytes: u64,
    /// Always written, since facts only add to each other.
    #[serde(default)]
    pub read: ReadRate,
}

/// Noted by `serve`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServeFacts {
    pub namespace: String,
    /// Of the frontend; port `http`.
    pub service: String,
    pub port: u16,
    /// The name that requests carry.
    pub model: String,
    /// Ways in from outside the cluster: none, or the gateway. Always written, since facts only add to each other.
    #[serde(default)]
    pub exposed: Vec<Exposed>,
}

/// Where the gateway is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Exposed {
    pub to: Expose,
    /// The load balancer's name.
    pub host: String,
    /// Networks that may connect.
    pub cidrs: Vec<String>,
}

impl ServeFacts {
    /// A question as a command line to copy; `url` is where the frontend is reached.
    pub fn curl(&self, url: &str) -> String {
        let body = serde_json::json!({"model": self.model, "messages": [{"role": "user", "content": "What is 17 + 25? Answer with the number only."}]});
        format!("curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")
    }
}

/// Noted by `test`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestFacts {
    pub passed: Vec<String>,
    /// Digest of the live inputs (serving manifests, weights) that these results are of.
    pub of: String,
}

/// Noted by `bench`: from the records, milliseconds and tokens a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BenchFacts {
    /// Digest of the live inputs and the load that these results are of.
    pub of: String,
    pub aiperf_version: String,
    pub concurrency: u32,
    pub requests: u64,
    pub errors: u64,
    pub ttft_ms_p50: f64,
    pub ttft_ms_p95: f64,
    pub itl_ms_p50: f64,
    pub itl_ms_p95: f64,
    pub output_tokens_per_second: f64,
    pub request_throughput: f64,
    /// Folder on the shared volume that keeps the run.
    pub folder: String,
}
