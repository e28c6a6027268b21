//! Manifests and indexes of both families, OCI's and Docker's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Everything that is asked for: a registry answers 404 for a type that is not named.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// `sha256:…` of some bytes.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    hex_digest(&Sha256::digest(bytes))
}

/// `sha256:…` of a finished hash.
pub(super) fn hex_digest(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A manifest or index as the registry keeps it: its bytes are its name.
#[derive(Debug, Clone)]
pub struct Manifest {
    pub digest: String,
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// What such bytes say. Fields that `nemo` does not use stay in the bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Descriptor>,
    /// Of an index: the manifests of the architectures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A pointer to a blob or a manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    pub digest: String,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// What a member of an index runs on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    pub architecture: String,
    pub os: String,
}

impl Document {
    /// Config and layers, each blob once.
    pub fn blobs(&self) -> Vec<&Descriptor> {
        let mut blobs: Vec<&Descriptor> = Vec::new();
        for blob in self.config.iter().chain(&self.layers) {
            if !blobs.iter().any(|seen| seen.digest == blob.digest) {
                blobs.push(blob);
            }
        }
        blobs
    }

    /// Of an index: the member for Linux on this architecture (`amd64`, `arm64`).
    pub fn member(&self, architecture: &str) -> Option<&Descriptor> {
        self.manifests.iter().find(|member| member.platform.as_ref().is_some_and(|platform| platform.os == "linux" && platform.architecture == architecture))
    }

    /// Of an index: what it has members for. Attestations call themselves `unknown` and are none.
    pub fn architectures(&self) -> Vec<String> {
        self.manifests.iter().filter_map(|member| member.platform.as_ref()).filter(|platform| platform.os == "linux").map(|platform| platform.architecture.clone()).collect()
    }
}

/// The name that images use for an architecture of EC2 or of the machine (`x86_64` → `amd64`).
pub fn image_architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_gives_the_member_for_an_architecture_and_no_attestation() {
        let index: Document = serde_json::from_value(serde_json::json!({
            "schemaVersion": 2, "manifests": [
                {"mediaType": OCI_MANIFEST, "digest": "sha256:a", "size": 1, "platform": {"architecture": "amd64", "os": "linux"}},
                {"mediaType": OCI_MANIFEST, "digest": "sha256:b", "size": 1, "platform": {"architecture": "unknown", "os": "unknown"}},
                {"mediaType": OCI_MANIFEST, "digest": "sha256:c", "size": 1, "platform": {"architecture": "arm64", "os": "linux", "variant": "v8"}},
            ]
        }))
        .unwrap();
        assert_eq!(index.architectures(), ["amd64", "arm64"]);
        assert_eq!(index.member("arm64").unwrap().digest, "sha256:c");
        assert!(index.member("s390x").is_none());
    }

    #[test]
    fn a_blob_that_is_named_twice_is_one_blob() {
        let layer = |digest: &str| serde_json::json!({"mediaType": "whatever/they+like", "digest": digest, "size": 3});
        let document: Document = serde_json::from_value(serde_json::json!({"schemaVersion": 2, "config": layer("c"), "layers": [layer("x"), layer("y"), layer("x")]})).unwrap();
        assert_eq!(document.blobs().iter().map(|blob| blob.digest.as_str()).collect::<Vec<_>>(), ["c", "x", "y"]);
    }
}
