//! What is copied: images, charts and the agent, each with the repository and tags that it gets. Pure.

use serde::Serialize;

use super::super::facts::Stored;
use crate::aws::ecr::{Repository, StoredImage};
use crate::config::{Pins, Spec};
use crate::registry::{Reference, own_tag};

/// Copies from this size on have slots of their own.
const LARGE: u64 = 1 << 30;

/// One of them. Its serialisation is what the step's inputs are a digest of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Part {
    /// As in `platform.toml`; charts with `chart-` before it; `agent`.
    pub(super) name: String,
    pub(super) repository: String,
    /// What pods and helm name it by.
    pub(super) tag: String,
    /// A second tag of charts: helm wants the version as the tag, and this one says which bytes they are.
    content_tag: Option<String>,
    /// Digest of the manifest where it is the same here as upstream.
    #[serde(skip)]
    digest: Option<String>,
    #[serde(skip)]
    pub(super) large: bool,
    #[serde(skip)]
    pub(super) source: Source,
}

/// Where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    /// Pinned by digest.
    Registry(Reference),
    /// A chart repository's archive.
    Archive { address: String, digest: String },
    /// This very binary.
    Own,
    /// The reference, or the binary itself, cannot be read.
    Unreadable(String),
}

impl Part {
    /// Every tag that it gets; the one that is looked for comes last, when all is there.
    pub(super) fn tags(&self) -> Vec<String> {
        [Some(self.tag.clone()), self.content_tag.clone()].into_iter().flatten().collect()
    }

    /// The part in its repository, if it is there with the right tags on the right bytes.
    pub(super) fn stored(&self, repository: &Repository, images: &[StoredImage]) -> Option<Stored> {
        let found = images.iter().find(|image| self.tags().iter().all(|tag| image.tags.contains(tag)))?;
        let right = self.digest.as_ref().is_none_or(|digest| *digest == found.digest);
        right.then(|| Stored { uri: repository.uri.clone(), tag: self.tag.clone(), digest: found.digest.clone() })
    }

    /// Is a tag taken by other bytes?
    pub(super) fn blocked(&self, images: &[StoredImage]) -> bool {
        let Some(content) = &self.content_tag else { return false };
        // Without the content's tag it may be our own copy that was cut short: then the bytes decide.
        images.iter().any(|image| image.tags.contains(&self.tag) && image.tags.len() > 1 && !image.tags.contains(content))
            || images.iter().any(|image| image.tags.contains(&self.tag) && self.digest.as_ref().is_some_and(|digest| *digest != image.digest))
    }
}

/// Everything that the deployment needs, the smallest first.
pub(super) fn all(spec: &Spec, pins: &Pins) -> Vec<Part> {
    let repository = |name: &str| format!("{}/{name}", spec.name);
    let mut parts = Vec::new();
    for (name, pin) in &pins.images {
        let (source, tag) = match pin.reference.parse::<Reference>() {
            Ok(reference) => {
                let tag = reference.tag.as_ref().map_or_else(|| short(&pin.digest).to_owned(), |tag| format!("{:.100}-{}", tag, short(&pin.digest)));
                (Source::Registry(Reference { digest: Some(pin.digest.clone()), ..reference }), tag)
            }
            Err(e) => (Source::Unreadable(e.to_string()), String::new()),
        };
        let large = pin.bytes >= LARGE || spec.platform.images.get(name).is_some_and(|image| image.needed_by == "serve");
        let part = Part { name: name.clone(), repository: repository(name), tag, content_tag: None, digest: None, large, source };
        parts.push((pin.bytes, part));
    }
    for (chart, pin) in &pins.charts {
        let name = format!("chart-{chart}");
        let (source, digest) = match pin.reference.strip_prefix("oci://").map(str::parse::<Reference>) {
            None => (Source::Archive { address: pin.reference.clone(), digest: pin.digest.clone() }, None),
            Some(Ok(reference)) => (Source::Registry(Reference { digest: Some(pin.digest.clone()), ..reference }), Some(pin.digest.clone())),
            Some(Err(e)) => (Source::Unreadable(e.to_string()), None),
        };
        // A `+` of a version cannot stand in a tag; helm writes `_`.
        let tag = pin.version.replace('+', "_");
        let content_tag = Some(format!("{tag}-{}", short(&pin.digest)));
        parts.push((0, Part { repository: repository(&name), name, tag, content_tag, digest, large: false, source }));
    }
    let (source, tag) = own_tag().map_or_else(|e| (Source::Unreadable(format!("{e:#}")), String::new()), |tag| (Source::Own, tag));
    parts.push((1, Part { name: "agent".into(), repository: repository("agent"), tag, content_tag: None, digest: None, large: false, source }));
    parts.sort_by(|(a, one), (b, two)| (a, &one.name).cmp(&(b, &two.name)));
    parts.into_iter().map(|(_, part)| part).collect()
}

/// Twelve hex digits of a digest: enough to tell contents apart under one name.
fn short(digest: &str) -> &str {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    hex.get(..12).unwrap_or(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(content_tag: Option<&str>, digest: Option<&str>) -> Part {
        Part {
            name: "x".into(),
            repository: "nemo/x".into(),
            tag: "1.0".into(),
            content_tag: content_tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
            large: false,
            source: Source::Own,
        }
    }

    fn image(digest: &str, tags: &[&str]) -> StoredImage {
        StoredImage { digest: digest.into(), tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), bytes: 1 }
    }

    #[test]
    fn is_there_only_with_every_tag_on_the_right_bytes() {
        let repository = Repository { name: "nemo/x".into(), uri: "h/nemo/x".into(), arn: "a".into() };
        for (part, images, there, blocked) in [
            (part(None, None), vec![image("d", &["1.0"])], true, false),
            (part(None, None), vec![image("d", &["0.9"])], false, false),
            (part(Some("1.0-aa"), None), vec![image("d", &["1.0", "1.0-aa"])], true, false),
            (part(Some("1.0-aa"), None), vec![image("d", &["1.0"])], false, false),
            (part(Some("1.0-aa"), None), vec![image("d", &["1.0", "1.0-bb"])], false, true),
            (part(Some("1.0-aa"), Some("d")), vec![image("e", &["1.0"])], false, true),
            (part(Some("1.0-aa"), Some("d")), vec![], false, false),
        ] {
            assert_eq!((part.stored(&repository, &images).is_some(), part.blocked(&images)), (there, blocked), "{part:?} {images:?}");
        }
    }
}
