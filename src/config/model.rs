//! A model of the catalogue (`configs/models/*.toml`): where its files are, how it is built, and how it is served.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::catalogue::Figure;
use super::topology::EncodeWorker;

/// What a model takes beside text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    Text,
    /// Pictures and video.
    Vision,
    /// Pictures, video and sound.
    Omni,
}

/// A model (`configs/models/*.toml`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    pub title: String,
    pub modality: Modality,
    /// Its repository's config.json names classes of its own (auto_map), as all of the Nemotron family do: `--trust-remote-code`.
    #[serde(default = "own_classes")]
    pub own_classes: bool,
    pub minimum_vllm: Figure<String>,
    /// Tokens, prompt and answer together.
    pub max_model_len: Figure<u32>,
    /// `--reasoning-parser` of the engine.
    #[serde(default)]
    pub reasoning_parser: Option<Figure<String>>,
    /// `--tool-call-parser` of `vllm serve`; `dynamo.vllm` refuses the flag.
    #[serde(default)]
    pub tool_call_parser: Option<Figure<String>>,
    /// `--dyn-reasoning-parser` of `dynamo.vllm`.
    #[serde(default)]
    pub dyn_reasoning_parser: Option<Figure<String>>,
    /// `--dyn-tool-call-parser` of `dynamo.vllm`.
    #[serde(default)]
    pub dyn_tool_call_parser: Option<Figure<String>>,
    /// Pictures that a request may carry.
    #[serde(default)]
    pub image_limit: Option<Figure<u32>>,
    /// Videos that a request may carry.
    #[serde(default)]
    pub video_limit: Option<Figure<u32>>,
    /// Sound files that a request may carry.
    #[serde(default)]
    pub audio_limit: Option<Figure<u32>>,
    /// `--mamba-ssm-cache-dtype`: of the state that the Mamba layers keep of each sequence.
    #[serde(default)]
    pub mamba_ssm_cache_dtype: Option<Figure<String>>,
    /// Whose workers can encode its pictures apart from the rest.
    #[serde(default)]
    pub encode_worker: Option<Figure<EncodeWorker>>,
    pub architecture: Architecture,
    /// How its own draft head is used, where it has one.
    #[serde(default)]
    pub mtp: Option<Mtp>,
    /// Flags of the engine beyond those that every model gets.
    #[serde(default)]
    pub flags: Vec<Flags>,
    pub precisions: BTreeMap<String, Precision>,
    /// Settings that this model changes: a layer over the instance type's.
    #[serde(default, skip_serializing)]
    pub settings: toml::Table,
}

impl Model {
    /// The flags that hold for this precision on this GPU, in the order of the file.
    pub fn flags_for<'a>(&'a self, precision: &'a str, gpu: &'a str) -> impl Iterator<Item = &'a Flags> {
        self.flags.iter().filter(move |flags| {
            let holds = |only: &[String], is: &str| only.is_empty() || only.iter().any(|name| name == is);
            holds(&flags.precisions, precision) && holds(&flags.gpus, gpu)
        })
    }
}

fn own_classes() -> bool {
    true
}

/// One precision of a model; `source` and `status` are of the repository's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precision {
    /// Hugging Face repository.
    pub repository: String,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub read: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
    /// GB (10^9) of all weight files.
    pub weights_gb: Figure<u32>,
    pub tensor_parallel_size: Figure<u32>,
    /// `--kv-cache-dtype`: `auto` (the model's own 16 bits) or `fp8`.
    pub kv_cache_dtype: Figure<String>,
    /// GB (10^9) of GPU memory that its publisher asks for.
    #[serde(default)]
    pub minimum_gpu_memory_gb: Option<Figure<u32>>,
}

