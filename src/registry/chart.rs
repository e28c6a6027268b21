//! Helm charts: an OCI registry's are looked up like images; an archive of a chart repository becomes an OCI artifact.

use std::io::Read as _;

use flate2::read::GzDecoder;
use futures::TryStreamExt as _;

use super::auth::Anonymous;
use super::client::{Registry, silent};
use super::manifest::{Descriptor, Document, Manifest, OCI_MANIFEST, digest_of};
use super::trouble::{Tries, Trouble};
use super::upstream::{Upstream, find, parse, read};
use crate::error::ServiceError;

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Helm itself refuses charts from 20 MiB on.
const LIMIT: usize = 20 << 20;

/// A chart as its upstream has it now.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedChart {
    /// OCI: digest of the manifest; archive: sha256 of the file; both as `sha256:…`.
    pub digest: String,
    /// The chart's own version.
    pub version: String,
    pub bytes: u64,
}

/// A chart archive as an OCI artifact: what helm would push.
#[derive(Debug)]
pub struct Artifact {
    pub manifest: Manifest,
    /// Configuration and archive, by digest.
    pub blobs: Vec<(Descriptor, Vec<u8>)>,
    pub version: String,
}

impl Upstream {
    /// What a chart reference names: `oci://registry/repository:version` or `https://….tgz`.
    pub async fn resolve_chart(http: &reqwest::Client, reference: &str) -> Result<ResolvedChart, ServiceError> {
        let Some(name) = reference.strip_prefix("oci://") else {
            let archive = fetch(http, reference).await?;
            let artifact = artifact(reference, archive)?;
            let [_, (content, _)] = artifact.blobs.as_slice() else { return Err(broken(reference, "no chart in it")) };
            return Ok(ResolvedChart { digest: content.digest.clone(), bytes: content.size, version: artifact.version });
        };
        let name = parse(name)?;
        let registry = Registry::new(http.clone(), &name.host, Box::new(Anonymous));
        let manifest = find(&registry, &name).await?;
        let document = read(&registry, &manifest)?;
        let bytes = document.blobs().iter().map(|blob| blob.size).sum();
        // A `+` of a version cannot stand in a tag; helm writes `_`.
        let version = name.tag.unwrap_or_default().replace('_', "+");
        Ok(ResolvedChart { digest: manifest.digest, version, bytes })
    }

    /// The archive at this address as an OCI artifact; its bytes must have this digest.
    pub async fn chart_archive(http: &reqwest::Client, address: &str, digest: &str) -> Result<Artifact, ServiceError> {
        let archive = fetch(http, address).await?;
        let found = digest_of(&archive);
        if found != digest {
            let error = error(address, "DigestMismatch", format!("the chart has changed since the deployment was planned: planned {digest}, found {found}"));
            return Err(error);
        }
        artifact(address, archive)
    }
}

async fn fetch(http: &reqwest::Client, address: &str) -> Result<Vec<u8>, ServiceError> {
    let url = reqwest::Url::parse(address).map_err(|e| broken(address, &format!("{address:?} is no address: {e}")))?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let operation = format!("GET {}", url.path());
    let mut tries = Tries::new(format!("{host} {operation}"), &silent);
    loop {
        match fetch_once(http, &url, &host, &operation).await {
            Ok(archive) => return Ok(archive),
            Err(trouble) => tries.again(trouble).await?,
        }
    }
}

async fn fetch_once(http: &reqwest::Client, url: &reqwest::Url, host: &str, operation: &str) -> Result<Vec<u8>, Trouble> {
    let response = http.get(url.clone()).timeout(super::client::ANSWER_LIMIT).send().await.map_err(|e| Trouble::unanswered(host, operation, &e))?;
    if !response.status().is_success() {
        return Err(Trouble::answered(host, operation, response).await);
    }
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(piece) = stream.try_next().await.map_err(|e| Trouble::unanswered(host, operation, &e))? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > LIMIT {
            return Err(Trouble::lasting(host, operation, "TooLarge", "the archive is larger than the 20 MiB that helm takes"));
        }
    }
    Ok(bytes)
}

