//! EFA adapters as the kernel tells of them: `/sys/class/infiniband/*/ports/*/hw_counters`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::node::{AdapterProbe, AdapterSample};

/// The counters that are read: each is a question to the adapter, and there are some twenty.
const COUNTERS: &[&str] = &[
    "rx_bytes",
    "tx_bytes",
    "rx_drops",
    "send_bytes",
    "recv_bytes",
    "rdma_read_bytes",
    "rdma_read_resp_bytes",
    "rdma_write_bytes",
    "rdma_write_recv_bytes",
    "retrans_pkts",
    "retrans_bytes",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
];

/// The adapters of a node, with their counters held open: opening them each second would cost more than reading them.
pub(super) struct Adapters {
    adapters: Vec<Adapter>,
}

struct Adapter {
    device: String,
    folder: PathBuf,
    counters: Vec<(&'static str, Vec<File>)>,
}

impl Adapters {
    /// Those under this `/sys`, by name. A node may have devices of others beside EFA's (a B200 node has two of Mellanox's).
    pub(super) fn open(sys: &Path) -> Self {
        let mut adapters: Vec<Adapter> = entries(&sys.join("class/infiniband")).into_iter().filter(|folder| is_efa(folder)).map(Adapter::open).collect();
        adapters.sort_by(|one, other| one.device.cmp(&other.device));
        Self { adapters }
    }

    pub(super) fn probe(&self) -> Vec<AdapterProbe> {
        self.adapters.iter().map(Adapter::probe).collect()
    }

    /// An adapter that has gone is not in it.
    pub(super) fn sample(&self) -> Vec<AdapterSample> {
        self.adapters.iter().filter_map(Adapter::sample).collect()
    }
}

impl Adapter {
    fn open(folder: PathBuf) -> Self {
        let ports = entries(&folder.join("ports"));
        let files = |name: &str| -> Vec<File> { ports.iter().filter_map(|port| File::open(port.join("hw_counters").join(name)).ok()).collect() };
        let counters = COUNTERS.iter().map(|name| (*name, files(name))).filter(|(_, files)| !files.is_empty()).collect();
        Self { device: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(), folder, counters }
    }

    fn probe(&self) -> AdapterProbe {
        let port = entries(&self.folder.join("ports")).into_iter().min().unwrap_or_default();
        AdapterProbe {
            device: self.device.clone(),
            state: word(&port.join("state")),
            rate: word(&port.join("rate")),
            firmware: word(&self.folder.join("fw_ver")),
            counts: self.counters.iter().any(|(name, _)| *name == "rx_bytes"),
        }
    }

    fn sample(&self) -> Option<AdapterSample> {
        let mut counters = BTreeMap::new();
        for (name, files) in &self.counters {
            let counts: Option<Vec<u64>> = files.iter().map(count).collect();
            counters.insert((*name).to_owned(), counts?.iter().sum());
        }
        (!counters.is_empty()).then(|| AdapterSample { device: self.device.clone(), counters })
    }
}

/// The driver's link says whose it is; where there is none, what counts like EFA is one.
fn is_efa(folder: &Path) -> bool {
    match fs::read_link(folder.join("device/driver")) {
        Ok(driver) => driver.file_name().is_some_and(|name| name == "efa"),
        Err(_) => entries(&folder.join("ports")).iter().any(|port| port.join("hw_counters").is_dir()),
    }
}

/// sysfs works a file out anew for every reading from its start.
fn count(file: &File) -> Option<u64> {
    let mut digits = [0_u8; 24];
    let read = file.read_at(&mut digits, 0).ok()?;
    std::str::from_utf8(digits.get(..read)?).ok()?.trim().parse().ok()
}

pub(super) fn word(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
