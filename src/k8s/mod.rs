//! Kubernetes: client and token, server-side apply, readiness with its reasons, logs, port-forward.
//!
//! Every call returns our types or a [`crate::error::ServiceError`].

pub mod apply;
mod balancer;
pub mod change;
mod client;
pub mod diff;
mod drift;
mod error;
mod forward;
pub mod holds;
mod inside;
pub mod kubeconfig;
mod logs;
pub mod offers;
mod others;
pub mod ready;
mod releases;
mod room;
pub mod told;

pub use apply::{Document, Owner};
pub use balancer::{Balancer, balancer};
pub use client::{Bearer, Clients, Endpoint, TokenSource, client};
pub use error::{Answer, describe, passing};
pub use forward::{Forward, Target, Tell, forward};
pub use logs::Container;
pub use others::others;
pub use releases::{Release, forget, releases};

/// Label of every object that we make.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of every object that we make: the deployment's name.
pub const LABEL_DEPLOYMENT: &str = "nemo.dev/deployment";
/// Label of every object that we make: the step that made it.
pub const LABEL_STEP: &str = "nemo.dev/step";
/// Label of what keeps an earlier set of manifests: its number. It is no part of any set itself.
pub const LABEL_REVISION: &str = "nemo.dev/revision";
/// Label of what we make and no manifest says: it stays until it is taken away by this.
pub const LABEL_KEPT: &str = "nemo.dev/kept";
/// Annotation of every object that we make: the digest of its manifest.
pub const ANNOTATION_INPUTS: &str = "nemo.dev/inputs";
/// Value of [`LABEL_MANAGED_BY`] and field manager of server-side apply.
pub const MANAGER: &str = "nemo";
