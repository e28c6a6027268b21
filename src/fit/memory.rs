//! What one GPU has to hold, term by term; every figure in GB of 10^9 bytes.

use serde::Serialize;

use super::layout::Layout;
use super::parameters::{Parameters, draft_head, language_model, layer, vocabulary};
use crate::config::{Architecture, Assumptions, Instance, Model, ModelLayers, Precision};

const GB: f64 = 1e9;
const GIB: f64 = (1_u64 << 30) as f64;

/// What is to fit where.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub model: &'a Model,
    pub precision_name: &'a str,
    pub precision: &'a Precision,
    pub instance: &'a Instance,
    pub assumptions: &'a Assumptions,
    /// Tokens of a request, prompt and answer together.
    pub max_model_len: u32,
    /// Requests of that length at once.
    pub concurrency: u32,
    pub gpu_memory_utilization: f64,
    /// Ranks that share each layer, where the settings say it; else every number is tried.
    pub tensor_parallel_size: Option<u32>,
    /// Cells of the catalogue behind this that nobody has read at a source.
    pub unverified: &'a [String],
}

/// One term, with how it was computed.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Term {
    pub name: String,
    pub gb: f64,
    pub formula: String,
}

/// One GPU of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// Of the pipeline, from 1.
    pub stage: u32,
    /// Weights, encoder, activations, CUDA graphs: whatever the requests.
    pub fixed: Vec<Term>,
    /// GB of one token's keys and values.
    pub token_gb: f64,
    /// GB of one request's Mamba state.
    pub state_gb: f64,
    /// GB of one request's logits: on the last stage alone.
    pub logits_gb: f64,
    vocabulary: u32,
    token_formula: String,
    /// None where the model has no Mamba layers.
    state_formula: Option<String>,
}

impl Inputs<'_> {
    pub(super) fn gpus_each(&self) -> u32 {
        self.instance.gpus.as_ref().map_or(0, |gpus| gpus.value)
    }

    /// Of one GPU, as CUDA reports it.
    pub(super) fn visible_gb(&self) -> f64 {
        let vendor = self.instance.gpu_memory_gb.as_ref().map_or(0.0, |gb| f64::from(gb.value));
        self.instance.gpu_memory_visible_gib.as_ref().map_or(vendor, |gib| gib.value * GIB / GB)
    }

    /// Of one GPU, what the engine may take.
    pub(super) fn usable_gb(&self) -> f64 {
        self.visible_gb() * self.gpu_memory_utilization
    }

    /// All that is loaded, on however many GPUs.
    pub(super) fn weights_gb(&self) -> f64 {
        let language = language_model(&self.model.architecture);
        self.bytes(language) / GB + self.encoders() / GB
    }

    /// Encoders stay in 16 bits in every precision.
    fn encoders(&self) -> f64 {
        let architecture = &self.model.architecture;
        architecture.vision.iter().chain(&architecture.audio).map(|encoder| encoder.parameters.value as f64 * 2.0).sum()
    }

    /// Bytes of one parameter: of a routed expert (by the format), and of the rest (what remains of the files' size).
    fn bytes_each(&self) -> (f64, f64) {
        let (expert, files) = match self.precision_name {
            "fp8" => (1.0, f64::from(self.precision.weights_gb.value) * GB),
            // 4 bits, and a scale of 8 for every 16 of them.
            "nvfp4" => (0.5625, f64::from(self.precision.weights_gb.value) * GB),
            // In 16 bits nothing has to be estimated.
            _ => return (2.0, 2.0),
        };
        let mut all = language_model(&self.model.architecture);
        all += draft_head(&self.model.architecture);
        let rest = (files - self.encoders() - all.experts as f64 * expert) / all.rest() as f64;
        (expert, rest.clamp(expert, 2.0))
    }

    fn bytes(&self, parameters: Parameters) -> f64 {
        let (expert, rest) = self.bytes_each();
        parameters.experts as f64 * expert + parameters.rest() as f64 * rest
    }

    /// What a rank holds of these.
    fn bytes_a_rank(&self, layout: Layout, parameters: Parameters) -> f64 {
        let (expert, rest) = self.bytes_each();
        let (tensor, kv_ranks) = (f64::from(layout.tensor), f64::from(layout.tensor.min(self.model.architecture.kv_heads)));
        let others = parameters.sharded as f64 / tensor + parameters.key_value as f64 / kv_ranks + parameters.replicated as f64;
        parameters.experts as f64 * expert / f64::from(layout.expert_ranks()) + others * rest
    }

    /// Tokens of one step: what the model's flags say, else what is assumed.
    fn batched_tokens(&self) -> u32 {
        let gpu = self.instance.gpu.as_deref().unwrap_or_default();
        let words: Vec<_> = self.model.flags_for(self.precision_name, gpu).flat_map(|flags| &flags.args).collect();
        let mut given = words.iter().zip(words.iter().skip(1)).filter(|(flag, _)| flag.as_str() == "--max-num-batched-tokens").filter_map(|(_, value)| value.parse().ok());
        given.next_back().unwrap_or(self.assumptions.max_num_batched_tokens.value)
    }
}

