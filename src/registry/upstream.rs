//! What a reference names at its registry: digest, size, architectures. Asked at plan time and kept in the state.

use serde::Deserialize;

use super::auth::Anonymous;
use super::client::{Registry, silent};
use super::manifest::{Document, Manifest};
use super::reference::Reference;
use crate::error::ServiceError;

/// Looks references up at the registries that they name, as anybody may.
#[derive(Debug, Clone, Copy)]
pub struct Upstream;

/// An image as its registry has it now.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// `sha256:…` of the index or manifest that the reference names.
    pub digest: String,
    /// Bytes of configuration and layers for `amd64`, or for the only architecture there is.
    pub bytes: u64,
    /// As images name them: `amd64`, `arm64`.
    pub architectures: Vec<String>,
    pub media_type: String,
}

#[derive(Deserialize)]
struct ImageConfig {
    architecture: Option<String>,
}

impl Upstream {
    /// What the reference names. Not there: an error with code `MANIFEST_UNKNOWN`.
    pub async fn resolve(http: &reqwest::Client, reference: &str) -> Result<Resolved, ServiceError> {
        let reference = parse(reference)?;
        let registry = Registry::new(http.clone(), &reference.host, Box::new(Anonymous));
        let manifest = find(&registry, &reference).await?;
        let document = read(&registry, &manifest)?;
        if document.manifests.is_empty() {
            let architectures = architecture_of(&registry, &reference.repository, &document).await?.into_iter().collect();
            return Ok(Resolved { bytes: bytes_of(&document), architectures, digest: manifest.digest, media_type: manifest.media_type });
        }
        let member = document.member("amd64").or(document.manifests.first());
        let bytes = match member {
            Some(member) => {
                let inner = registry.manifest(&reference.repository, &member.digest, &silent).await?;
                inner.map(|inner| read(&registry, &inner)).transpose()?.map_or(0, |inner| bytes_of(&inner))
            }
            None => 0,
        };
        Ok(Resolved { bytes, architectures: document.architectures(), digest: manifest.digest, media_type: manifest.media_type })
    }
}

/// The manifest of a reference, or the error that says that it is not there.
pub(super) async fn find(registry: &Registry, reference: &Reference) -> Result<Manifest, ServiceError> {
    registry.manifest(&reference.repository, reference.version(), &silent).await?.ok_or_else(|| ServiceError {
        service: reference.host.clone(),
        operation: format!("GET manifest {}:{}", reference.repository, reference.version()),
        code: "MANIFEST_UNKNOWN".into(),
        message: format!("there is no {reference}: the name or the tag is wrong, or it has been taken away"),
        request_id: None,
        status: Some(404),
    })
}

pub(super) fn parse(reference: &str) -> Result<Reference, ServiceError> {
    reference.parse().map_err(|e: anyhow::Error| ServiceError {
        service: "registry".into(),
        operation: "read reference".into(),
        code: "BadReference".into(),
        message: e.to_string(),
        request_id: None,
        status: None,
    })
}

pub(super) fn read(registry: &Registry, manifest: &Manifest) -> Result<Document, ServiceError> {
    serde_json::from_slice(&manifest.bytes).map_err(|e| ServiceError {
        service: registry.host().to_owned(),
        operation: format!("read manifest {}", manifest.digest),
        code: "NotAManifest".into(),
        message: e.to_string(),
        request_id: None,
        status: None,
    })
}

/// An image without index says in its configuration what it runs on; a chart says nothing.
async fn architecture_of(registry: &Registry, repository: &str, document: &Document) -> Result<Option<String>, ServiceError> {
    let Some(config) = document.config.as_ref().filter(|config| config.media_type.contains("image")) else { return Ok(None) };
    let bytes = registry.small_blob(repository, &config.digest, &silent).await?;
    Ok(serde_json::from_slice::<ImageConfig>(&bytes).ok().and_then(|config| config.architecture))
}

fn bytes_of(document: &Document) -> u64 {
    document.blobs().iter().map(|blob| blob.size).sum()
}
