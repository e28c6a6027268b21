//! The answer of `nemo test cluster`: every GPU used and every EFA adapter with traffic, over the plug-in with GPUDirect, and the bandwidth beside what was published.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::nccl::{self, Baseline, Compared, Expected, Objection, Run, Transport, Verdict, compare, expected};
use crate::node::{Judged, Probe, Said, Sample, Wanted, judge};

/// What was asked of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub instance: String,
    pub nodes: u32,
    /// Of each node.
    pub gpus: u32,
    pub adapters: u32,
    /// What this cluster has reached before, if that was kept.
    pub baseline: Option<Baseline>,
}

/// What the agent of one node said.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    pub probe: Option<Probe>,
    pub samples: Vec<Sample>,
}

/// What `nemo test cluster` answers.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename = "cluster-test")]
pub struct Answer {
    pub passed: bool,
    pub instance: String,
    pub nodes: u32,
    /// What NCCL ran, and how fast.
    pub run: Run,
    pub bandwidth: Vec<Compared>,
    /// Where the bandwidth that is expected comes from, or why there is none.
    pub expected: String,
    pub transport: Transport,
    pub transport_objections: Vec<Objection>,
    /// Use and traffic by node.
    pub watched: Vec<Judged>,
    /// What each agent found before the run.
    pub probes: Vec<Probe>,
    /// Everything that stands against the cluster.
    pub objections: Vec<String>,
}

impl Watched {
    /// Reads the agents' lines, whoever's they are: a log may hold several, and lines of others. By node.
    pub fn read<'a>(logs: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, Self> {
        let mut nodes: BTreeMap<String, Self> = BTreeMap::new();
        for log in logs {
            let mut node = None;
            for said in log.lines().filter_map(Said::read) {
                match said {
                    Said::Probe(probe) => {
                        node = Some(probe.node.clone());
                        let seen = nodes.entry(probe.node.clone()).or_default();
                        seen.probe = Some(*probe);
                    }
                    // Samples without the probe before them are nobody's.
                    Said::Sample(sample) => nodes.entry(node.clone().unwrap_or_else(|| "unknown node".into())).or_default().samples.push(sample),
                    Said::End { .. } => {}
                }
            }
        }
        nodes
    }
}

/// Judges the run by the logs of its ranks, and what nccl-tests wrote as JSON where it did.
pub fn answer(asked: &Asked, logs: &[String], json: Option<&str>, watched: &BTreeMap<String, Watched>) -> anyhow::Result<Answer> {
    // The last line of a log that was cut must not become whole by the next log behind it.
    let log: String = logs.iter().map(|log| log.rfind('\n').map_or("", |end| &log[..=end])).collect();
    let (run, transport) = (nccl::read(json.unwrap_or(&log).as_bytes()), Transport::read(&log));
    let published = match run.collective() {
        Some(collective) => hoped_for(asked, collective)?,
        None => None,
    };
    let bandwidth = compare(&run, published.as_ref());
    let transport_objections = transport.objections(asked.nodes);
    let wanted = Wanted { gpus: asked.gpus, adapters: asked.adapters, over_nodes: asked.nodes > 1 };
    let judged: Vec<Judged> = watched.iter().map(|(node, seen)| judge(node, seen.probe.as_ref(), &seen.samples, wanted)).collect();

    let mut objections = run.objections();
    objections.extend(transport_objections.iter().map(|objection| format!("{} ({})", objection.what, objection.rule)));
    objections.extend(judged.iter().flat_map(|judged| judged.objections.iter().map(|why| format!("{}: {why}", judged.node))));
    if judged.len() < asked.nodes as usize {
        objections.push(format!("{} of {} nodes were watched: use and traffic of the others are not known", judged.len(), asked.nodes));
    }
    objections.extend(
        bandwidth
            .iter()
            .filter(|one| one.verdict == Verdict::Below)
            .map(|one| format!("{:.1} GB/s at {}, where {:.0} are expected", one.busbw_gb_s, size(one.size), one.expected_gb_s.unwrap_or_default())),
    );
    let expected = match &published {
        Some(published) => format!("{}, read {}; {:.0} % of it pass (assumed)", published.source, published.read, published.least_share * 100.0),
        None => format!(
            "nothing is published for {} of {} × {} by message size: bandwidth gives no verdict, use and traffic decide",
            run.collective().unwrap_or("this"),
            asked.nodes,
            asked.instance
        ),
    };
    Ok(Answer {
        passed: objections.is_empty(),
        instance: asked.instance.clone(),
        nodes: asked.nodes,
        run,
        bandwidth,
        expected,
        transport,
        transport_objections,
        watched: judged,
        probes: watched.values().filter_map(|seen| seen.probe.clone()).collect(),
        objections,
    })
}

/// What is published; where nothing is, the cluster's own baseline.
fn hoped_for(asked: &Asked, collective: &str) -> anyhow::Result<Option<Expected>> {
    let published = expected(&asked.instance, asked.nodes, collective)?;
    match (&published, &asked.baseline) {
        (None, Some(baseline)) => baseline.expected(&asked.instance, asked.nodes, collective),
        _ => Ok(published),
    }
}

/// `128 MiB`
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {} × {}", self.run.program.as_deref().unwrap_or("a run of an unknown program"), self.nodes, self.instance)?;
        writeln!(f, "{:>10}  {:>12}  {:>12}  {:>8}", "size", "busbw, GB/s", "expected", "share")?;
        // Small messages are latency: their bandwidth says nothing.
        for one in self.bandwidth.iter().filter(|one| one.size >= 1 << 20) {
            let published = one.expected_gb_s.map_or("-".into(), |gb_s| format!("{gb_s:.0}"));
            let share = one.share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0));
            let mark = if one.verdict == Verdict::Below { " !" } else { "" };
            writeln!(f, "{:>10}  {:>12.1}  {published:>12}  {share:>8}{mark}", size(one.size), one.busbw_gb_s)?;
        }
        writeln!(f, "expected: {}", self.expected)?;
        let Transport { channels, gpudirect_channels, .. } = self.transport;
        let networks: Vec<&str> = self.transport.networks.values().flatten().map(String::as_str).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        writeln!(
            f,
            "network: {}; {channels} connections between nodes, {gpudirect_channels} with GPUDirect RDMA",
            if networks.is_empty() { "not said".into() } else { networks.join(", ") }
        )?;
        for node in &self.watched {
            node.fmt(f)?;
        }
        if self.passed {
            return write!(f, "passed: every GPU was used{}", if self.nodes > 1 { ", every EFA adapter had traffic, over the plug-in with GPUDirect" } else { "" });
        }
        write!(f, "failed:")?;
        self.objections.iter().try_for_each(|why| write!(f, "\n  {why}"))
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |passed: bool| if passed { "" } else { " !" };
        let gpus: Vec<String> =
            self.gpus.iter().map(|gpu| format!("{}: {}{}", gpu.index, gpu.peak_used.map_or("?".into(), |peak| format!("{peak} %")), mark(gpu.passed))).collect();
        writeln!(f, "{}: {} samples; GPUs at their peak: {}", self.node, self.samples, gpus.join(", "))?;
        for adapter in &self.adapters {
            let again = if adapter.retransmitted > 0 { format!(", {} packets sent again", adapter.retransmitted) } else { String::new() };
            let dropped = if adapter.dropped > 0 { format!(", {} dropped", adapter.dropped) } else { String::new() };
            writeln!(f, "  {}: {:.1} GB{again}{dropped}{}", adapter.device, adapter.moved as f64 / 1e9, mark(adapter.passed))?;
        }
        Ok(())
    }
}
