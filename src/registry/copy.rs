//! Copies images and charts between registries blob by blob: what is there is skipped, the rest streams through, checked on its way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use reqwest::Body;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::chart::Artifact;
use super::client::{Begun, Registry};
use super::manifest::{Descriptor, Document, Manifest, hex_digest};
use super::reference::Reference;
use super::trouble::{Notice, Trouble};
use super::upstream::{find, read};
use crate::error::ServiceError;

/// No byte for so long: the blob is begun anew.
const STALL: Duration = Duration::from_secs(60);

/// A blob in memory, or where to read it from.
enum Source<'a> {
    Bytes(&'a [u8]),
    Registry { from: &'a Registry, repository: &'a str },
}

/// Where to put something.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub repository: &'a str,
    /// The last one is put when the others are there.
    pub tags: &'a [String],
}

/// How something is put there.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    /// How many blobs at once, over everything that shares them.
    pub slots: &'a Semaphore,
    pub meter: &'a Meter,
    /// Is told of repeated tries.
    pub notice: Notice<'a>,
}

/// How much of an image is there.
#[derive(Debug, Default)]
pub struct Meter {
    done: AtomicU64,
    total: AtomicU64,
}

impl Meter {
    /// Bytes that are there, and bytes in all (0 until the manifest has been read).
    pub fn read(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Puts things into one registry.
pub struct Copier {
    to: Registry,
    /// Which repository of it has a blob already, as far as this process knows: it is linked from there.
    known: Mutex<HashMap<String, String>>,
}

impl Copier {
    pub fn new(to: Registry) -> Self {
        Self { to, known: Mutex::default() }
    }

    /// Copies the image's manifest for one architecture with its blobs, and tags it. Gives the digest of what was tagged.
    pub async fn image(&self, from: &Registry, reference: &Reference, architecture: &str, to: Target<'_>, way: Way<'_>) -> Result<String, ServiceError> {
        let mut manifest = find(from, reference).await?;
        let mut document = read(from, &manifest)?;
        if !document.manifests.is_empty() {
            let member = document.member(architecture).ok_or_else(|| missing_architecture(reference, architecture, &document))?;
            manifest = find(from, &Reference { digest: Some(member.digest.clone()), ..reference.clone() }).await?;
            document = read(from, &manifest)?;
        }
        let blobs: Vec<Descriptor> = document.blobs().into_iter().cloned().collect();
        way.meter.total.store(blobs.iter().map(|blob| blob.size).sum(), Ordering::Relaxed);
        let source = Source::Registry { from, repository: &reference.repository };
        // Each waits for a slot of its own, so that images which share them take turns.
        let copies = blobs.into_iter().map(|blob: Descriptor| self.blob(&source, blob, to.repository, way));
        stream::iter(copies).buffer_unordered(64).try_collect::<()>().await?;
        self.tag(to, &manifest, way.notice).await?;
        Ok(manifest.digest)
    }

    /// Pushes something that was made here.
    pub async fn artifact(&self, artifact: &Artifact, to: Target<'_>, way: Way<'_>) -> Result<String, ServiceError> {
        way.meter.total.store(artifact.blobs.iter().map(|(blob, _)| blob.size).sum(), Ordering::Relaxed);
        for (blob, bytes) in &artifact.blobs {
            self.blob(&Source::Bytes(bytes), blob.clone(), to.repository, way).await?;
        }
        self.tag(to, &artifact.manifest, way.notice).await?;
        Ok(artifact.manifest.digest.clone())
    }

    async fn tag(&self, to: Target<'_>, manifest: &Manifest, notice: Notice<'_>) -> Result<(), ServiceError> {
        for tag in to.tags {
            self.to.put_manifest(to.repository, tag, manifest, notice).await?;
        }
        Ok(())
    }

    async fn blob(&self, source: &Source<'_>, blob: Descriptor, repository: &str, way: Way<'_>) -> Result<(), ServiceError> {
        // The semaphore is never closed.
        let _slot = way.slots.acquire().await.ok();
        let mut tries = self.to.tries(&format!("blob {repository}@{}", blob.digest), way.notice);
        loop {
            let counted = Arc::new(AtomicU64::new(0));
            match self.blob_once(source, &blob, repository, way.meter, &counted).await {
                Ok(()) => {
                    way.meter.add(blob.size.saturating_sub(counted.load(Ordering::Relaxed)));
                    self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(blob.digest, repository.to_owned());
                    return Ok(());
                }
                Err(trouble) => {
                    way.meter.done.fetch_sub(counted.load(Ordering::Relaxed), Ordering::Relaxed);
                    tries.again(trouble).await?;
                }
            }
        }
    }

    async fn blob_once(&self, source: &Source<'_>, blob: &Descriptor, repository: &str, meter: &Meter, counted: &Arc<AtomicU64>) -> Result<(), Trouble> {
        if self.to.has_blob(repository, &blob.digest).await? {
            return Ok(());
        }
        let mount = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&blob.digest).filter(|other| *other != repository).cloned();
        let Begun::At(at) = self.to.begin_upload(repository, &blob.digest, mount.as_deref()).await? else { return Ok(()) };
        let passing = Passing { counted: counted.clone(), broken: Arc::default() };
        let body = match source {
            Source::Bytes(bytes) => Body::from(bytes.to_vec()),
            Source::Registry { from, repository } => {
                let response = from.blob(repository, &blob.digest).await?;
                passing.body(from.host().to_owned(), response, blob)
            }
        };
        let uploading = self.to.upload(repository, at, &blob.digest, blob.size, body);
        passing.watch(self.to.host(), &format!("PUT blob {repository}@{}", blob.digest), meter, uploading).await
    }
}

/// A blob on its way through.
struct Passing {
    /// Bytes that have been handed on.
    counted: Arc<AtomicU64>,
    /// Why the source ended early; the receiving side only sees that its request broke.
    broken: Arc<Mutex<Option<Trouble>>>,
}

impl Passing {
    /// The answer's bytes, counted; it breaks off when they are too many, too few or not those that the digest names.
    fn body(&self, host: String, response: reqwest::Response, blob: &Descriptor) -> Body {
        let operation = format!("GET blob {}", blob.digest);
        let (counted, broken) = (self.counted.clone(), self.broken.clone());
        let (digest, size) = (blob.digest.clone(), blob.size);
        let start = (response.bytes_stream(), Sha256::new(), 0_u64);
        let checked = stream::try_unfold(start, move |(mut bytes, mut hash, mut seen)| {
            let (counted, digest, host, operation, broken) = (counted.clone(), digest.clone(), host.clone(), operation.clone(), broken.clone());
            async move {
                let trouble = match bytes.next().await {
                    Some(Ok(piece)) => {
                        hash.update(&piece);
                        seen += piece.len() as u64;
                        counted.fetch_add(piece.len() as u64, Ordering::Relaxed);
                        if seen < size || (seen == size && hex_digest(&hash.clone().finalize()) == digest) {
                            return Ok(Some((piece, (bytes, hash, seen))));
                        }
                        Trouble::passing(&host, &operation, "DigestMismatch", format!("the bytes are not those that {digest} names"))
                    }
                    Some(Err(e)) => Trouble { again: true, ..Trouble::unanswered(&host, &operation, &e) },
                    None if seen == size => return Ok(None),
                    None => Trouble::passing(&host, &operation, "Cut", format!("ended after {seen} of {size} bytes")),
                };
                let words = trouble.error.to_string();
                *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
                Err(std::io::Error::other(words))
            }
        });
        Body::wrap_stream(checked)
    }

