//! The distribution protocol: manifests, blobs, uploads.

use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Body, Client, RequestBuilder, Response, StatusCode, Url};

use super::auth::{Auth, Challenge, Login};
use super::manifest::{self, Manifest, digest_of};
use super::reference::{is_digest, origin};
use super::trouble::{Notice, Tries, Trouble};
use crate::error::ServiceError;

/// How long an answer without a large body may take.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// No manifest or configuration is larger; registries refuse them from 4 MiB on.
const DOCUMENT_LIMIT: u64 = 4 << 20;

/// One registry, and the way into it.
pub struct Registry {
    http: Client,
    host: String,
    origin: String,
    auth: Auth,
}

/// What the start of an upload came to.
pub(super) enum Begun {
    /// The registry has the blob in another repository and has linked it.
    Mounted,
    /// Send it here.
    At(Url),
}

impl Registry {
    /// A registry by the host that its references name.
    pub fn new(http: Client, host: &str, login: Box<dyn Login>) -> Self {
        Self { http, host: host.to_owned(), origin: origin(host), auth: Auth::new(host, login) }
    }

    /// Its name in messages.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The manifest or index that a tag or digest names; `None` when there is none.
    pub async fn manifest(&self, repository: &str, version: &str, notice: Notice<'_>) -> Result<Option<Manifest>, ServiceError> {
        let operation = format!("GET manifest {repository}:{version}");
        let mut tries = self.tries(&operation, notice);
        loop {
            match self.manifest_once(&operation, repository, version).await {
                Ok(manifest) => return Ok(manifest),
                Err(trouble) => tries.again(trouble).await?,
            }
        }
    }

