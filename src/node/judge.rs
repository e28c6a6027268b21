//! Use on every GPU and traffic on every EFA adapter while NCCL ran: what passes is what did both.

use serde::Serialize;

use super::fit;
use super::said::{AdapterSample, GpuSample, Probe, Sample};

/// Fewer looks than this tell nothing of a run.
const SAMPLES: usize = 3;
/// Per cent that a GPU reaches in at least one look while NCCL runs on it. Assumed: of two H200s in one recorded run of all_reduce each had 82 % and more in some look of every second one, and
/// idle ones stay below 10.
const USED: u32 = 50;
/// Bytes that the start of a connection alone never reaches. Assumed.
const TRAFFIC: u64 = 1 << 20;
/// An adapter that moved less than this part of what its neighbours did is behind. Assumed: NCCL spreads its channels evenly.
const PART: f64 = 0.1;

/// What each node has to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub gpus: u32,
    pub adapters: u32,
    /// More than one node: the adapters have to move something.
    pub over_nodes: bool,
}

/// A node, judged.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Judged {
    pub node: String,
    pub samples: usize,
    pub gpus: Vec<GpuVerdict>,
    pub adapters: Vec<AdapterVerdict>,
    /// Everything that stands against it, in words; empty where it passed.
    pub objections: Vec<String>,
}

/// A GPU, judged.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GpuVerdict {
    pub index: u32,
    pub passed: bool,
    /// The most that was seen of it, in per cent.
    pub peak_used: Option<u32>,
    pub peak_power_w: Option<f64>,
    /// Why it did not pass.
    pub why: Option<String>,
}

/// An adapter, judged.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AdapterVerdict {
    pub device: String,
    pub passed: bool,
    /// Bytes in and out between the first look and the last.
    pub moved: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    pub dropped: u64,
    pub why: Option<String>,
}

impl Judged {
    /// Did everything work?
    pub fn passed(&self) -> bool {
        self.objections.is_empty()
    }
}

/// Judges one node by its samples.
pub fn judge(node: &str, probe: Option<&Probe>, samples: &[Sample], wanted: Wanted) -> Judged {
    let mut objections = Vec::new();
    if samples.len() < SAMPLES {
        objections.push(format!("{} samples of it: too few to tell what it did", samples.len()));
    }
    let unfit = probe.map(|probe| fit::objections(probe, wanted)).unwrap_or_default();
    let said = unfit.len();
    objections.extend(unfit);
    if let Some(why) = probe.and_then(|probe| probe.no_nvml.as_ref()).filter(|_| wanted.gpus > 0) {
        objections.push(why.clone());
    }
    let gpus: Vec<GpuVerdict> = indices(samples, wanted.gpus).into_iter().map(|index| gpu(index, samples)).collect();
    let adapters = adapters(samples, wanted);
    objections.extend(gpus.iter().filter_map(|gpu| Some(format!("GPU {} {}", gpu.index, gpu.why.as_ref()?))));
    objections.extend(adapters.iter().filter_map(|adapter| Some(format!("adapter {} {}", adapter.device, adapter.why.as_ref()?))));
    // Where the probe has said something of the node already, this is the same.
    if adapters.len() < wanted.adapters as usize && said == 0 {
        objections.push(format!("{} of {} EFA adapters were seen", adapters.len(), wanted.adapters));
    }
    Judged { node: node.to_owned(), samples: samples.len(), gpus, adapters, objections }
}

/// Those that have to be there, and those that are.
fn indices(samples: &[Sample], wanted: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..wanted).chain(samples.iter().flat_map(|sample| sample.gpus.iter().map(|gpu| gpu.index))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn gpu(index: u32, samples: &[Sample]) -> GpuVerdict {
    let seen: Vec<&GpuSample> = samples.iter().flat_map(|sample| &sample.gpus).filter(|gpu| gpu.index == index).collect();
    let peak_used = seen.iter().filter_map(|gpu| gpu.used).max();
    let wrong = |pick: fn(&GpuSample) -> Option<u64>| seen.iter().filter_map(|gpu| pick(gpu)).max().zip(seen.iter().find_map(|gpu| pick(gpu))).map(|(last, first)| last - first);
    let why = if let Some(error) = seen.iter().find_map(|gpu| gpu.error.as_ref()) {
        Some(format!("cannot be asked: {error}"))
    } else if let Some(new) = wrong(|gpu| gpu.ecc_uncorrected).filter(|new| *new > 0) {
        Some(format!("had {new} memory errors that ECC could not correct"))
    } else {
        match peak_used {
            None => Some("was never seen: nothing is known of it".to_owned()),
            Some(peak) if peak < USED => Some(format!("was idle: at most {peak} % of it were used in any look")),
            Some(_) => None,
        }
    };
    let peak_power_w = seen.iter().filter_map(|gpu| gpu.power_w).reduce(f64::max);
    GpuVerdict { index, passed: why.is_none(), peak_used, peak_power_w, why }
}

fn adapters(samples: &[Sample], wanted: Wanted) -> Vec<AdapterVerdict> {
    let mut devices: Vec<&str> = samples.iter().flat_map(|sample| sample.adapters.iter().map(|adapter| adapter.device.as_str())).collect();
    devices.sort_unstable();
    devices.dedup();
    let counted: Vec<Vec<&AdapterSample>> =
        devices.iter().map(|device| samples.iter().flat_map(|sample| &sample.adapters).filter(|adapter| adapter.device == *device).collect()).collect();
    let moved: Vec<u64> = counted.iter().map(|seen| traffic(seen)).collect();
    let mut sorted = moved.clone();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let verdict = |((device, seen), moved): ((&&str, &Vec<&AdapterSample>), &u64)| {
        let why = if seen.len() < samples.len().min(SAMPLES) {
            Some(format!("was seen in {} of {} looks", seen.len(), samples.len()))
        } else if !wanted.over_nodes {
            None
        } else if *moved < TRAFFIC {
            Some(format!("moved nothing ({moved} bytes) while NCCL ran"))
        } else if (*moved as f64) < median as f64 * PART {
            Some(format!("moved {moved} bytes where its neighbours moved about {median}"))
        } else {
            None
        };
        let grown = |name: &str| risen(seen, name);
        AdapterVerdict { device: (*device).to_owned(), passed: why.is_none(), moved: *moved, retransmitted: grown("retrans_pkts"), dropped: grown("rx_drops"), why }
    };
    devices.iter().zip(&counted).zip(&moved).map(verdict).collect()
}

/// Bytes in and out. RDMA is counted apart, and not known to be within the port's own bytes in every driver: the larger counts.
fn traffic(seen: &[&AdapterSample]) -> u64 {
    let sum = |names: &[&str]| names.iter().map(|name| risen(seen, name)).sum::<u64>();
    sum(&["rx_bytes", "tx_bytes"]).max(sum(&["rdma_read_bytes", "rdma_read_resp_bytes", "rdma_write_bytes", "rdma_write_recv_bytes", "send_bytes", "recv_bytes"]))
}

/// By how much a counter has risen, look by look: one that begins anew does not count backwards.
fn risen(seen: &[&AdapterSample], name: &str) -> u64 {
    let counts: Vec<u64> = seen.iter().filter_map(|adapter| adapter.counters.get(name).copied()).collect();
    counts.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).sum()
}
