//! Registries: look up what a tag names, copy it into ECR blob by blob, publish the agent's own image.
//!
//! A small client of the OCI distribution protocol over the HTTP client that the rest of `nemo` uses.

mod auth;
mod chart;
mod client;
mod copy;
mod manifest;
mod own_image;
mod reference;
mod trouble;
mod upstream;

#[cfg(test)]
mod tests;

pub use auth::{Anonymous, Login};
pub use chart::{Artifact, ResolvedChart};
pub use client::Registry;
pub use copy::{Copier, Meter, Target, Way};
pub use manifest::{Descriptor, Document, Manifest, Platform, image_architecture};
pub use own_image::{BINARY, own_image, own_tag};
pub use reference::Reference;
pub use trouble::{Notice, Trouble};
pub use upstream::{Resolved, Upstream};
