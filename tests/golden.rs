//! Every rendered document against the golden folder, and every flag against the list of what the real parsers accept.
//!
//! `NEMO_GOLDEN=write cargo test --test golden` writes the folder anew; the difference is for a reader.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

use std::collections::BTreeMap;
use std::path::Path;

use nemo::k8s::{Document, Owner};
use serde_json::Value;

#[path = "golden/documents.rs"]
mod documents;
#[path = "golden/stacks.rs"]
mod stacks;

use documents::{everything, values_of};

/// All that helm gets values for.
const CHARTS: [&str; 4] = ["lws", "nvidia-device-plugin", "aws-efa-k8s-device-plugin", "dynamo-platform"];

#[test]
fn documents_are_as_in_the_golden_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/p5en.48xlarge-bf16");
    for rendered in everything().into_iter().chain(CHARTS.map(values_of)).chain(stacks::stacks()) {
        let path = folder.join(rendered.file);
        if std::env::var_os("NEMO_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &rendered.text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(rendered.text, golden, "{} differs; NEMO_GOLDEN=write cargo test --test golden writes it anew", rendered.file);
    }
}

#[test]
fn every_document_is_an_object_with_a_name_and_carries_our_marks() {
    for rendered in everything() {
        assert!(!rendered.manifests.is_empty(), "{}", rendered.file);
        for manifest in rendered.manifests {
            let document = Document::new(manifest, Owner { deployment: "nemo", step: "serve" }).unwrap();
            let labels = document.object().metadata.labels.clone().unwrap();
            assert_eq!((labels["app.kubernetes.io/managed-by"].as_str(), labels["nemo.dev/deployment"].as_str()), ("nemo", "nemo"));
            assert!(document.object().metadata.annotations.as_ref().unwrap()["nemo.dev/inputs"].len() == 16);
        }
    }
}

/// Flag to its row: takes, choices.
fn flags(programs: &[&str]) -> BTreeMap<String, (String, Vec<String>)> {
    let list = include_str!("data/engine-flags-1.6.1.tsv");
    let rows = list.lines().map(|line| line.split('\t').collect::<Vec<_>>()).filter(|row| programs.contains(&row[0]));
    let choices = |row: &[&str]| row[4].split(',').filter(|choice| !choice.is_empty()).map(str::to_owned).collect();
    rows.flat_map(|row| {
        let entry = (row[3].to_owned(), choices(&row));
        std::iter::once(row[2]).chain(row[6].split(',').filter(|other| !other.is_empty())).map(move |flag| (flag.to_owned(), entry.clone())).collect::<Vec<_>>()
    })
    .collect()
}

/// Program and arguments of every container that runs a module of Dynamo.
fn command_lines() -> Vec<(String, Vec<String>)> {
    let words = |value: &Value| value.as_array().into_iter().flatten().map(|word| word.as_str().expect("every word is a string").to_owned()).collect::<Vec<_>>();
    let manifests = everything().into_iter().flat_map(|rendered| rendered.manifests);
    let containers = manifests.flat_map(|manifest| manifest["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default());
    let lines = containers.map(|container| (words(&container["command"]).join(" "), words(&container["args"])));
    lines.filter(|(command, _)| command.contains(" -m dynamo.")).collect()
}

#[test]
fn the_real_parsers_accept_every_flag() {
    let lines = command_lines();
    assert_eq!(lines.iter().map(|(command, _)| command.as_str()).collect::<Vec<_>>(), ["python3 -m dynamo.frontend", "python3 -m dynamo.vllm"]);
    for (command, args) in lines {
        let known = if command.ends_with("frontend") { flags(&["dynamo.frontend"]) } else { flags(&["dynamo.vllm", "vllm"]) };
        let mut args = args.iter().peekable();
        while let Some(flag) = args.next() {
            let (takes, choices) = known.get(flag).unwrap_or_else(|| panic!("{command}: the parser of this version has no {flag}"));
            if takes == "none" {
                assert!(args.peek().is_none_or(|next| next.starts_with("--")), "{flag} takes no value");
                continue;
            }
            let value = args.next().unwrap_or_else(|| panic!("{flag} wants a value"));
            assert!(!value.starts_with("--"), "{flag} wants a value, and got {value}");
            if takes == "json" {
                serde_json::from_str::<Value>(value).unwrap_or_else(|error| panic!("{flag} {value}: {error}"));
            }
            assert!(choices.is_empty() || choices.contains(value), "{flag} {value}: the choices are {choices:?}");
        }
    }
}

/// What scheduling and the engine need to agree on.
#[test]
fn the_worker_asks_for_what_its_ranks_use() {
    let worker = everything()
        .into_iter()
        .flat_map(|rendered| rendered.manifests)
        .find(|manifest| manifest["metadata"]["name"] == "vllm-worker" && manifest["kind"] == "Deployment")
        .unwrap();
    let pod = &worker["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for resource in ["nvidia.com/gpu", "vpc.amazonaws.com/efa", "hugepages-2Mi"] {
        assert_eq!(container["resources"]["requests"][resource], container["resources"]["limits"][resource], "{resource}: extended resources are not overcommitted");
    }
    let args = container["args"].as_array().unwrap();
    let size = args.iter().position(|arg| arg == "--tensor-parallel-size").map(|at| &args[at + 1]).unwrap();
    assert_eq!(&container["resources"]["limits"]["nvidia.com/gpu"], size);
    assert!(pod["volumes"].as_array().unwrap().iter().all(|volume| volume.get("hostPath").is_none()), "nothing of the host is mounted");
    let budget = container["startupProbe"]["failureThreshold"].as_u64().unwrap() * container["startupProbe"]["periodSeconds"].as_u64().unwrap();
    assert!(budget >= 2454, "the probe allows for the whole load");
}
