//! What the fit is made from beside models and instance types: its assumptions, and the published table.

use serde::{Deserialize, Serialize};

use super::catalogue::Figure;

/// `configs/fit.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumptions {
    pub max_num_batched_tokens: Figure<u32>,
    pub hidden_copies: Figure<u32>,
    pub encoder_copies: Figure<u32>,
    pub graph_mb_per_layer: Figure<u32>,
    pub context_mb: Figure<u32>,
}

/// `configs/published-gpus.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedGpus {
    pub source: String,
    pub read: String,
    /// A part of the names of the repositories that it speaks of.
    pub family: String,
    pub rows: Vec<PublishedRow>,
}

/// GPUs of one row, and how many of them each precision takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    pub gpus: Vec<String>,
    pub bf16: u32,
    pub nvfp4: u32,
}

impl PublishedGpus {
    /// The published number for this GPU and precision.
    pub fn gpus(&self, gpu: &str, precision: &str) -> Option<u32> {
        let row = self.rows.iter().find(|row| row.gpus.iter().any(|name| name == gpu))?;
        match precision {
            "bf16" => Some(row.bf16),
            "nvfp4" => Some(row.nvfp4),
            _ => None,
        }
    }
}
