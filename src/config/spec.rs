//! The checked settings of one deployment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::catalogue::{ChartSource, Compute, Instance, PlatformSet};
use super::expose::Expose;
use super::model::{Model, Precision};
use super::overlay::Overlay;
use super::topology::{FormSetting, Topology};
use crate::engine::wait::Wait;

/// Everything that a deployment is made from; the catalogue entries that it names are resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spec {
    /// Of the deployment; the cluster is called the same.
    pub name: String,
    pub region: String,
    /// The GPU nodes' type.
    pub instance: Instance,
    pub system_instance: Instance,
    pub model: Model,
    /// Key of `model.precisions`: `bf16`.
    pub precision_name: String,
    pub precision: Precision,
    /// Key of `configs/compute.toml`: `managed-node-groups`.
    pub compute_name: String,
    pub compute: Compute,
    /// Key of `configs/platform.toml`: `1.6`.
    pub platform_name: String,
    pub platform: PlatformSet,
    pub network: NetworkSpec,
    pub system: SystemSpec,
    pub gpu: GpuSpec,
    pub storage: StorageSpec,
    pub images: ImagesSpec,
    pub hub: HubSpec,
    pub weights: WeightsSpec,
    pub serve: ServeSpec,
    /// What `render.templates` and `render.patches` lead to.
    pub overlay: Overlay,
    pub bench: BenchSpec,
    pub wait: WaitSpec,
    /// The settings that shape the serving manifests, as text by their keys: kept with each set that has served.
    pub settings: BTreeMap<String, String>,
    /// `--price`: US dollars an hour of one GPU instance.
    pub price_gpu_hour: Option<f64>,
}

impl Spec {
    /// Tokens of a request: what is set, or the model's own.
    pub fn max_model_len(&self) -> u32 {
        if self.serve.max_model_len == 0 { self.model.max_model_len.value } else { self.serve.max_model_len }
    }

    /// The charts that are ours to install, by name: what the nodes' maker brings along is not.
    pub fn charts(&self) -> impl Iterator<Item = (&String, &ChartSource)> {
        self.platform.charts.iter().filter(|(name, _)| !self.compute.brings.contains(name))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Of the VPC, /16 to /20.
    pub cidr: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemSpec {
    pub instance: String,
    pub nodes: u32,
    pub disk_gib: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    pub nodes: u32,
    /// Zone id; empty: one that offers the type.
    pub zone: String,
    pub disk_gib: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageSpec {
    /// MB/s per TiB: 125, 250, 500 or 1000.
    pub throughput: u32,
    /// GiB; 0: the smallest allowed size that holds the weights 1.5 times.
    pub capacity_gib: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImagesSpec {
    /// Blobs that are copied at once; as many again for the serving image, which has its own.
    pub connections: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HubSpec {
    /// Of the Hugging Face hub; `HF_ENDPOINT` sets it too.
    pub endpoint: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightsSpec {
    /// Pods of the Indexed Job.
    pub workers: u32,
    /// At once in each pod.
    pub connections: u32,
    /// Seconds without a byte until a connection is dropped and tried again.
    pub stall_s: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeSpec {
    /// Kubernetes namespace of the model's pods.
    pub namespace: String,
    pub topology: Topology,
    pub form: FormSetting,
    /// Of workers that do everything.
    pub replicas: u32,
    /// Nodes of one replica; 0: what the topology needs at least.
    pub nodes: u32,
    /// Workers of each kind, where the topology has them.
    pub prefill: u32,
    pub decode: u32,
    pub encode: u32,
    /// GPUs of one engine that hold a shard of every layer; 0: the model's own.
    pub tensor_parallel_size: u32,
    /// The same of decode workers; 0: as the others.
    pub decode_tensor_parallel_size: u32,
    /// Tokens; 0: the model's own.
    pub max_model_len: u32,
    pub gpu_memory_utilization: f64,
    /// Hosts, with commas between, that pictures may be fetched from; empty: any public one.
    pub media_domains: String,
    pub expose: Expose,
    /// Networks, with commas between, that may connect; empty: the VPC's own.
    pub allowed_cidrs: String,
    /// PEM files on this machine.
    pub tls_certificate: String,
    pub tls_key: String,
    /// Instead of the files: a Secret that is there.
    pub tls_secret: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenderSpec {
    /// Folder with templates that take the place of ours of the same name; empty: none.
    pub templates: String,
    /// File with patches over what is rendered; empty: none.
    pub patches: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BenchSpec {
    pub concurrency: u32,
    pub requests: u32,
    /// Input tokens a request.
    pub isl: u32,
    /// Output tokens a request.
    pub osl: u32,
    pub seed: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// CloudFormation stacks.
    pub stack: Wait,
    pub cluster: Wait,
    pub nodes: Wait,
    pub addon: Wait,
    pub filesystem: Wait,
    /// Deployments, DaemonSets.
    pub rollout: Wait,
    pub job: Wait,
}
