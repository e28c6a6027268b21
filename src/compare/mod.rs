//! Sweeps side by side: who is ahead where, where they cross, and what of it another honest run would say, too; from aiperf's records, pure.

mod answer;
mod gate;
mod number;
#[cfg(test)]
mod tests;
mod text;

pub use answer::{Answer, answer, told};
pub use gate::{Gate, contradictions};
