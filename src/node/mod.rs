//! A node: what the agent says of it, and what that proves. Pure; the agent that reads GPUs and adapters is `agent::node`.

mod bisect;
mod fit;
mod judge;
mod said;

pub use bisect::{Culprit, Group, bisect};
pub use judge::{AdapterVerdict, GpuVerdict, Judged, Wanted, judge};
pub use said::{AdapterProbe, AdapterSample, Driver, FiInfo, GpuProbe, GpuSample, Probe, Said, Sample, Say};

#[cfg(test)]
mod tests;
