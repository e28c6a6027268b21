//! Images, charts and add-ons where they come from: what a tag names now is pinned.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::hub::gigabytes;
use super::report::{Answered, Question};
use crate::aws::{Aws, addons};
use crate::config::{AddonPin, ChartPin, ImagePin, Pins, Spec};
use crate::error::{Kind, ServiceError};
use crate::registry::Upstream;

/// `image-*`: there, readable, and for the nodes' architecture.
pub(super) async fn images(http: &reqwest::Client, spec: &Spec, pins: Option<&Pins>) -> (Vec<Answered>, BTreeMap<String, ImagePin>) {
    let architecture = if spec.instance.architecture == "x86_64" { "amd64" } else { spec.instance.architecture.as_str() };
    let asked = spec.images().map(async |(name, source)| {
        let question = Question::new(format!("image-{name}"));
        if let Some(pin) = pins.and_then(|pins| pins.images.get(name)).filter(|pin| pin.reference == source.reference) {
            return (question.ok(format!("{} pinned to {}", pin.reference, short(&pin.digest))), Some((name.clone(), pin.clone())));
        }
        match Upstream::resolve(http, &source.reference).await {
            Ok(found) if found.architectures.iter().any(|known| known == architecture) => {
                let pin = ImagePin { reference: source.reference.clone(), digest: found.digest, bytes: found.bytes };
                (question.ok(format!("{} is {}, {}", pin.reference, short(&pin.digest), gigabytes(pin.bytes))), Some((name.clone(), pin)))
            }
            Ok(found) => {
                let answer = format!("{} is for {}, and the nodes are {architecture}", source.reference, found.architectures.join(", "));
                (question.red(Kind::Config, answer, "another image for it in configs/platform.toml"), None)
            }
            Err(error) => (refused(&question, &source.reference, &error), None),
        }
    });
    let (answers, found): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().unzip();
    (answers, found.into_iter().flatten().collect())
}

/// `chart-*`: there and a chart.
pub(super) async fn charts(http: &reqwest::Client, spec: &Spec, pins: Option<&Pins>) -> (Vec<Answered>, BTreeMap<String, ChartPin>) {
    let asked = spec.charts().map(async |(name, source)| {
        let question = Question::new(format!("chart-{name}"));
        if let Some(pin) = pins.and_then(|pins| pins.charts.get(name)).filter(|pin| pin.reference == source.reference) {
            return (question.ok(format!("{} pinned to {}", pin.reference, short(&pin.digest))), Some((name.clone(), pin.clone())));
        }
        match Upstream::resolve_chart(http, &source.reference).await {
            Ok(found) => {
                let pin = ChartPin { reference: source.reference.clone(), digest: found.digest, version: found.version };
                (question.ok(format!("{} is {}, version {}", pin.reference, short(&pin.digest), pin.version)), Some((name.clone(), pin)))
            }
            Err(error) => (refused(&question, &source.reference, &error), None),
        }
    });
    let (answers, found): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().unzip();
    (answers, found.into_iter().flatten().collect())
}

fn refused(question: &Question, reference: &str, error: &ServiceError) -> Answered {
    match error.status {
        Some(404) => {
            question.red(Kind::Config, format!("{reference} is not there: {error}"), "the name or the version is wrong, or it was taken away: correct configs/platform.toml")
        }
        Some(401 | 403) => question.red(Kind::Credentials, format!("{reference} may not be read: {error}"), "it has to be public: correct configs/platform.toml"),
        _ => question.red(error.kind(), format!("{reference}: {error}"), format!("check that this machine reaches {}", error.service)),
    }
}

/// `addons`: the default version of each for the cluster's Kubernetes version.
pub(super) async fn addon_versions(aws: &Aws, spec: &Spec, pins: Option<&Pins>) -> (Answered, BTreeMap<String, AddonPin>) {
    let question = Question::new("addons");
    let kubernetes = &spec.platform.kubernetes.version;
    let names = &spec.platform.addons.names;
    if let Some(pins) = pins.filter(|pins| names.iter().all(|name| pins.addons.contains_key(name))) {
        return (question.ok(format!("pinned for Kubernetes {kubernetes}")), pins.addons.clone());
    }
    let answers = join_all(names.iter().map(async |name| (name, addons::default_version(aws, name, kubernetes).await))).await;
    let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
    for (name, answer) in answers {
        match answer {
            Ok(Some(version)) => drop(found.insert(name.clone(), AddonPin { version })),
            Ok(None) => missing.push(name.as_str()),
            Err(error) => return (question.failed(&error), BTreeMap::new()),
        }
    }
    if missing.is_empty() {
        let versions: Vec<_> = found.iter().map(|(name, pin)| format!("{name} {}", pin.version)).collect();
        return (question.ok(format!("for Kubernetes {kubernetes}: {}", versions.join(", "))), found);
    }
    let answer = format!("{} has no version of {} for Kubernetes {kubernetes}", aws.region, missing.join(", "));
    (question.red(Kind::Config, answer, "another set of versions: --set platform.set=NAME"), found)
}

fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}
