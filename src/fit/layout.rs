//! How a model is spread over GPUs, and which ways there are.

use std::fmt;

use serde::Serialize;

use crate::config::Architecture;

/// TP × PP × DP, with or without expert parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Layout {
    /// Ranks that share each layer.
    pub tensor: u32,
    /// Stages, one after the other.
    pub pipeline: u32,
    /// Copies of all that is not an expert.
    pub data: u32,
    /// Whole experts spread over the ranks of tensor and data parallelism.
    pub expert: bool,
}

impl Layout {
    /// One stage, one copy.
    pub fn tensor(tensor: u32) -> Self {
        Self { tensor, pipeline: 1, data: 1, expert: false }
    }

    pub fn gpus(self) -> u32 {
        self.tensor * self.pipeline * self.data
    }

    /// Nodes of so many GPUs.
    pub fn nodes(self, gpus_each: u32) -> u32 {
        self.gpus().div_ceil(gpus_each.max(1))
    }

    /// Ranks that the experts of a layer are spread over.
    pub(super) fn expert_ranks(self) -> u32 {
        if self.expert { self.tensor * self.data } else { self.tensor }
    }

    /// How many layers each stage has: evenly, the remainder from the last but one on backwards, as vLLM deals them.
    pub(super) fn stages(self, layers: usize) -> Vec<usize> {
        let stages = self.pipeline.max(1) as usize;
        let mut each = vec![layers / stages; stages];
        for back in 0..layers % stages {
            each[stages - 2 - back] += 1;
        }
        each
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TP {}", self.tensor)?;
        if self.pipeline > 1 {
            write!(f, " × PP {}", self.pipeline)?;
        }
        if self.data > 1 {
            write!(f, " × DP {}", self.data)?;
        }
        if self.expert {
            write!(f, " with EP {}", self.expert_ranks())?;
        }
        Ok(())
    }
}

/// Every layout of at most so many nodes, the smallest first; of one size the one with the fewest copies and stages. Expert parallelism comes with
/// copies: on the tensor ranks alone it spreads the same bytes.
pub(super) fn candidates(architecture: &Architecture, gpus_each: u32, nodes: u32) -> Vec<Layout> {
    let mut all = Vec::new();
    for tensor in 1..=gpus_each {
        for pipeline in 1..=nodes {
            for data in 1..=gpus_each * nodes {
                for expert in [false, true] {
                    let layout = Layout { tensor, pipeline, data, expert };
                    // Copies that share no experts are replicas.
                    let senseless = !data.is_power_of_two() || expert != (data > 1) || (expert && architecture.experts.is_none());
                    if !senseless && layout.gpus() <= gpus_each * nodes {
                        all.push(layout);
                    }
                }
            }
        }
    }
    all.sort_by_key(|layout| (layout.gpus(), layout.data, layout.pipeline));
    all
}

/// Why this layout cannot be, if it cannot.
pub fn ruled_out(architecture: &Architecture, layout: Layout, gpus_each: u32) -> Option<String> {
    let tensor = layout.tensor;
    if tensor > gpus_each {
        return Some(format!("{tensor} ranks share each layer, and a node has {gpus_each} GPUs"));
    }
    if layout.gpus() > gpus_each && !gpus_each.is_multiple_of(tensor) {
        return Some(format!("{gpus_each} GPUs of a node do not divide into groups of {tensor}, and a group has to be on one node"));
    }
    if layout.gpus() > gpus_each && !layout.gpus().is_multiple_of(gpus_each) {
        return Some(format!("{} GPUs do not fill nodes of {gpus_each}, and every node runs as many ranks", layout.gpus()));
    }
    if layout.pipeline as usize > architecture.pattern.len() {
        return Some(format!("{} stages are more than {} layers", layout.pipeline, architecture.pattern.len()));
    }
    let shared = |what: &str, count: u32| (!count.is_multiple_of(tensor)).then(|| format!("{count} {what} do not divide by {tensor}"));
    let key_value = (!architecture.kv_heads.is_multiple_of(tensor) && !tensor.is_multiple_of(architecture.kv_heads))
        .then(|| format!("{} KV heads neither divide by {tensor} nor divide it", architecture.kv_heads));
    let experts = architecture.experts.as_ref().and_then(|experts| {
        let ranks = layout.expert_ranks();
        if layout.expert {
            (!experts.routed.is_multiple_of(ranks)).then(|| format!("{} experts do not divide by {ranks}", experts.routed))
        } else {
            shared("columns of an expert", experts.width)
        }
    });
    // One group may be copied to every rank; vLLM refuses to split several unevenly.
    let groups = |groups: u32| if groups == 1 { None } else { shared("Mamba groups", groups) };
    shared("attention heads", architecture.attention_heads)
        .or(key_value)
        .or_else(|| architecture.mamba.as_ref().and_then(|mamba| shared("Mamba heads", mamba.heads).or_else(|| groups(mamba.groups))))
        .or(experts)
        .or_else(|| architecture.mlp_width.and_then(|width| shared("columns of the MLP", width)))
}
