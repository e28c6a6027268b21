//! The serving pods: Dynamo's frontend and vLLM workers as plain Deployments with discovery through the Kubernetes API.

use serde::Serialize;

use super::environment::{Rendered, render};
use crate::config::{Figure, Spec};

/// Seconds from the last byte read until the engine takes requests: profiling, compilation, CUDA graphs. Assumed; kernels that are
/// compiled for the first time took minutes on the reference's clusters.
const ENGINE_START_S: u64 = 900;
/// Seconds between two startup probes, as in the template.
const STARTUP_PERIOD_S: u64 = 5;
/// Names of Service and Deployment.
const FRONTEND: &str = "frontend";
const WORKER: &str = "vllm-worker";
const PORT: u16 = 8000;

/// What the serving manifests are made from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Serving {
    pub namespace: String,
    /// Dynamo's own: workers and frontends of one find each other.
    pub dynamo_namespace: String,
    pub frontend: &'static str,
    pub worker: &'static str,
    pub port: u16,
    pub replicas: u32,
    /// Pinned by digest.
    pub image: String,
    pub instance_type: String,
    pub gpus: u32,
    pub efa: u32,
    pub claim: String,
    /// Below the volume's root.
    pub model_path: String,
    pub served_model_name: String,
    pub tensor_parallel_size: u32,
    pub max_model_len: u32,
    pub gpu_memory_utilization: f64,
    /// `auto` or `fp8`.
    pub kv_cache_dtype: String,
    /// JSON, as the flag wants it: `{"image":8}`; none of a model that reads text alone.
    pub image_limit: Option<String>,
    pub mamba_ssm_cache_dtype: Option<String>,
    pub reasoning_parser: Option<String>,
    pub dyn_reasoning_parser: Option<String>,
    pub dyn_tool_call_parser: Option<String>,
    pub weights_gb: u64,
    pub read_mb_s: u64,
    pub engine_start_s: u64,
    /// Until the engine must take requests.
    pub startup_s: u64,
    pub startup_failures: u64,
}

impl Serving {
    /// From the settings and what only the cloud knows: image, claim, folder and bytes of the weights, size of the file system.
    pub fn new(spec: &Spec, image: String, claim: String, model_path: String, weight_bytes: u64, capacity_gib: u32) -> Self {
        // The catalogue's figure is the floor: what was counted may be a part.
        let weights_gb = u64::from(spec.precision.weights_gb.value).max(weight_bytes / 1_000_000_000);
        let read_mb_s = (u64::from(spec.storage.throughput) * u64::from(capacity_gib) / 1024).max(1);
        let startup_s = 2 * weights_gb * 1000 / read_mb_s + ENGINE_START_S;
        Self {
            namespace: spec.serve.namespace.clone(),
            dynamo_namespace: spec.name.clone(),
            frontend: FRONTEND,
            worker: WORKER,
            port: PORT,
            replicas: spec.serve.replicas,
            image,
            instance_type: spec.instance.type_name.clone(),
            gpus: spec.instance.gpus.as_ref().map_or(0, |gpus| gpus.value),
            efa: spec.instance.efa.as_ref().map_or(0, |efa| efa.value),
            claim,
            model_path,
            served_model_name: spec.precision.repository.clone(),
            tensor_parallel_size: spec.precision.tensor_parallel_size.value,
            max_model_len: spec.max_model_len(),
            gpu_memory_utilization: spec.serve.gpu_memory_utilization,
            kv_cache_dtype: spec.precision.kv_cache_dtype.value.clone(),
            image_limit: spec.model.image_limit.as_ref().map(|limit| serde_json::json!({"image": limit.value}).to_string()),
            mamba_ssm_cache_dtype: value(&spec.model.mamba_ssm_cache_dtype),
            reasoning_parser: value(&spec.model.reasoning_parser),
            dyn_reasoning_parser: value(&spec.model.dyn_reasoning_parser),
            dyn_tool_call_parser: value(&spec.model.dyn_tool_call_parser),
            weights_gb,
            read_mb_s,
            engine_start_s: ENGINE_START_S,
            startup_s,
            startup_failures: startup_s.div_ceil(STARTUP_PERIOD_S),
        }
    }
}

fn value(figure: &Option<Figure<String>>) -> Option<String> {
    figure.as_ref().map(|figure| figure.value.clone())
}

/// Access, frontend, worker.
pub fn serving(values: &Serving) -> anyhow::Result<Vec<Rendered>> {
    Ok(vec![render("access.yaml", values)?, render("frontend.yaml", values)?, render("worker.yaml", values)?])
}
