//! What the engine and the frontend are told.

use crate::config::EncodeWorker;
use crate::lint::finding::Severity;
use crate::lint::path;
use crate::lint::rule::{Check, Found, Rule, Seen};
use crate::lint::workload::Container;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: "N54",
        title: "NVFP4 with the Quack FP8 patch on",
        severity: Severity::Warning,
        cause: "Images with vllm_omni patch FP8 kernels in workers that may not start processes: 0.05 to 0.1 tokens/s, which looks like a hang.",
        fix: "VLLM_OMNI_USE_QUACK_FP8=0.",
        check: Check::Container(quack),
    },
    Rule {
        id: "N58",
        title: "Mamba flags for a model without Mamba",
        severity: Severity::Error,
        cause: "A pure transformer takes the flag at start and answers HTTP 500 at the first request.",
        fix: "No --mamba-… flags for this model.",
        check: Check::Container(mamba),
    },
    Rule {
        id: "N60",
        title: "the precision that is served is not the one that is named",
        severity: Severity::Error,
        cause: "A switch that was not set and the repository of the other precision: `NVFP4 failed` was BF16, and results are filed under the wrong name.",
        fix: "Model, served name, quantization and the object's name say the same precision.",
        check: Check::Container(precision),
    },
    Rule {
        id: "N85",
        title: "--reasoning-config beside the reasoning parser",
        severity: Severity::Error,
        cause: "With nemotron_v3 every word ends in the reasoning and `content` is null.",
        fix: "Leave --reasoning-config away; the parser alone knows where reasoning ends.",
        check: Check::Container(reasoning),
    },
    Rule {
        id: "N88",
        title: "pictures over NATS",
        severity: Severity::Error,
        cause: "NATS takes 1 MB a message, and a picture in base64 is more: requests with pictures fail.",
        fix: "DYN_REQUEST_PLANE=tcp, on the frontend too.",
        check: Check::Container(request_plane),
    },
    Rule {
        id: "encode-worker",
        title: "an encode worker that does not know the model, or a worker that refuses what it sends",
        severity: Severity::Error,
        cause: "Dynamo's encode worker loads a model that it does not know, and ends with NotImplementedError; what it sends the engine refuses in every request, unless told.",
        fix: "Dynamo's encode workers for models of the Qwen-VL family; --enable-mm-embeds beside --route-to-encoder.",
        check: Check::Container(encode),
    },
    Rule {
        id: "engine-flag",
        title: "a flag that the program does not take",
        severity: Severity::Error,
        cause: "The program ends with `unrecognized arguments` or `invalid choice` before it loads anything, once its image is pulled.",
        fix: "The flags that the real parsers take are in configs/engine-flags.tsv.",
        check: Check::Container(flags),
    },
];

/// The precision in a name: the last one that stands between marks.
fn named(name: &str) -> Option<&'static str> {
    const KNOWN: [&str; 3] = ["nvfp4", "bf16", "fp8"];
    let lower = name.to_lowercase();
    lower.split(|c: char| !c.is_ascii_alphanumeric()).rev().find_map(|word| KNOWN.into_iter().find(|known| word == *known))
}

fn quack(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    const NAME: &str = "VLLM_OMNI_USE_QUACK_FP8";
    if !container.line.engine() || container.line.model().and_then(named) != Some("nvfp4") {
        return;
    }
    match container.env.get(NAME) {
        Some(variable) if variable.value == Some("0") => {}
        Some(variable) => {
            let value = variable.value.unwrap_or("from elsewhere");
            found.add(&variable.path, format!("{NAME}={value}"), format!("{NAME}=0")).replace(value, "0");
        }
        None => {
            found.add(&container.path, format!("{NAME} is not set"), format!("{NAME}=0"));
        }
    }
}

fn mamba(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let Some(model) = container.line.model().filter(|model| found.known.hybrid(model) == Some(false)) else { return };
    for flag in container.line.flags.iter().filter(|flag| flag.name.starts_with("--mamba-")) {
        found.add(&flag.path, format!("{} for {model}", flag.name), format!("no {}", flag.name));
    }
}