impl Memory {
    /// All terms with so many tokens a request and so many requests on each copy.
    pub fn terms(&self, max_model_len: u32, requests: u32) -> Vec<Term> {
        let (tokens, requests_) = (f64::from(max_model_len), f64::from(requests));
        let mut terms = self.fixed.clone();
        terms.push(Term {
            name: "KV cache".into(),
            gb: self.token_gb * tokens * requests_,
            formula: format!("{} × {} × {}", self.token_formula, counted(max_model_len, "token"), counted(requests, "request")),
        });
        if let Some(formula) = &self.state_formula {
            terms.push(Term { name: "Mamba state".into(), gb: self.state_gb * requests_, formula: format!("{formula} × {}", counted(requests, "request")) });
        }
        if self.logits_gb > 0.0 {
            let formula = format!("{} of the vocabulary × 4 B × {}", self.vocabulary, counted(requests, "request"));
            terms.push(Term { name: "logits".into(), gb: self.logits_gb * requests_, formula });
        }
        terms
    }

    pub fn needed_gb(&self, max_model_len: u32, requests: u32) -> f64 {
        self.fixed_gb() + (self.token_gb * f64::from(max_model_len) + self.state_gb + self.logits_gb) * f64::from(requests)
    }

    fn fixed_gb(&self) -> f64 {
        self.fixed.iter().map(|term| term.gb).sum()
    }

    /// Tokens that each of so many requests may have.
    pub fn largest_context(&self, usable_gb: f64, requests: u32) -> u32 {
        let each = (usable_gb - self.fixed_gb()) / f64::from(requests.max(1)) - self.state_gb - self.logits_gb;
        whole(each / self.token_gb)
    }

    /// Requests of so many tokens at once.
    pub fn largest_concurrency(&self, usable_gb: f64, max_model_len: u32) -> u32 {
        whole((usable_gb - self.fixed_gb()) / (self.token_gb * f64::from(max_model_len) + self.state_gb + self.logits_gb))
    }
}

/// Down to a whole number; a negative one is none. A stage without KV cache and state bounds nothing.
fn whole(value: f64) -> u32 {
    if value.is_nan() { u32::MAX } else { value.floor().clamp(0.0, f64::from(u32::MAX)) as u32 }
}

/// `1 request`, `2 requests`.
pub(super) fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What a GPU of each stage holds.
pub fn memory(inputs: &Inputs<'_>, layout: Layout) -> Vec<Memory> {
    let mut from = 0;
    let mut stages = Vec::new();
    let pattern: Vec<char> = inputs.model.architecture.pattern.chars().collect();
    for (index, layers) in layout.stages(pattern.len()).into_iter().enumerate() {
        let kinds = &pattern[from..from + layers];
        from += layers;
        stages.push(stage(inputs, layout, index as u32 + 1, kinds));
    }
    stages
}

fn stage(inputs: &Inputs<'_>, layout: Layout, number: u32, kinds: &[char]) -> Memory {
    let architecture = &inputs.model.architecture;
    let mut parameters = Parameters::default();
    kinds.iter().for_each(|kind| parameters += layer(architecture, *kind));
    if number == 1 {
        parameters += vocabulary(architecture);
    }
    if number == layout.pipeline {
        parameters += vocabulary(architecture);
        parameters += Parameters { replicated: u64::from(architecture.hidden_size), ..Parameters::default() };
    }
    let mut fixed = vec![weights(inputs, layout, parameters)];
    if number == 1 {
        fixed.extend(encoder(inputs));
    }
    fixed.push(activations(inputs, layout));
    let (graph, context) = (inputs.assumptions.graph_mb_per_layer.value, inputs.assumptions.context_mb.value);
    fixed.push(Term {
        name: "CUDA graphs".into(),
        gb: (f64::from(graph) * kinds.len() as f64 + f64::from(context)) * 1e6 / GB,
        formula: format!("{} layers × {graph} MB + {context} MB outside the allocator (assumed)", kinds.len()),
    });
    let layers = ModelLayers::of(&kinds.iter().collect::<String>());
    let (token_bytes, token_formula) = token(architecture, inputs.precision, layout, f64::from(layers.attention));
    let (state_bytes, state_formula) = state(inputs.model, layout, f64::from(layers.mamba)).map_or((0.0, None), |(bytes, formula)| (bytes, Some(formula)));
    let vocabulary = architecture.vocabulary;
    let logits_gb = if number == layout.pipeline { f64::from(vocabulary) * 4.0 / GB } else { 0.0 };
    Memory { stage: number, fixed, token_gb: token_bytes / GB, state_gb: state_bytes / GB, logits_gb, vocabulary, token_formula, state_formula }
}

