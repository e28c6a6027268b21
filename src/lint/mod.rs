//! Rules over Kubernetes manifests, also ones that nobody rendered here: values in, findings out. Pure.

mod command;
mod finding;
mod fix;
mod flags;
mod known;
mod linter;
mod path;
mod quantity;
mod rule;
mod rules;
mod sarif;
mod workload;
mod yaml;

pub use finding::{Edit, Finding, Severity};
pub use fix::{Change, fixed};
pub use known::Known;
pub use linter::{Answer, Linter};
pub use rule::{Rule, all, rule};
pub use sarif::sarif;
pub use yaml::{BadYaml, documents};
