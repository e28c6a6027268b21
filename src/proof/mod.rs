//! Does the cluster work? One answer from what nccl-tests printed and what the agents saw meanwhile. Pure.

mod answer;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Asked, Watched, answer};
