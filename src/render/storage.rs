//! The namespace, and the file system as a volume that pods can claim.

use serde::Serialize;

use super::environment::{Rendered, Text, text};

/// What the storage manifests are made from.
#[derive(Debug, Clone, Serialize)]
pub struct Storage {
    pub namespace: String,
    /// Name of the PersistentVolume.
    pub volume: String,
    /// Name of the PersistentVolumeClaim.
    pub claim: String,
    pub capacity_gib: u32,
    pub file_system_id: String,
    pub dns_name: String,
    pub mount_name: String,
}

/// Namespace, volume, claim.
pub fn storage(values: &Storage) -> anyhow::Result<Vec<Rendered>> {
    Ok(vec![storage_text(values)?.parsed()?])
}

/// The same as text.
pub fn storage_text(values: &Storage) -> anyhow::Result<Text> {
    text("storage.yaml", values)
}
