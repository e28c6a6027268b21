//! Benchmarks: what is asked of aiperf, what it left behind, and numbers that are worked out from its records.
//!
//! aiperf makes the load and is never imitated here. Its exit code and its summary prove little (see [`validity`]); what
//! decides is read from `profile_export.jsonl`.

pub mod level;
pub mod measure;
pub mod plan;
#[cfg(test)]
mod recorded;
pub mod records;
pub mod result;
pub mod said;
mod scan;
pub mod side;
pub mod stats;
pub mod summary;
pub mod validity;
