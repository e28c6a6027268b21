//! What the agent says of its node: one JSON object a line, first what the node is, then a sample a second, last that it ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Said {
    Probe(Box<Probe>),
    Sample(Sample),
    /// The last line: the samples that were taken.
    End {
        samples: u64,
    },
}

/// Who is told.
pub type Say<'a> = &'a (dyn Fn(&Said) + Sync);

impl Said {
    /// A line of a log, if it is one of ours and whole.
    pub fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim()).ok()
    }
}

/// What the node is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Probe {
    pub at: jiff::Timestamp,
    pub node: String,
    /// `6.12.40-63.114.amzn2023.x86_64`
    pub kernel: Option<String>,
    pub driver: Option<Driver>,
    /// Why nothing can be said of GPUs; none where NVML answers.
    pub no_nvml: Option<String>,
    pub gpus: Vec<GpuProbe>,
    /// Kernel modules that GPUDirect and EFA need, of those that are loaded, with their versions.
    pub modules: BTreeMap<String, Option<String>>,
    /// Huge pages by their size in kB. Words, since an enum that has its tag inside reads no number back as a key.
    pub huge_pages: BTreeMap<String, u64>,
    pub adapters: Vec<AdapterProbe>,
    /// As the EFA installer notes it.
    pub efa_installed: Option<String>,
    /// None where the program is not there.
    pub fi_info: Option<FiInfo>,
}

/// Versions of the NVIDIA driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Driver {
    pub version: String,
    pub nvml: Option<String>,
    /// The highest CUDA that it runs: `13.0`.
    pub cuda: Option<String>,
}

/// A GPU before anything runs on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GpuProbe {
    pub index: u32,
    pub name: Option<String>,
    pub uuid: Option<String>,
    /// `00000000:53:00.0`
    pub pci: Option<String>,
    pub memory_mib: Option<u64>,
    pub max_sm_mhz: Option<u32>,
    pub power_limit_w: Option<f64>,
    pub ecc: Option<bool>,
    /// Since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    pub ecc_uncorrected: Option<u64>,
    /// NVLink links that are up.
    pub nvlinks: Option<u32>,
    /// What holds the clocks down now, in NVML's words.
    pub throttle: Vec<String>,
    pub mig: Option<bool>,
    /// Why it cannot be asked.
    pub error: Option<String>,
}

/// A network adapter of the kind EFA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AdapterProbe {
    /// `rdmap86s0`
    pub device: String,
    /// `4: ACTIVE`
    pub state: Option<String>,
    pub rate: Option<String>,
    pub firmware: Option<String>,
    /// It counts what it moves.
    pub counts: bool,
}

/// What `fi_info -p efa` said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FiInfo {
    pub found: bool,
    /// Its domains, or its error.
    pub said: Vec<String>,
}

/// A look at all GPUs and adapters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub at: jiff::Timestamp,
    pub gpus: Vec<GpuSample>,
    pub adapters: Vec<AdapterSample>,
}

/// One GPU. What it does not tell is not there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    pub index: u32,
    /// Per cent of the time since the last look in which a kernel ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub celsius: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Why it cannot be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One adapter: what it has counted since its start, by the names that its driver gives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdapterSample {
    pub device: String,
    pub counters: BTreeMap<String, u64>,
}
