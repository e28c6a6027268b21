//! What the text says and what becomes of it.

use crate::lint::finding::Severity;
use crate::lint::known::tag;
use crate::lint::path;
use crate::lint::rule::{Check, Found, Rule, Seen};
use crate::lint::workload::Container;
use crate::lint::yaml::Document;

use super::strings;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: "image-tag",
        title: "an image that can be another tomorrow",
        severity: Severity::Warning,
        cause: "Without a tag, or with latest, every node may run another image, and Dynamo's operator refuses an image whose tag is no version.",
        fix: "A tag that is a version, better a digest: image:1.6.1@sha256:….",
        check: Check::Container(image),
    },
    Rule {
        id: "yaml-type",
        title: "a plain word that is no string",
        severity: Severity::Error,
        cause: "YAML takes 8192 for a number, and kubectl and helm take y, no and on for true and false: the API server refuses the object, or it gets another word than was written.",
        fix: "Quote it.",
        check: Check::Document(types),
    },
];

fn image(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let image = container.image();
    if image.is_empty() || image.contains("@sha256:") || image.contains(['$', '{']) {
        return;
    }
    match tag(image) {
        None => found.add(path::field(&container.path, "image"), format!("{image}, so latest"), "a version or a digest"),
        Some("latest") => found.add(path::field(&container.path, "image"), image, "a version or a digest"),
        Some(_) => return,
    };
}

fn types(document: &Document, found: &mut Found<'_>) {
    for (path, word) in strings::mistyped(document) {
        found.add(path, &word, format!("{word:?}")).replace(&word, &word);
    }
}
