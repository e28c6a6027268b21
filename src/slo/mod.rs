//! How much load a deployment carries within latency budgets, and how many of it a target takes; from aiperf's records, pure.

mod answer;
mod budget;
mod size;
#[cfg(test)]
mod tests;

pub use answer::{Answer, answer};
pub use budget::{Budget, Held, Limit, contradictions};
pub use size::{Deployment, Size, Target};
