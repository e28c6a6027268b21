//! `nemo agent node`: what the node is, and then once a second what its GPUs and EFA adapters do, as lines of JSON.

mod efa;
mod gpu;
mod system;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use self::efa::Adapters;
use self::gpu::Gpus;
use crate::engine::clock;
use crate::node::{Probe, Said, Sample, Say};

/// Where it looks, and how long.
#[derive(Debug)]
pub struct Look {
    pub node: String,
    pub sys: PathBuf,
    pub proc: PathBuf,
    /// Where the EFA installer puts what it brings: `/opt/amazon`.
    pub amazon: PathBuf,
    /// Name or path of NVML's library.
    pub nvml: OsString,
    /// None: until SIGTERM. Zero: what the node is, and no sample.
    pub seconds: Option<u64>,
    pub every: Duration,
}

/// Says what the node is, samples, and ends with the time or SIGTERM.
pub async fn run(look: &Look, say: Say<'_>) -> anyhow::Result<()> {
    // The first process of a pod gets no default for SIGTERM: without this it would be ignored until SIGKILL.
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let (gpus, adapters) = (Gpus::open(&look.nvml), Adapters::open(&look.sys));
    say(&Said::Probe(Box::new(probe(look, &gpus, &adapters).await)));
    let began = Instant::now();
    let end = look.seconds.map(Duration::from_secs);
    let mut samples = 0_u32;
    // Each look has its time from the beginning: no delay adds up.
    while end.is_none_or(|end| look.every * samples < end) {
        tokio::select! {
            () = clock::sleep((look.every * samples).saturating_sub(began.elapsed())) => {}
            _ = terminate.recv() => break,
        }
        say(&Said::Sample(Sample { at: clock::now(), gpus: gpus.sample(), adapters: adapters.sample() }));
        samples += 1;
    }
    say(&Said::End { samples: u64::from(samples) });
    Ok(())
}

async fn probe(look: &Look, gpus: &Gpus, adapters: &Adapters) -> Probe {
    Probe {
        at: clock::now(),
        node: look.node.clone(),
        kernel: efa::word(&look.proc.join("sys/kernel/osrelease")),
        driver: gpus.driver(),
        no_nvml: gpus.missing(),
        gpus: gpus.probe(),
        modules: system::modules(&look.sys),
        huge_pages: system::huge_pages(&look.sys),
        adapters: adapters.probe(),
        efa_installed: efa::word(&look.amazon.join("efa_installed_packages")),
        fi_info: system::fi_info(&look.amazon).await,
    }
}

#[cfg(test)]
mod tests;
