//! Kubernetes: client and token, server-side apply, readiness with its reasons, logs, port-forward.
//!
//! Every call returns our types or a [`crate::error::ServiceError`].

mod client;
mod error;

pub use client::{Bearer, Clients, Endpoint, TokenSource, client};
pub use error::{Answer, describe, passing};

/// Label of every object that we make.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of every object that we make: the deployment's name.
pub const LABEL_DEPLOYMENT: &str = "nemo.dev/deployment";
/// Annotation of what was made from settings: their digest.
pub const ANNOTATION_INPUTS: &str = "nemo.dev/inputs";
/// Value of [`LABEL_MANAGED_BY`] and field manager of server-side apply.
pub const MANAGER: &str = "nemo";
