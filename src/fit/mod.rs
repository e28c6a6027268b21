//! Does a model fit? Weights, KV cache, Mamba state, encoder, activations and CUDA graphs against the memory of each GPU; pure.

mod answer;
mod layout;
mod memory;
mod parameters;
mod published;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Placed, Tried, answer, placed};
pub use layout::{Layout, ruled_out};
pub use memory::{Inputs, Memory, Term, memory};
pub use parameters::{Parameters, draft_head, language_model};
pub use published::Published;
