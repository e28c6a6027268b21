//! What the kernel and libfabric say of the node.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use super::efa::{entries, word};
use crate::node::FiInfo;

/// Of the driver, of EFA, and of GPUDirect in its ways.
const MODULES: &[&str] = &["nvidia", "nvidia_peermem", "efa", "efa_nv_peermem", "gdrdrv", "ib_uverbs"];
/// `fi_info` asks every adapter; one that hangs does not hold the agent up.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// Those that are loaded, with their versions where they say one.
pub(super) fn modules(sys: &Path) -> BTreeMap<String, Option<String>> {
    let loaded = MODULES.iter().map(|name| (*name, sys.join("module").join(name))).filter(|(_, folder)| folder.is_dir());
    loaded.map(|(name, folder)| (name.to_owned(), word(&folder.join("version")))).collect()
}

/// By size in kB.
pub(super) fn huge_pages(sys: &Path) -> BTreeMap<String, u64> {
    let of = |folder: &Path| {
        let size = folder.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.to_owned();
        Some((size, word(&folder.join("nr_hugepages"))?.parse().ok()?))
    };
    entries(&sys.join("kernel/mm/hugepages")).iter().filter_map(|folder| of(folder)).collect()
}

/// `fi_info -p efa`: the domains that libfabric finds, or its error. Nothing where it is not installed.
pub(super) async fn fi_info(amazon: &Path) -> Option<FiInfo> {
    let own = amazon.join("efa/bin/fi_info");
    let program = if own.is_file() { own.as_path() } else { Path::new("fi_info") };
    let asked = Command::new(program).args(["-p", "efa"]).kill_on_drop(true).output();
    let output = match tokio::time::timeout(ANSWERS_WITHIN, asked).await {
        Ok(Ok(output)) => output,
        Ok(Err(e)) if e.kind() == std::io::ErrorKind::NotFound => return None,
        Ok(Err(e)) => return Some(FiInfo { found: false, said: vec![e.to_string()] }),
        Err(_) => return Some(FiInfo { found: false, said: vec![format!("no answer within {} s", ANSWERS_WITHIN.as_secs())] }),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut domains: Vec<String> = out.lines().filter_map(|line| line.trim().strip_prefix("domain: ")).map(str::to_owned).collect();
    domains.sort();
    domains.dedup();
    if output.status.success() && !domains.is_empty() {
        return Some(FiInfo { found: true, said: domains });
    }
    Some(FiInfo { found: false, said: err.lines().chain(out.lines()).map(str::trim).filter(|line| !line.is_empty()).take(5).map(str::to_owned).collect() })
}
