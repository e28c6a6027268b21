//! Bus bandwidth against what was published for the same instance type, number of nodes, collective and message size (`configs/nccl-bandwidth.toml`).

use serde::{Deserialize, Serialize};

use super::run::Run;
use crate::config::Figure;
use crate::error::{Kind, fail};

const FILE: &str = include_str!("../../configs/nccl-bandwidth.toml");

/// The file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    least_share: Figure<f64>,
    tables: Vec<Table>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    instance: String,
    nodes: u32,
    collective: String,
    source: String,
    read: String,
    /// MiB and GB/s.
    points: Vec<(u64, f64)>,
}

/// What is expected of a run.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Expected {
    pub source: String,
    pub read: String,
    /// Share of the published figure that passes; assumed.
    pub least_share: f64,
    /// Bytes and GB/s.
    pub points: Vec<(u64, f64)>,
}

/// What this cluster has reached before: for where nothing is published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    pub instance: String,
    pub nodes: u32,
    pub collective: String,
    pub measured: jiff::Timestamp,
    /// Bytes and GB/s out of place.
    pub points: Vec<(u64, f64)>,
}

impl Baseline {
    /// Of a run that has passed; none where it does not say what it ran.
    pub fn of(run: &Run, instance: &str, nodes: u32, measured: jiff::Timestamp) -> Option<Self> {
        // Small messages are latency: their bandwidth differs from run to run.
        let points = run.rows.iter().filter(|row| row.size >= 1 << 20).filter_map(|row| Some((row.size, row.out_of_place?.busbw_gb_s))).collect();
        Some(Self { instance: instance.to_owned(), nodes, collective: run.collective()?.to_owned(), measured, points })
    }

    /// As what is expected of the next run of the same kind; of no other.
    pub fn expected(&self, instance: &str, nodes: u32, collective: &str) -> anyhow::Result<Option<Expected>> {
        if self.instance != instance || self.nodes != nodes || self.collective != collective {
            return Ok(None);
        }
        let read = self.measured.strftime("%Y-%m-%d").to_string();
        Ok(Some(Expected { source: "own baseline".into(), read, least_share: file()?.least_share.value, points: self.points.clone() }))
    }
}

/// One size, beside what is expected.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Compared {
    /// Bytes.
    pub size: u64,
    /// Out of place.
    pub busbw_gb_s: f64,
    pub expected_gb_s: Option<f64>,
    /// Measured by expected.
    pub share: Option<f64>,
    pub verdict: Verdict,
}

/// What the bandwidth at one size says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Reached,
    Below,
    /// Nothing was published for this size.
    None,
}

/// What was published for this; none where nothing was.
pub fn expected(instance: &str, nodes: u32, collective: &str) -> anyhow::Result<Option<Expected>> {
    let file = file()?;
    let table = file.tables.into_iter().find(|table| table.instance == instance && table.nodes == nodes && table.collective == collective);
    Ok(table.map(|table| Expected {
        source: table.source,
        read: table.read,
        least_share: file.least_share.value,
        points: table.points.into_iter().map(|(mib, gb_s)| (mib << 20, gb_s)).collect(),
    }))
}

fn file() -> anyhow::Result<File> {
    Ok(toml::from_str(FILE).map_err(|e| fail(Kind::Bug, format!("configs/nccl-bandwidth.toml: {}", e.message())))?)
}

/// Each size that was measured.
pub fn compare(run: &Run, expected: Option<&Expected>) -> Vec<Compared> {
    let sides = run.rows.iter().filter_map(|row| Some((row.size, row.out_of_place?.busbw_gb_s)));
    sides
        .map(|(size, busbw_gb_s)| {
            let point = expected.and_then(|expected| expected.points.iter().find(|(of, _)| *of == size).map(|(_, gb_s)| (*gb_s, expected.least_share)));
            let (verdict, share) = match point {
                Some((gb_s, least)) if busbw_gb_s >= gb_s * least => (Verdict::Reached, Some(busbw_gb_s / gb_s)),
                Some((gb_s, _)) => (Verdict::Below, Some(busbw_gb_s / gb_s)),
                None => (Verdict::None, None),
            };
            Compared { size, busbw_gb_s, expected_gb_s: point.map(|(gb_s, _)| gb_s), share, verdict }
        })
        .collect()
}
