//! Why it does not serve, by what the cluster says: words in, one sentence out. Pure.

mod cause;
mod symptom;

pub use cause::{Behind, Cause, PodFacts, Workload, cause};
pub use symptom::{Symptom, recognise};
