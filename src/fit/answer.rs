//! The answer: the smallest layout, what it holds, what was ruled out, and the published number beside it.

use std::fmt;

use serde::Serialize;

use super::layout::{Layout, candidates, ruled_out};
use super::memory::{Inputs, Memory, Term, counted, memory};
use super::published::Published;
use crate::config::PublishedGpus;

/// Nodes that are tried; beyond them a layout is no longer what one would begin with.
const NODES: u32 = 4;

/// What `nemo fit` answers.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename = "fit")]
pub struct Answer {
    pub model: String,
    pub precision: String,
    pub instance: String,
    pub gpu: String,
    /// Of one node.
    pub gpus_each: u32,
    /// Tokens of a request, prompt and answer together.
    pub max_model_len: u32,
    /// Requests of that length at once.
    pub concurrency: u32,
    pub gpu_memory_utilization: f64,
    /// Ranks that share each layer, where the settings say it; null: every number was tried.
    pub tensor_parallel_size: Option<u32>,
    /// GB of one GPU that CUDA reports.
    pub visible_gb: f64,
    /// GB of it that the engine may take.
    pub usable_gb: f64,
    /// The layout with the fewest GPUs that holds it.
    pub smallest: Option<Placed>,
    /// Layouts that are smaller, and why each does not do.
    pub tried: Vec<Tried>,
    pub published: Option<Published>,
    /// What the files say of the weights, where it differs from what the architecture gives.
    pub note: Option<String>,
    /// Figures in use that nobody has read at a source.
    pub unverified: Vec<String>,
}

/// A layout that holds it.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Placed {
    pub layout: Layout,
    pub gpus: u32,
    pub nodes: u32,
    /// The fullest of the pipeline, from 1.
    pub stage: u32,
    /// Of one GPU of that stage.
    pub terms: Vec<Term>,
    pub needed_gb: f64,
    /// Tokens that each request may have at this concurrency, up to the model's own limit.
    pub largest_context: u32,
    /// Requests of `max_model_len` at once, on all copies together.
    pub largest_concurrency: u32,
}

/// A layout that does not do.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Tried {
    pub layout: Layout,
    /// Of one GPU; none where it is ruled out by a count that does not divide.
    pub needed_gb: Option<f64>,
    pub reason: String,
}

/// This layout, if it can be and holds it.
pub fn placed(inputs: &Inputs<'_>, layout: Layout) -> Result<Placed, Tried> {
    let architecture = &inputs.model.architecture;
    if let Some(reason) = ruled_out(architecture, layout, inputs.gpus_each()) {
        return Err(Tried { layout, needed_gb: None, reason });
    }
    let stages = memory(inputs, layout);
    let (requests, usable) = (inputs.concurrency.div_ceil(layout.data), inputs.usable_gb());
    let needed = |stage: &Memory| stage.needed_gb(inputs.max_model_len, requests);
    let fullest = stages.iter().max_by(|a, b| needed(a).total_cmp(&needed(b)));
    let Some(fullest) = fullest else { return Err(Tried { layout, needed_gb: None, reason: "it has no stage".into() }) };
    let needed = needed(fullest);
    if needed > usable {
        let reason = format!("a GPU would have to hold {needed:.1} GB, and the engine may take {usable:.1} GB");
        return Err(Tried { layout, needed_gb: Some(rounded(needed)), reason });
    }
    // With more tokens or requests another stage may be the fullest: the tightest of all bounds.
    let context = stages.iter().map(|stage| stage.largest_context(usable, requests)).min().unwrap_or(0);
    let concurrency = stages.iter().map(|stage| stage.largest_concurrency(usable, inputs.max_model_len)).min().unwrap_or(0);
    let terms = fullest.terms(inputs.max_model_len, requests).into_iter().map(|term| Term { gb: rounded(term.gb), ..term });
    Ok(Placed {
        layout,
        gpus: layout.gpus(),
        nodes: layout.nodes(inputs.gpus_each()),
        stage: fullest.stage,
        terms: terms.collect(),
        needed_gb: rounded(needed),
        largest_context: context.min(inputs.model.max_model_len.value),
        largest_concurrency: concurrency.saturating_mul(layout.data),
    })
}