/// Makes the artifact. The same archive gives the same manifest, byte for byte.
fn artifact(address: &str, archive: Vec<u8>) -> Result<Artifact, ServiceError> {
    let chart = chart_yaml(&archive).map_err(|why| broken(address, &why))?;
    let metadata: serde_json::Value = serde_saphyr::from_str(&chart).map_err(|e| broken(address, &format!("Chart.yaml cannot be read: {e}")))?;
    let (Some(_), Some(version)) = (metadata["name"].as_str(), metadata["version"].as_str()) else { return Err(broken(address, "Chart.yaml has no name or no version")) };
    let version = version.to_owned();
    let config = metadata.to_string().into_bytes();
    let of = |media_type: &str, bytes: &[u8]| Descriptor { media_type: media_type.into(), digest: digest_of(bytes), size: bytes.len() as u64, platform: None };
    let (config_blob, content_blob) = (of(CONFIG, &config), of(CONTENT, &archive));
    let document = Document {
        schema_version: 2,
        media_type: Some(OCI_MANIFEST.into()),
        config: Some(config_blob.clone()),
        layers: vec![content_blob.clone()],
        manifests: Vec::new(),
        annotations: [("org.opencontainers.image.source".to_owned(), address.to_owned())].into(),
    };
    let bytes = serde_json::to_vec(&document).map_err(|e| broken(address, &e.to_string()))?;
    let manifest = Manifest { digest: digest_of(&bytes), media_type: OCI_MANIFEST.into(), bytes };
    Ok(Artifact { manifest, blobs: vec![(config_blob, config), (content_blob, archive)], version })
}

/// `<chart>/Chart.yaml` of the archive; those of charts within lie deeper.
fn chart_yaml(archive: &[u8]) -> Result<String, String> {
    if archive.starts_with(b"<") {
        return Err("answered HTML, not an archive (a proxy or a sign-in page in between?)".into());
    }
    let mut tar = tar::Archive::new(GzDecoder::new(archive).take(10 * LIMIT as u64));
    for entry in tar.entries().map_err(|e| e.to_string())? {
        let mut entry = entry.map_err(|e| format!("is no gzipped tar archive: {e}"))?;
        let path = entry.path().map_err(|e| e.to_string())?.into_owned();
        if path.components().count() == 2 && path.file_name().is_some_and(|name| name == "Chart.yaml") {
            let mut text = String::new();
            entry.read_to_string(&mut text).map_err(|e| e.to_string())?;
            return Ok(text);
        }
    }
    Err("holds no Chart.yaml".into())
}

fn broken(address: &str, why: &str) -> ServiceError {
    error(address, "NotAChart", why.to_owned())
}

fn error(address: &str, code: &str, message: String) -> ServiceError {
    ServiceError { service: "chart".into(), operation: format!("GET {address}"), code: code.into(), message, request_id: None, status: None }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::registry) fn archive(version: &str) -> Vec<u8> {
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (path, text) in [("x/charts/y/Chart.yaml", "name: y\nversion: 0.0.1\n".to_owned()), ("x/Chart.yaml", format!("apiVersion: v2\nname: x\nversion: {version}\n"))] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            tar.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn an_archive_becomes_the_same_artifact_each_time() {
        let one = artifact("https://h/x-1.2.3.tgz", archive("1.2.3")).unwrap();
        let two = artifact("https://h/x-1.2.3.tgz", archive("1.2.3")).unwrap();
        assert_eq!((one.version.as_str(), &one.manifest.digest), ("1.2.3", &two.manifest.digest));
        let document: Document = serde_json::from_slice(&one.manifest.bytes).unwrap();
        assert_eq!(document.config.unwrap().media_type, CONFIG);
        assert_eq!(document.layers[0].media_type, CONTENT);
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&one.blobs[0].1).unwrap()["name"], "x");
    }

    #[test]
    fn what_is_no_chart_is_refused_with_the_reason() {
        for (bytes, why) in [(b"<html>".to_vec(), "HTML"), (b"PK\x03\x04".to_vec(), "tar"), (archive("null"), "version")] {
            let error = artifact("https://h/x.tgz", bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
