//! How many parameters each part has, told apart by how tensor and expert parallelism spread them.

use std::ops::AddAssign;

use crate::config::Architecture;

/// Parameters by how they are spread over GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Routed experts: over the tensor ranks, or whole experts over all ranks.
    pub experts: u64,
    /// Over the tensor ranks.
    pub sharded: u64,
    /// Key and value projections: over at most as many ranks as there are KV heads.
    pub key_value: u64,
    /// On every rank: norms, the router, the projections into and out of the latent space.
    pub replicated: u64,
}

impl Parameters {
    pub fn total(self) -> u64 {
        self.experts + self.rest()
    }

    /// All but the routed experts.
    pub fn rest(self) -> u64 {
        self.sharded + self.key_value + self.replicated
    }
}

impl AddAssign for Parameters {
    fn add_assign(&mut self, other: Self) {
        self.experts += other.experts;
        self.sharded += other.sharded;
        self.key_value += other.key_value;
        self.replicated += other.replicated;
    }
}

/// One layer, by its letter in the pattern.
pub(super) fn layer(architecture: &Architecture, kind: char) -> Parameters {
    let hidden = u64::from(architecture.hidden_size);
    let norm = hidden;
    match kind {
        'M' => {
            let Some(mamba) = &architecture.mamba else { return Parameters::default() };
            let (heads, groups_state) = (u64::from(mamba.heads), u64::from(mamba.groups) * u64::from(mamba.state_size));
            let inner = heads * u64::from(mamba.head_dim);
            let convolved = inner + 2 * groups_state;
            let projections = hidden * (2 * inner + 2 * groups_state + heads) + inner * hidden;
            // Convolution with bias, A, D and dt of each head, the gated norm.
            Parameters { sharded: projections + convolved * (u64::from(mamba.conv_kernel) + 1) + 3 * heads + inner, replicated: norm, ..Parameters::default() }
        }
        '*' => {
            let head_dim = u64::from(architecture.head_dim);
            let (query, key_value) = (hidden * u64::from(architecture.attention_heads) * head_dim, hidden * u64::from(architecture.kv_heads) * head_dim);
            Parameters { sharded: 2 * query, key_value: 2 * key_value, replicated: norm, ..Parameters::default() }
        }
        'E' => {
            let Some(experts) = &architecture.experts else { return Parameters::default() };
            let routed = u64::from(experts.routed);
            let inside = experts.latent_size.map_or(hidden, u64::from);
            let latent = experts.latent_size.map_or(0, |latent| 2 * hidden * u64::from(latent));
            Parameters {
                experts: routed * 2 * inside * u64::from(experts.width),
                sharded: 2 * hidden * u64::from(experts.shared_width),
                // The router has a weight for each hidden value and a bias.
                replicated: latent + routed * hidden + routed + norm,
                ..Parameters::default()
            }
        }
        '-' => Parameters { sharded: 2 * hidden * u64::from(architecture.mlp_width.unwrap_or(0)), replicated: norm, ..Parameters::default() },
        // The gate is a third matrix.
        'D' => {
            let mut both = layer(architecture, '*');
            both += Parameters { sharded: 3 * hidden * u64::from(architecture.mlp_width.unwrap_or(0)), replicated: norm, ..Parameters::default() };
            both
        }
        _ => Parameters::default(),
    }
}

/// Embeddings (first stage) or output head (last stage).
pub(super) fn vocabulary(architecture: &Architecture) -> Parameters {
    Parameters { sharded: u64::from(architecture.vocabulary) * u64::from(architecture.hidden_size), ..Parameters::default() }
}

/// The language model without its draft head.
pub fn language_model(architecture: &Architecture) -> Parameters {
    let mut all = Parameters { replicated: u64::from(architecture.hidden_size), ..Parameters::default() };
    all += vocabulary(architecture);
    all += vocabulary(architecture);
    architecture.pattern.chars().for_each(|kind| all += layer(architecture, kind));
    all
}

/// The draft head: its layers, the projection of two hidden states into one, and three norms.
pub fn draft_head(architecture: &Architecture) -> Parameters {
    let mut all = Parameters::default();
    if !architecture.mtp_pattern.is_empty() {
        let hidden = u64::from(architecture.hidden_size);
        all += Parameters { sharded: 2 * hidden * hidden, replicated: 3 * hidden, ..Parameters::default() };
        architecture.mtp_pattern.chars().for_each(|kind| all += layer(architecture, kind));
    }
    all
}
