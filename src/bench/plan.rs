//! What is asked of a benchmark: the file that the agent is started with, and aiperf's command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The version of aiperf that is driven; its wheels are locked in `configs/aiperf-0.13.0.lock`.
pub const AIPERF_VERSION: &str = "0.13.0";

/// One benchmark, as the agent is told it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Names the run and its folder: a digest of what is measured and how.
    pub run: String,
    /// Of the frontend: `http://service.namespace:8000`.
    pub url: String,
    pub model: String,
    /// Folder with the model's tokenizer: that of the weights.
    pub tokenizer: PathBuf,
    /// Where the shared volume is mounted.
    pub shared: PathBuf,
    pub load: Load,
    #[serde(default)]
    pub limits: Limits,
    /// DCGM exporters. None: aiperf does not look for any.
    #[serde(default)]
    pub gpu_telemetry: Vec<String>,
    /// What serves, as seen in the cluster when the run was asked for: kept with the result.
    #[serde(default)]
    pub served: Served,
}

/// The load: settings `bench.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub concurrency: u32,
    pub requests: u32,
    /// Requests before the measured ones.
    pub warmup: u32,
    /// Input tokens a request.
    pub isl: u32,
    /// Output tokens a request.
    pub osl: u32,
    pub seed: u32,
}

impl Load {
    /// Requests of the warm-up: a cold engine takes tens of seconds for its first answers (aws-do-eks pull request 88), 30 requests warm it, or
    /// one a user. A small run is not warmed longer than it is measured.
    pub fn warmup(concurrency: u32, requests: u32) -> u32 {
        concurrency.max(30).min(requests)
    }
}

/// Seconds after which something is given up, and how often a run is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// One request; aiperf's own default is six hours.
    pub request_s: u64,
    /// Until the endpoint lists the model.
    pub model_s: u64,
    /// Without a new record: then aiperf hangs (its issue 1273).
    pub stall_s: u64,
    /// Between SIGINT, which makes it write what it has, and SIGKILL.
    pub stop_s: u64,
    pub attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_s: 600, model_s: 600, stall_s: 660, stop_s: 10, attempts: 2 }
    }
}

/// What was serving, observed and not asserted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Served {
    /// Digest over the serving Deployments as they are in the cluster.
    pub digest: String,
    /// By Deployment and container: its image and its arguments.
    pub containers: BTreeMap<String, Container>,
}

/// One container of a serving pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Container {
    pub image: String,
    pub args: Vec<String>,
}

impl Plan {
    /// The folder of the run on the shared volume.
    pub fn folder(&self) -> PathBuf {
        self.shared.join("runs").join(&self.run)
    }

    /// The arguments of `aiperf` for one attempt.
    pub fn aiperf_args(&self, artifacts: &Path, tokenizer: &Path) -> Vec<String> {
        let Load { concurrency, requests, warmup, isl, osl, seed } = self.load;
        let mut args: Vec<String> =
            ["profile", "--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--extra-inputs", "ignore_eos:true", "--ui", "none"].map(str::to_owned).to_vec();
        let mut add = |flag: &str, value: &dyn std::fmt::Display| args.extend([flag.to_owned(), value.to_string()]);
        add("--model", &self.model);
        add("--url", &self.url);
        add("--tokenizer", &tokenizer.display());
        add("--artifact-dir", &artifacts.display());
        add("--export-level", &"records");
        add("--concurrency", &concurrency);
        add("--request-count", &requests);
        add("--warmup-request-count", &warmup);
        add("--warmup-concurrency", &concurrency.min(warmup));
        // Each prompt once: with aiperf's default of 100 a longer run would find its own prefixes in the engine's cache.
        add("--num-dataset-entries", &(requests + warmup));
        add("--isl", &isl);
        add("--osl", &osl);
        add("--random-seed", &seed);
        add("--request-timeout-seconds", &self.limits.request_s);
        add("--wait-for-model-timeout", &self.limits.model_s);
        add("--wait-for-model-mode", &"models");
        args.push("--no-server-metrics".into());
        match self.gpu_telemetry.is_empty() {
            true => args.push("--no-gpu-telemetry".into()),
            false => args.extend(std::iter::once("--gpu-telemetry".to_owned()).chain(self.gpu_telemetry.iter().cloned())),
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_follows_the_load() {
        assert_eq!((Load::warmup(8, 80), Load::warmup(64, 640), Load::warmup(2, 10)), (30, 64, 10));
    }

    #[test]
    fn telemetry_is_looked_for_only_where_it_is_said_to_be() {
        let mut plan: Plan = serde_json::from_value(serde_json::json!({"run": "r", "url": "http://f:8000", "model": "m", "tokenizer": "/t", "shared": "/s",
            "load": {"concurrency": 8, "requests": 80, "warmup": 30, "isl": 512, "osl": 128, "seed": 42}}))
        .unwrap();
        let line = |plan: &Plan| plan.aiperf_args(Path::new("/s/a"), Path::new("/s/t")).join(" ");
        assert!(line(&plan).ends_with("--no-server-metrics --no-gpu-telemetry"), "{}", line(&plan));
        assert!(
            line(&plan).contains("--streaming --use-server-token-count --extra-inputs ignore_eos:true") && line(&plan).contains("--num-dataset-entries 110"),
            "{}",
            line(&plan)
        );
        plan.gpu_telemetry = vec!["http://dcgm:9400/metrics".into()];
        assert!(line(&plan).ends_with("--no-server-metrics --gpu-telemetry http://dcgm:9400/metrics"));
    }
}
