//! Image references: `host/repository:tag@digest`, with Docker Hub's defaults.

use std::fmt;
use std::str::FromStr;

use crate::error::{Kind, fail};

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// As people write it: `docker.io`, `nvcr.io`, `localhost:5000`.
    pub host: String,
    pub repository: String,
    /// `latest` when neither tag nor digest is given.
    pub tag: Option<String>,
    /// `sha256:…`
    pub digest: Option<String>,
}

impl Reference {
    /// What the manifest is asked for by: the digest if there is one, else the tag.
    pub fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }

    /// The address of its registry. Only a registry on this very machine is spoken to without TLS, as container engines do.
    pub fn origin(&self) -> String {
        origin(&self.host)
    }
}

/// The address of the registry that a host name means.
pub(super) fn origin(host: &str) -> String {
    // Docker Hub's registry has another name than its images.
    let host = if host == "docker.io" { "registry-1.docker.io" } else { host };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let scheme = if name == "localhost" || name.starts_with("127.") { "http" } else { "https" };
    format!("{scheme}://{host}")
}

impl FromStr for Reference {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wrong = |why: &str| fail(Kind::Config, format!("{text:?} is no image reference: {why}")).hint("write it as registry/repository:tag");
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.to_owned())),
            None => (text, None),
        };
        let first = rest.split('/').next().unwrap_or_default();
        // A host has a dot or a port, or is localhost; everything else is a path on Docker Hub.
        let (host, path) = match rest.split_once('/') {
            Some((_, path)) if first.contains(['.', ':']) || first == "localhost" => (first, path),
            _ => ("docker.io", rest),
        };
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (path, None),
        };
        let host = if host == "index.docker.io" { "docker.io" } else { host };
        let repository = if host == "docker.io" && !repository.contains('/') { format!("library/{repository}") } else { repository.to_owned() };
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c);
        if repository.split('/').any(str::is_empty) || !repository.chars().all(word) {
            return Err(wrong("a repository is made of small letters, digits, and . _ - between slashes").into());
        }
        if tag.as_ref().is_some_and(|tag| tag.is_empty() || tag.len() > 128 || !tag.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))) {
            return Err(wrong("a tag is made of up to 128 letters, digits and . _ -").into());
        }
        if digest.as_ref().is_some_and(|digest| !is_digest(digest)) {
            return Err(wrong("a digest is sha256: and 64 hex digits").into());
        }
        let tag = if tag.is_none() && digest.is_none() { Some("latest".to_owned()) } else { tag };
        Ok(Self { host: host.to_owned(), repository, tag, digest })
    }
}

/// `sha256:` and 64 hex digits.
pub(super) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()))
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_container_engines_take_them_for() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, shown, origin, version) in [
            ("alpine", "docker.io/library/alpine:latest".to_owned(), "https://registry-1.docker.io", "latest"),
            ("docker.io/alpine/helm:3.22.0", "docker.io/alpine/helm:3.22.0".to_owned(), "https://registry-1.docker.io", "3.22.0"),
            ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa", "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa".to_owned(), "https://nvcr.io", "1.6.1-efa"),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest".to_owned(), "http://localhost:5000", "latest"),
            (&format!("ghcr.io/a/b:1@{digest}"), format!("ghcr.io/a/b:1@{digest}"), "https://ghcr.io", digest.as_str()),
            (&format!("ghcr.io/a/b@{digest}"), format!("ghcr.io/a/b@{digest}"), "https://ghcr.io", digest.as_str()),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!((reference.to_string(), reference.origin(), reference.version()), (shown, origin.to_owned(), version), "{text}");
        }
    }

    #[test]
    fn what_is_no_reference_is_refused_with_the_reason() {
        for (text, why) in
            [("nvcr.io/", "repository"), ("nvcr.io/A/b:1", "small letters"), ("nvcr.io/a/b:", "tag"), ("nvcr.io/a/b@sha256:12", "digest"), ("https://nvcr.io/a", "repository")]
        {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