    /// Runs the upload; breaks off when nothing moves.
    async fn watch(&self, host: &str, what: &str, meter: &Meter, uploading: impl Future<Output = Result<(), Trouble>>) -> Result<(), Trouble> {
        let mut uploading = std::pin::pin!(uploading);
        let mut still = Duration::ZERO;
        let mut seen = 0;
        let glance = Duration::from_millis(200);
        let result = loop {
            let ended = tokio::time::timeout(glance, &mut uploading).await;
            let now = self.counted.load(Ordering::Relaxed);
            meter.add(now - seen);
            still = if now == seen { still + glance } else { Duration::ZERO };
            seen = now;
            match ended {
                Ok(result) => break result,
                Err(_) if still > STALL => break Err(Trouble::passing(host, what, "Stalled", format!("no byte moved for {} s", STALL.as_secs()))),
                Err(_) => {}
            }
        };
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
        broken.map_or(result, Err)
    }
}

fn missing_architecture(reference: &Reference, architecture: &str, document: &Document) -> ServiceError {
    ServiceError {
        service: reference.host.clone(),
        operation: format!("copy {reference}"),
        code: "NoSuchArchitecture".into(),
        message: format!("the image is for {}, and the nodes are {architecture}", document.architectures().join(", ")),
        request_id: None,
        status: None,
    }
}