    async fn manifest_once(&self, operation: &str, repository: &str, version: &str) -> Result<Option<Manifest>, Trouble> {
        let url = self.url(operation, repository, "manifests", version)?;
        let request = || self.http.get(url.clone()).header(ACCEPT, manifest::ACCEPT).timeout(ANSWER_LIMIT);
        let Some(response) = self.ask(operation, &scope(repository, false), request).await? else { return Ok(None) };
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (media_type, told) = (header("content-type"), header("docker-content-digest"));
        let bytes = self.document(operation, response).await?;
        let digest = digest_of(&bytes);
        // By tag the registry says what it sent; by digest we asked for it. Either way the bytes decide.
        let wanted = if is_digest(version) { Some(version.to_owned()) } else { told };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != digest) {
            return Err(Trouble::lasting(&self.host, operation, "DigestMismatch", format!("asked for {wanted}, got bytes that hash to {digest}")));
        }
        let media_type = media_type.map(|kind| kind.split(';').next().unwrap_or_default().trim().to_owned()).unwrap_or_default();
        if serde_json::from_slice::<manifest::Document>(&bytes).is_err() {
            return Err(not_a_document(&self.host, operation, &media_type, &bytes));
        }
        Ok(Some(Manifest { digest, media_type, bytes }))
    }

    /// A small blob as a whole, its digest checked: configurations.
    pub async fn small_blob(&self, repository: &str, digest: &str, notice: Notice<'_>) -> Result<Vec<u8>, ServiceError> {
        let operation = format!("GET blob {repository}@{digest}");
        let mut tries = self.tries(&operation, notice);
        loop {
            match self.small_blob_once(&operation, repository, digest).await {
                Ok(bytes) => return Ok(bytes),
                Err(trouble) => tries.again(trouble).await?,
            }
        }
    }

    async fn small_blob_once(&self, operation: &str, repository: &str, digest: &str) -> Result<Vec<u8>, Trouble> {
        let response = self.blob(repository, digest).await?;
        let bytes = self.document(operation, response).await?;
        if digest_of(&bytes) != digest {
            return Err(Trouble::passing(&self.host, operation, "DigestMismatch", format!("got bytes that hash to {}", digest_of(&bytes))));
        }
        Ok(bytes)
    }

    /// Is the blob in this repository?
    pub(super) async fn has_blob(&self, repository: &str, digest: &str) -> Result<bool, Trouble> {
        let operation = format!("HEAD blob {repository}@{digest}");
        let url = self.url(&operation, repository, "blobs", digest)?;
        Ok(self.ask(&operation, &scope(repository, true), || self.http.head(url.clone()).timeout(ANSWER_LIMIT)).await?.is_some())
    }

    /// The blob's bytes.
    pub(super) async fn blob(&self, repository: &str, digest: &str) -> Result<Response, Trouble> {
        let operation = format!("GET blob {repository}@{digest}");
        let url = self.url(&operation, repository, "blobs", digest)?;
        let found = self.ask(&operation, &scope(repository, false), || self.http.get(url.clone())).await?;
        found.ok_or_else(|| Trouble::lasting(&self.host, &operation, "BLOB_UNKNOWN", "the registry names this blob in a manifest and does not have it"))
    }

    /// Starts an upload; `mount` names another repository of this registry that may have the blob.
    pub(super) async fn begin_upload(&self, repository: &str, digest: &str, mount: Option<&str>) -> Result<Begun, Trouble> {
        let operation = format!("POST upload {repository}");
        let mut url = self.url(&operation, repository, "blobs", "uploads/")?;
        let mut scope = scope(repository, true);
        if let Some(from) = mount {
            url.query_pairs_mut().append_pair("mount", digest).append_pair("from", from);
            // The token must allow to read the other repository too.
            scope = format!("{scope} repository:{from}:pull");
        }
        let request = || self.http.post(url.clone()).header(CONTENT_LENGTH, 0).timeout(ANSWER_LIMIT);
        let response = self.ask(&operation, &scope, request).await?.ok_or_else(|| self.no_repository(&operation, repository))?;
        if response.status() == StatusCode::CREATED {
            return Ok(Begun::Mounted);
        }
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.and_then(|location| url.join(location).ok());
        location.map(Begun::At).ok_or_else(|| Trouble::lasting(&self.host, &operation, "NoLocation", "the registry accepted the upload and does not say where to send it"))
    }

    /// Sends a blob as one stream; the registry checks its digest.
    pub(super) async fn upload(&self, repository: &str, mut at: Url, digest: &str, size: u64, body: Body) -> Result<(), Trouble> {
        let operation = format!("PUT blob {repository}@{digest}");
        at.query_pairs_mut().append_pair("digest", digest);
        let request = self.http.put(at).header(CONTENT_TYPE, "application/octet-stream").header(CONTENT_LENGTH, size).body(body);
        let scope = scope(repository, true);
        let header = self.auth.header(&self.http, &scope).await?;
        let request = header.iter().fold(request, |request, header| request.header(AUTHORIZATION, header));
        let response = request.send().await.map_err(|e| Trouble::unanswered(&self.host, &operation, &e))?;
        if response.status().is_success() {
            return Ok(());
        }
        // The stream is gone: the caller begins anew, with the sign-in that is renewed here.
        let refused = response.status() == StatusCode::UNAUTHORIZED && self.auth.renew(&self.http, &scope, header.as_ref(), challenge(response.headers())).await?.is_some();
        let trouble = Trouble::answered(&self.host, &operation, response).await;
        Err(Trouble { again: trouble.again || refused, ..trouble })
    }

    /// Puts a manifest under a tag.
    pub async fn put_manifest(&self, repository: &str, tag: &str, manifest: &Manifest, notice: Notice<'_>) -> Result<(), ServiceError> {
        let operation = format!("PUT manifest {repository}:{tag}");
        let mut tries = self.tries(&operation, notice);
        loop {
            match self.put_manifest_once(&operation, repository, tag, manifest).await {
                Ok(()) => return Ok(()),
                Err(trouble) => tries.again(trouble).await?,
            }
        }
    }

    async fn put_manifest_once(&self, operation: &str, repository: &str, tag: &str, manifest: &Manifest) -> Result<(), Trouble> {
        let url = self.url(operation, repository, "manifests", tag)?;
        let request = || self.http.put(url.clone()).header(CONTENT_TYPE, &manifest.media_type).body(manifest.bytes.clone()).timeout(ANSWER_LIMIT);
        let response = self.ask(operation, &scope(repository, true), request).await?.ok_or_else(|| self.no_repository(operation, repository))?;
        let told = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        match told.filter(|told| *told != manifest.digest) {
            Some(told) => Err(Trouble::lasting(&self.host, operation, "DigestMismatch", format!("sent {}, the registry noted {told}", manifest.digest))),
            None => Ok(()),
        }
    }

    /// The tries of an operation here.
    pub(super) fn tries<'a>(&self, operation: &str, notice: Notice<'a>) -> Tries<'a> {
        Tries::new(format!("{} {operation}", self.host), notice)
    }

    /// One request that can be repeated: signs in when asked to. `None` for 404.
    async fn ask(&self, operation: &str, scope: &str, request: impl Fn() -> RequestBuilder) -> Result<Option<Response>, Trouble> {
        let mut header = self.auth.header(&self.http, scope).await?;
        let mut renewed = false;
        loop {
            let signed = header.iter().fold(request(), |request, header| request.header(AUTHORIZATION, header));
            let response = signed.send().await.map_err(|e| Trouble::unanswered(&self.host, operation, &e))?;
            match response.status() {
                status if status.is_success() => return Ok(Some(response)),
                StatusCode::NOT_FOUND if is_answer(&response) => return Ok(None),
                StatusCode::UNAUTHORIZED if !renewed => {
                    let fresh = self.auth.renew(&self.http, scope, header.as_ref(), challenge(response.headers())).await?;
                    if fresh.is_none() {
                        return Err(Trouble::answered(&self.host, operation, response).await);
                    }
                    (header, renewed) = (fresh, true);
                }
                _ => return Err(Trouble::answered(&self.host, operation, response).await),
            }
        }
    }

    fn url(&self, operation: &str, repository: &str, what: &str, which: &str) -> Result<Url, Trouble> {
        Url::parse(&format!("{}/v2/{repository}/{what}/{which}", self.origin)).map_err(|e| Trouble::lasting(&self.host, operation, "BadAddress", e.to_string()))
    }

    fn no_repository(&self, operation: &str, repository: &str) -> Trouble {
        Trouble::lasting(&self.host, operation, "NAME_UNKNOWN", format!("there is no repository {repository}"))
    }

    async fn document(&self, operation: &str, response: Response) -> Result<Vec<u8>, Trouble> {
        use futures::TryStreamExt as _;
        let mut bytes = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(piece) = stream.try_next().await.map_err(|e| Trouble::unanswered(&self.host, operation, &e))? {
            if bytes.len() as u64 + piece.len() as u64 > DOCUMENT_LIMIT {
                return Err(Trouble::lasting(&self.host, operation, "TooLarge", "answered more than 4 MiB where a manifest or a configuration was due"));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

/// What a token has to allow.
fn scope(repository: &str, push: bool) -> String {
    format!("repository:{repository}:{}", if push { "pull,push" } else { "pull" })
}

fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).find_map(Challenge::parse)
}

/// A 404 of the registry, not of some web page where the registry should be.
fn is_answer(response: &Response) -> bool {
    let html = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|kind| kind.starts_with("text/html"));
    response.url().as_str().contains("/v2/") && !html
}

fn not_a_document(host: &str, operation: &str, media_type: &str, bytes: &[u8]) -> Trouble {
    let start: String = String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
    let message = if start.starts_with('<') {
        format!("answered HTML, not a registry's answer (a proxy or a sign-in page in between?): {start}")
    } else {
        format!("answered {media_type} that is no manifest (schema 1 is not supported): {start}")
    };
    Trouble::lasting(host, operation, "NotAManifest", message)
}

/// Nobody is told.
pub(super) fn silent(_what: &str, _why: &str, _attempt: u32) {}