fn weights(inputs: &Inputs<'_>, layout: Layout, parameters: Parameters) -> Term {
    let (expert, rest) = inputs.bytes_each();
    let billions = |count: u64| count as f64 / 1e9;
    let (experts, sharded, kept) = (billions(parameters.experts), billions(parameters.sharded + parameters.key_value), billions(parameters.replicated));
    let routed = if parameters.experts == 0 { String::new() } else { format!("{experts:.1} B of experts × {expert} B / {} + ", layout.expert_ranks()) };
    Term {
        name: "weights".into(),
        gb: inputs.bytes_a_rank(layout, parameters) / GB,
        formula: format!("{routed}({sharded:.2} B / {} + {kept:.2} B on every rank) × {rest:.2} B, without draft head", layout.tensor),
    }
}

/// Encoders are counted whole on every rank: their projectors are not spread, and what is spread of the rest saves less than a GB.
fn encoder(inputs: &Inputs<'_>) -> Option<Term> {
    let architecture = &inputs.model.architecture;
    let vision = architecture.vision.as_ref()?;
    let (tiles, patches) = (vision.tiles.as_ref().map_or(1, |tiles| tiles.value), vision.patches_per_tile.unwrap_or(1024));
    let tokens = (tiles * vision.tokens_per_tile.unwrap_or(256)).max(1);
    let pictures = inputs.model.image_limit.as_ref().map_or(1, |limit| limit.value).min(inputs.batched_tokens().div_ceil(tokens)).max(1);
    let copies = inputs.assumptions.encoder_copies.value;
    let activations = f64::from(pictures) * f64::from(tiles) * f64::from(patches) * f64::from(vision.hidden_size) * f64::from(copies) * 2.0;
    Some(Term {
        name: "encoder".into(),
        gb: (inputs.encoders() + activations) / GB,
        formula: format!(
            "{:.2} B parameters × 2 B + {} × {} × {patches} patches × {} × {copies} copies × 2 B",
            inputs.encoders() / 2e9,
            counted(pictures, "picture"),
            counted(tiles, "tile"),
            vision.hidden_size
        ),
    })
}

fn activations(inputs: &Inputs<'_>, layout: Layout) -> Term {
    let architecture = &inputs.model.architecture;
    let (tokens, copies, hidden) = (inputs.batched_tokens(), inputs.assumptions.hidden_copies.value, architecture.hidden_size);
    let mut wide = f64::from(copies) * f64::from(hidden);
    let mut formula = format!("{} × ({copies} × {hidden}", counted(tokens, "token"));
    if let Some(experts) = &architecture.experts {
        let inside = experts.latent_size.unwrap_or(hidden);
        let width = if layout.expert { f64::from(experts.width) } else { f64::from(experts.width) / f64::from(layout.tensor) };
        wide += f64::from(experts.active) * (2.0 * f64::from(inside) + width);
        formula += &format!(" + {} experts × (2 × {inside} + {width:.0})", experts.active);
    }
    Term { name: "activations".into(), gb: f64::from(tokens) * wide * 2.0 / GB, formula: format!("{formula}) × 2 B") }
}

/// Bytes of one token's keys and values on a rank.
fn token(architecture: &Architecture, precision: &Precision, layout: Layout, attention: f64) -> (f64, String) {
    let bytes = if precision.kv_cache_dtype.value == "fp8" { 1 } else { 2 };
    let heads = architecture.kv_heads.div_ceil(layout.tensor.min(architecture.kv_heads));
    let total = attention * 2.0 * f64::from(heads) * f64::from(architecture.head_dim) * f64::from(bytes);
    (total, format!("{attention} layers × 2 × {heads} of {} KV heads × {} × {bytes} B", architecture.kv_heads, architecture.head_dim))
}

/// Bytes of one request's Mamba state on a rank: of each head, and of the convolution's window.
fn state(model: &Model, layout: Layout, layers: f64) -> Option<(f64, String)> {
    let mamba = model.architecture.mamba.as_ref()?;
    let bytes = if model.mamba_ssm_cache_dtype.as_ref().is_some_and(|dtype| dtype.value == "float32") { 4 } else { 2 };
    let (tensor, inner) = (f64::from(layout.tensor), f64::from(mamba.heads) * f64::from(mamba.head_dim));
    let state = inner * f64::from(mamba.state_size);
    let window = (inner + 2.0 * f64::from(mamba.groups) * f64::from(mamba.state_size)) * f64::from(mamba.conv_kernel - 1);
    let total = layers * (state * f64::from(bytes) + window * 2.0) / tensor;
    Some((total, format!("{layers} layers × ({state:.0} × {bytes} B + {window:.0} × 2 B) / {}", layout.tensor)))
}