/// How a model is built, from its config.json; `source` is of every figure in the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub read: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
    /// The layers in their order: `M` Mamba-2, `*` attention, `E` mixture of experts, `-` dense MLP, `D` a decoder layer of attention and gated MLP.
    pub pattern: String,
    /// Layers of the draft head (MTP), in the same letters.
    #[serde(default)]
    pub mtp_pattern: String,
    pub hidden_size: u32,
    pub vocabulary: u32,
    pub attention_heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    /// Of the dense MLP layers, and of the MLP in decoder layers.
    #[serde(default)]
    pub mlp_width: Option<u32>,
    #[serde(default)]
    pub mamba: Option<Mamba>,
    #[serde(default)]
    pub experts: Option<Experts>,
    #[serde(default)]
    pub vision: Option<Encoder>,
    #[serde(default)]
    pub audio: Option<Encoder>,
    /// All parameters, draft head and encoders included, where somebody counted them.
    #[serde(default)]
    pub parameters: Option<Figure<u64>>,
}

/// Layers by kind; a decoder layer is one of attention and one of MLP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Layers {
    pub mamba: u32,
    pub attention: u32,
    pub moe: u32,
    pub mlp: u32,
}

impl Layers {
    /// Counts the letters of a pattern.
    pub fn of(pattern: &str) -> Self {
        let count = |letter: char| u32::try_from(pattern.chars().filter(|c| *c == letter).count()).unwrap_or(u32::MAX);
        Self { mamba: count('M'), attention: count('*') + count('D'), moe: count('E'), mlp: count('-') + count('D') }
    }
}

impl Architecture {
    /// Layers by kind, without the draft head's.
    pub fn layers(&self) -> Layers {
        Layers::of(&self.pattern)
    }

    /// Bytes of keys and values that a token leaves in the attention layers, by `--kv-cache-dtype`.
    pub fn kv_bytes_a_token(&self, kv_cache_dtype: &str) -> u64 {
        let each = if kv_cache_dtype.starts_with("fp8") { 1 } else { 2 };
        2 * u64::from(self.layers().attention) * u64::from(self.kv_heads) * u64::from(self.head_dim) * each
    }
}

/// The Mamba-2 layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mamba {
    pub heads: u32,
    pub head_dim: u32,
    pub state_size: u32,
    pub groups: u32,
    pub conv_kernel: u32,
}

/// The layers with a mixture of experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    pub routed: u32,
    /// Of the routed ones, for each token.
    pub active: u32,
    /// That every token goes through.
    pub shared: u32,
    /// Of a routed expert.
    pub width: u32,
    /// Of all shared ones together.
    pub shared_width: u32,
    /// Routed experts work in this smaller space (LatentMoE) instead of the hidden size.
    #[serde(default)]
    pub latent_size: Option<u32>,
}

/// An encoder of pictures or sound with its projector; `source` is of every figure in the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoder {
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub read: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
    pub name: String,
    /// Of encoder and projector.
    pub parameters: Figure<u64>,
    pub hidden_size: u32,
    pub layers: u32,
    pub heads: u32,
    /// Tokens that one tile of a picture becomes.
    #[serde(default)]
    pub tokens_per_tile: Option<u32>,
    /// Tiles of one picture at most, the thumbnail included.
    #[serde(default)]
    pub tiles: Option<Figure<u32>>,
    /// Patches of one tile, before they are merged into tokens.
    #[serde(default)]
    pub patches_per_tile: Option<u32>,
}

/// Multi-token prediction: the model's own draft head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mtp {
    pub num_speculative_tokens: Figure<u32>,
    /// `moe_backend` of the speculative configuration, by GPU (`B200`), where it has to be named.
    #[serde(default)]
    pub moe_backend: Option<Figure<BTreeMap<String, String>>>,
}

/// Flags and variables of the engine that a precision or a GPU needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flags {
    /// Only for these precisions; empty: for all.
    #[serde(default)]
    pub precisions: Vec<String>,
    /// Only on these GPUs (`H200`); empty: on all.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// As the command line has them, each word by itself.
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub read: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
}