fn precision(seen: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let line = &container.line;
    let Some((model, loads)) = line.model().filter(|_| line.engine()).and_then(|model| Some((model, named(model)?))) else { return };
    if let Some(flag) = line.flag(&["--served-model-name"])
        && let Some(says) = flag.value.as_deref().and_then(named).filter(|says| *says != loads)
    {
        found.add(&flag.path, format!("{says} in the served name, {loads} in the model"), format!("the name of {model}"));
    }
    if let Some(flag) = line.flag(&["--quantization", "-q"])
        && let Some(value) = flag.value.as_deref().filter(|_| loads == "bf16")
    {
        found.add(&flag.path, format!("--quantization {value} for the BF16 repository {model}"), "no --quantization, or the repository of that precision");
    }
    if let Some(says) = seen.document["metadata"]["name"].as_str().and_then(named).filter(|says| *says != loads) {
        found.add("metadata.name", format!("{says} in the object's name, {loads} in the model"), format!("a model of {says}, or a name with {loads}"));
    }
}

fn reasoning(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let line = &container.line;
    let Some((_, flag)) = line.json("--reasoning-config") else { return };
    let parser = line.value(&["--reasoning-parser", "--dyn-reasoning-parser"]).unwrap_or_default();
    let nemotron = parser.starts_with("nemotron") || line.model().is_some_and(|model| model.to_lowercase().contains("nemotron"));
    if nemotron {
        found.add(&flag.path, format!("--reasoning-config with the parser {parser:?}"), "no --reasoning-config");
    }
}

fn request_plane(seen: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let line = &container.line;
    let by_flag = line.flag(&["--request-plane"]).filter(|flag| flag.value.as_deref() == Some("nats")).map(|flag| flag.path.clone());
    let by_variable = container.env.get("DYN_REQUEST_PLANE").filter(|variable| variable.value == Some("nats")).map(|variable| variable.path.clone());
    let Some(at) = by_flag.or(by_variable) else { return };
    let beside = || crate::lint::workload::pods(seen.document).iter().flat_map(|pod| &pod.containers).any(|container| found.known.vision(&container.line));
    if found.known.vision(line) || beside() {
        found.add(at, "request plane nats for a model that takes pictures", "tcp").replace("nats", "tcp");
    }
}

fn encode(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let line = &container.line;
    if let Some(flag) = line.flag(&["--route-to-encoder"])
        && line.flag(&["--enable-mm-embeds"]).is_none()
    {
        found.add(&flag.path, "--route-to-encoder without --enable-mm-embeds", "--enable-mm-embeds beside it");
    }
    let unknown = |model: &&str| found.known.model(model).is_some_and(|(model, ..)| model.encode_worker.as_ref().is_none_or(|worker| worker.value != EncodeWorker::Dynamo));
    if let Some(flag) = line.flag(&["--disaggregation-mode"]).filter(|flag| flag.value.as_deref() == Some("encode"))
        && let Some(model) = line.model().filter(unknown)
    {
        found.add(&flag.path, format!("--disaggregation-mode encode for {model}"), "a model that Dynamo's encode worker knows, or no encode worker");
    }
}

fn flags(seen: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let versions = found.known.versions(seen.pod, container);
    for wrong in found.known.flags.wrong(&container.line, &versions) {
        found.add(wrong.path, wrong.found, wrong.right);
    }
    // `decode` parses without it, and then silently fetches nothing.
    let role = container.line.value(&["--disaggregation-mode"]);
    if matches!(role, Some("prefill" | "decode")) && container.line.json("--kv-transfer-config").is_none() {
        found.add(
            path::field(&container.path, "args"),
            format!("--disaggregation-mode {} without --kv-transfer-config", role.unwrap_or_default()),
            "--kv-transfer-config on both roles",
        );
    }
}
