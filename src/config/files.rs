//! The files under `configs/`, compiled in.

use serde::de::DeserializeOwned;

use super::catalogue::{Compute, Instance, PlatformSet};
use super::fit::{Assumptions, PublishedGpus};
use super::model::Model;
use super::nearest::did_you_mean;
use crate::error::{Kind, fail};

/// The lowest layer; also where the settings' names, types and descriptions come from.
pub(super) const DEFAULTS: &str = include_str!("../../configs/defaults.toml");
const COMPUTE: &str = include_str!("../../configs/compute.toml");
const FIT: &str = include_str!("../../configs/fit.toml");
const PUBLISHED_GPUS: &str = include_str!("../../configs/published-gpus.toml");
const PLATFORM: &str = include_str!("../../configs/platform.toml");

/// A catalogue file: its name without `.toml`, and its text.
type File = (&'static str, &'static str);

// `INSTANCES` and `MODELS`: every file of the two folders, listed by build.rs, so that a new file is all that a new entry takes.
include!(concat!(env!("OUT_DIR"), "/catalogue.rs"));

/// The instance types of the catalogue.
pub fn instance_names() -> impl Iterator<Item = &'static str> {
    INSTANCES.iter().map(|(name, _)| *name)
}

/// The models of the catalogue.
pub fn model_names() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|(name, _)| *name)
}

/// The instance type of that name; an unknown one is refused with the nearest. `at` is where the name was given.
pub fn instance(name: &str, at: &str) -> anyhow::Result<Instance> {
    find("instances", "instance type", INSTANCES, name, at)
}

/// The model of that name; an unknown one is refused with the nearest. `at` is where the name was given.
pub fn model(name: &str, at: &str) -> anyhow::Result<Model> {
    find("models", "model", MODELS, name, at)
}

/// What the fit assumes where nothing is counted.
pub fn fit_assumptions() -> anyhow::Result<Assumptions> {
    parse("configs/fit.toml", FIT)
}

/// The published table of the smallest number of GPUs.
pub fn published_gpus() -> anyhow::Result<PublishedGpus> {
    parse("configs/published-gpus.toml", PUBLISHED_GPUS)
}

/// The set of versions of that name (empty: the default one) with its name.
pub(super) fn platform(name: &str, at: &str) -> anyhow::Result<(String, PlatformSet)> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Platforms {
        default: String,
        sets: std::collections::BTreeMap<String, PlatformSet>,
    }
    let mut all: Platforms = parse("configs/platform.toml", PLATFORM)?;
    let name = if name.is_empty() { all.default.clone() } else { name.to_owned() };
    match all.sets.remove(&name) {
        Some(set) => Ok((name, set)),
        None => Err(unknown("set of versions", "configs/platform.toml", &name, at, &all.sets.keys().map(String::as_str).collect::<Vec<_>>())),
    }
}

/// Who makes the GPU nodes, by name.
pub(super) fn compute(name: &str, at: &str) -> anyhow::Result<Compute> {
    let mut all: std::collections::BTreeMap<String, Compute> = parse("configs/compute.toml", COMPUTE)?;
    let known: Vec<String> = all.keys().cloned().collect();
    all.remove(name).ok_or_else(|| unknown("way to make GPU nodes", "configs/compute.toml", name, at, &known.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn find<T: DeserializeOwned>(folder: &str, what: &str, files: &[File], name: &str, at: &str) -> anyhow::Result<T> {
    match files.iter().find(|(file, _)| *file == name) {
        Some((file, text)) => parse(&format!("configs/{folder}/{file}.toml"), text),
        None => Err(unknown(what, &format!("configs/{folder}/"), name, at, &files.iter().map(|(file, _)| *file).collect::<Vec<_>>())),
    }
}

/// The error for a name that the catalogue does not have.
pub(super) fn unknown(what: &str, place: &str, name: &str, at: &str, known: &[&str]) -> anyhow::Error {
    fail(Kind::Config, format!("{at}: {name:?} is no {what} in {place}{}", did_you_mean(name, known))).hint(format!("known: {}", known.join(", "))).into()
}

fn parse<T: DeserializeOwned>(path: &str, text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|e| fail(Kind::Bug, format!("{path}, compiled in: {}", e.to_string().trim())).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_disk(folder: &str) -> Vec<String> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(folder);
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().replace(".toml", "")).collect();
        names.sort();
        names
    }

    #[test]
    fn every_catalogue_file_is_compiled_in_and_reads() {
        assert_eq!(on_disk("instances"), INSTANCES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        assert_eq!(on_disk("models"), MODELS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for (name, _) in INSTANCES {
            assert_eq!(instance(name, "test").unwrap().type_name, *name);
        }
        for (name, _) in MODELS {
            assert_eq!(model(name, "test").unwrap().name, *name);
        }
        for name in ["managed-node-groups", "auto-mode", "hyperpod"] {
            assert_eq!(compute(name, "test").unwrap().walked, name == "managed-node-groups");
        }
        let (name, set) = platform("", "test").unwrap();
        assert_eq!(name, "1.6");
        assert!(set.images.contains_key("vllm-runtime"));
    }
}
