//! Is the node fit for a run at all? By what the agent found on it before.

use super::judge::Wanted;
use super::said::{AdapterProbe, GpuProbe, Probe};

/// Linux from this version on offers GPUDirect by dma-buf, without a module of EFA's (failure story 22).
const DMA_BUF: (u32, u32) = (5, 12);

/// What stands against the node, in words.
pub fn objections(probe: &Probe, wanted: Wanted) -> Vec<String> {
    let mut found = Vec::new();
    gpus(probe, wanted, &mut found);
    if wanted.adapters > 0 {
        adapters(probe, wanted, &mut found);
    }
    found
}

fn gpus(probe: &Probe, wanted: Wanted, found: &mut Vec<String>) {
    // Without NVML there is one thing to say, and the judge says it.
    if probe.no_nvml.is_some() {
        return;
    }
    if probe.gpus.len() != wanted.gpus as usize {
        found.push(format!("{} GPUs where there should be {}", probe.gpus.len(), wanted.gpus));
    }
    let most_links = probe.gpus.iter().filter_map(|gpu| gpu.nvlinks).max().unwrap_or_default();
    for gpu in &probe.gpus {
        found.extend(gpu_at_fault(gpu, most_links).map(|why| format!("GPU {} {why}", gpu.index)));
    }
}

fn gpu_at_fault(gpu: &GpuProbe, most_links: u32) -> Option<String> {
    if let Some(error) = &gpu.error {
        return Some(format!("cannot be asked: {error}"));
    }
    if let Some(errors) = gpu.ecc_uncorrected.filter(|errors| *errors > 0) {
        return Some(format!("has had {errors} memory errors that ECC could not correct since its driver was loaded"));
    }
    if gpu.mig == Some(true) {
        return Some("is split (MIG): NCCL has no whole GPU".to_owned());
    }
    if let Some(links) = gpu.nvlinks.filter(|links| *links < most_links) {
        return Some(format!("has {links} NVLink links up where others have {most_links}"));
    }
    let slowed = gpu.throttle.iter().find(|reason| ["hardware slowdown", "too hot (hardware)", "power brake"].contains(&reason.as_str()));
    slowed.map(|reason| format!("is held back before anything runs: {reason}"))
}

fn adapters(probe: &Probe, wanted: Wanted, found: &mut Vec<String>) {
    if probe.adapters.len() != wanted.adapters as usize {
        found.push(format!("{} EFA adapters where there should be {}", probe.adapters.len(), wanted.adapters));
    }
    let fault = |adapter: &AdapterProbe| match &adapter.state {
        Some(state) if !state.contains("ACTIVE") => Some(format!("adapter {} is not active: {state}", adapter.device)),
        _ if !adapter.counts => Some(format!("adapter {} counts nothing: its driver is too old to prove traffic by", adapter.device)),
        _ => None,
    };
    found.extend(probe.adapters.iter().filter_map(fault));
    if let Some(answer) = probe.fi_info.as_ref().filter(|answer| !answer.found) {
        found.push(format!("libfabric finds no EFA: {}", answer.said.first().map_or("no word why", String::as_str)));
    }
    let kernel = probe.kernel.as_deref().and_then(version);
    if !probe.modules.contains_key("efa_nv_peermem") && kernel.is_some_and(|kernel| kernel < DMA_BUF) {
        let kernel = probe.kernel.as_deref().unwrap_or_default();
        found.push(format!("no way for GPUDirect: efa_nv_peermem is not loaded, and Linux {kernel} has no dma-buf for it (N22)"));
    }
}

/// `(6, 12)` of `6.12.40-63.114.amzn2023.x86_64`
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::said::FiInfo;
    use super::*;

    const WANTED: Wanted = Wanted { gpus: 2, adapters: 2, over_nodes: true };

    fn well() -> Probe {
        let gpu = |index| GpuProbe { index, nvlinks: Some(18), ecc_uncorrected: Some(0), mig: Some(false), ..GpuProbe::default() };
        let adapter = |device: &str| AdapterProbe { device: device.into(), state: Some("4: ACTIVE".into()), rate: None, firmware: None, counts: true };
        Probe {
            at: "2026-12-01T10:00:00Z".parse().unwrap(),
            node: "node-0".into(),
            kernel: Some("6.12.40-63.114.amzn2023.x86_64".into()),
            driver: None,
            no_nvml: None,
            gpus: vec![gpu(0), gpu(1)],
            modules: BTreeMap::from([("efa".into(), None)]),
            huge_pages: BTreeMap::new(),
            adapters: vec![adapter("rdmap86s0"), adapter("rdmap87s0")],
            efa_installed: None,
            fi_info: Some(FiInfo { found: true, said: vec!["rdmap86s0-rdm".into()] }),
        }
    }

    #[test]
    fn a_node_that_is_well_is_fit() {
        assert_eq!(objections(&well(), WANTED), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_well_is_named() {
        type Change = fn(&mut Probe);
        let cases: &[(Change, &str)] = &[
            (|probe| drop(probe.gpus.pop()), "1 GPUs where there should be 2"),
            (|probe| probe.gpus[1].nvlinks = Some(17), "GPU 1 has 17 NVLink links up where others have 18"),
            (|probe| probe.gpus[1].ecc_uncorrected = Some(2), "GPU 1 has had 2 memory errors that ECC could not correct since its driver was loaded"),
            (|probe| probe.gpus[0].error = Some("device fell off the bus".into()), "GPU 0 cannot be asked: device fell off the bus"),
            (|probe| probe.gpus[0].mig = Some(true), "GPU 0 is split (MIG): NCCL has no whole GPU"),
            (|probe| probe.gpus[0].throttle = vec!["power brake".into()], "GPU 0 is held back before anything runs: power brake"),
            (|probe| drop(probe.adapters.pop()), "1 EFA adapters where there should be 2"),
            (|probe| probe.adapters[1].state = Some("1: DOWN".into()), "adapter rdmap87s0 is not active: 1: DOWN"),
            (|probe| probe.adapters[1].counts = false, "adapter rdmap87s0 counts nothing: its driver is too old to prove traffic by"),
            (
                |probe| probe.fi_info = Some(FiInfo { found: false, said: vec!["fi_getinfo: -61 (No data available)".into()] }),
                "libfabric finds no EFA: fi_getinfo: -61 (No data available)",
            ),
            (
                |probe| probe.kernel = Some("5.10.220-209.869.amzn2.x86_64".into()),
                "no way for GPUDirect: efa_nv_peermem is not loaded, and Linux 5.10.220-209.869.amzn2.x86_64 has no dma-buf for it (N22)",
            ),
        ];
        for (change, said) in cases {
            let mut probe = well();
            change(&mut probe);
            assert_eq!(objections(&probe, WANTED), [*said]);
        }
    }

    /// An old kernel with the module is as good; clocks that an idle GPU has are no fault; without adapters nobody asks for EFA.
    #[test]
    fn no_more_is_asked_than_the_run_needs() {
        let mut probe = well();
        probe.kernel = Some("5.10.220".into());
        probe.modules.insert("efa_nv_peermem".into(), Some("1.2.0".into()));
        probe.gpus[0].throttle = vec!["power cap".into()];
        assert_eq!(objections(&probe, WANTED), Vec::<String>::new());
        let mut probe = well();
        probe.adapters.clear();
        probe.fi_info = Some(FiInfo { found: false, said: Vec::new() });
        assert_eq!(objections(&probe, Wanted { adapters: 0, ..WANTED }), Vec::<String>::new());
    }
}
