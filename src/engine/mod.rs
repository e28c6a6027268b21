//! The engine: walks steps. It knows no AWS, no Kubernetes and no terminal.

pub mod clock;
pub mod event;
pub mod plan;
pub mod state;
pub mod step;
pub mod wait;
pub mod walk;
#[cfg(test)]
mod walk_test;