/// Tries every layout of up to four nodes, the smallest first.
pub fn answer(inputs: &Inputs<'_>, table: &PublishedGpus) -> Answer {
    let mut tried = Vec::new();
    let mut smallest = None;
    let wanted = |layout: &Layout| inputs.tensor_parallel_size.is_none_or(|tensor| layout.tensor == tensor);
    for layout in candidates(&inputs.model.architecture, inputs.gpus_each(), NODES).into_iter().filter(wanted) {
        match placed(inputs, layout) {
            Ok(found) => {
                smallest = Some(found);
                break;
            }
            // Once a number of tensor ranks is ruled out, more stages and copies of it are not worth a line each.
            Err(failed) if failed.needed_gb.is_none() && layout.gpus() > layout.tensor => {}
            Err(failed) => tried.push(failed),
        }
    }
    Answer {
        model: inputs.model.name.clone(),
        precision: inputs.precision_name.to_owned(),
        instance: inputs.instance.type_name.clone(),
        gpu: inputs.instance.gpu.clone().unwrap_or_default(),
        gpus_each: inputs.gpus_each(),
        max_model_len: inputs.max_model_len,
        concurrency: inputs.concurrency,
        gpu_memory_utilization: inputs.gpu_memory_utilization,
        tensor_parallel_size: inputs.tensor_parallel_size,
        visible_gb: rounded(inputs.visible_gb()),
        usable_gb: rounded(inputs.usable_gb()),
        published: Published::beside(table, inputs, smallest.as_ref()),
        note: note(inputs),
        unverified: inputs.unverified.to_vec(),
        smallest,
        tried,
    }
}

/// Files hold what is not loaded (the draft head), and some sizes are published in GiB.
fn note(inputs: &Inputs<'_>) -> Option<String> {
    let (files, counted) = (f64::from(inputs.precision.weights_gb.value), inputs.weights_gb());
    let apart = (files - counted).abs() > counted * 0.03;
    apart.then(|| format!("the files are said to have {files:.0} GB; {counted:.1} GB is what the architecture gives without the draft head, and what is used here"))
}

fn rounded(gb: f64) -> f64 {
    (gb * 100.0).round() / 100.0
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} in {} on {} ({} × {}), {} × {}{}",
            self.model,
            self.precision,
            self.instance,
            self.gpus_each,
            self.gpu,
            counted(self.max_model_len, "token"),
            counted(self.concurrency, "request"),
            self.tensor_parallel_size.map(|tensor| format!(", TP {tensor} as serve.tensor_parallel_size says")).unwrap_or_default()
        )?;
        writeln!(f, "each GPU: {:.1} GB, of which the engine may take {:.1} GB ({})\n", self.visible_gb, self.usable_gb, self.gpu_memory_utilization)?;
        match &self.smallest {
            Some(placed) => placed.write(f, self.usable_gb)?,
            None => writeln!(f, "no layout of up to {NODES} nodes holds it")?,
        }
        if let Some(note) = &self.note {
            writeln!(f, "note: {note}")?;
        }
        if !self.tried.is_empty() {
            writeln!(f, "\nsmaller layouts:")?;
            let (shown, copies): (Vec<_>, Vec<_>) = self.tried.iter().partition(|tried| tried.layout.data == 1);
            for tried in shown {
                writeln!(f, "  {:<12} {}", tried.layout.to_string(), tried.reason)?;
            }
            if !copies.is_empty() {
                writeln!(f, "  and {} with copies (DP) that share their experts (EP): none holds it", copies.len())?;
            }
        }
        if !self.unverified.is_empty() {
            writeln!(f, "\nunverified figures in use:\n  {}", self.unverified.join("\n  "))?;
        }
        match &self.published {
            Some(published) => {
                let computed = published.computed_gpus.map_or_else(|| "none".to_owned(), |gpus| gpus.to_string());
                writeln!(f, "\npublished: {}; computed: {computed}\n  {}\n  ({}, read {})", counted(published.gpus, "GPU"), published.explanation, published.source, published.read)
            }
            None => writeln!(f, "\npublished: nothing for {} on {}", self.precision, self.gpu),
        }
    }
}

impl Placed {
    fn write(&self, f: &mut fmt::Formatter<'_>, usable_gb: f64) -> fmt::Result {
        writeln!(f, "smallest: {}: {} on {}", self.layout, counted(self.gpus, "GPU"), counted(self.nodes, "node"))?;
        let stage = if self.layout.pipeline > 1 { format!(" of stage {}, the fullest", self.stage) } else { String::new() };
        writeln!(f, "one GPU{stage}:")?;
        for term in &self.terms {
            writeln!(f, "  {:<12} {:>7.2} GB  {}", term.name, term.gb, term.formula)?;
        }
        writeln!(f, "  {:<12} {:>7.2} GB  of {usable_gb:.2} GB", "together", self.needed_gb)?;
        writeln!(f, "it holds up to {} a request, or {} of this length", counted(self.largest_context, "token"), counted(self.largest_concurrency, "request"))
    }
}
