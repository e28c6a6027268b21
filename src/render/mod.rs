//! Settings and facts become manifests: pure, in a fixed order, each parsed before it goes to a cluster.

mod bench;
mod charts;
pub mod cloudformation;
mod component;
mod engine;
mod environment;
mod gateway;
mod patch;
mod serving;
mod storage;
mod variables;
mod weights;

pub use bench::{Bench, SHARED, bench};
pub use charts::{ChartValues, HelmJob, Installer, chart_values, helm_job, installer, namespaces};
pub use component::{Argument, Because, Component, Port, Rank, Template, Value, Variable};
pub use environment::{Manifest, Rendered, Text, render};
pub use gateway::{GATEWAY, Gateway, KEY_SECRET, TLS_SECRET, gateway, key_map};
pub use patch::marks;
pub use serving::{Facts, Routing, Serving, name_of, overlaid, serving, texts};
pub use storage::{Storage, storage, storage_text};
pub use weights::{Weights, weights};
