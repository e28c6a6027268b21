//! What runs inside the cluster, by the same binary.

pub mod bench;
pub mod copy;
pub mod fetch;
pub mod node;
