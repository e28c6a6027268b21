//! The KV cache on its way from prefill to decode.

use serde_json::Value;

use crate::lint::finding::{Finding, Severity};
use crate::lint::known::Known;
use crate::lint::linter::{At, Gathered, Together};
use crate::lint::rule::{Check, Found, Rule, Seen};
use crate::lint::workload::{Container, Pod, list};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: "N26",
        title: "NIXL moves the KV cache by UCX over TCP",
        severity: Severity::Error,
        cause: "vLLM's NixlConnector takes UCX unless its own settings say otherwise; variables such as NIXL_BACKEND are not read. The first token then takes a hundred times as long, or the handshake fails.",
        fix: "--kv-transfer-config '{\"kv_connector\":\"NixlConnector\", …, \"kv_connector_extra_config\":{\"backends\":[\"LIBFABRIC\"]}}' on both roles.",
        check: Check::Container(backends),
    },
    Rule {
        id: "N30",
        title: "KV blocks are let go before they were fetched",
        severity: Severity::Error,
        cause: "A prefill worker keeps blocks for 30 seconds by default, an end of the lease is only a line in its log, and the decode worker answers HTTP 200 with tokens made from freed or reused blocks.",
        fix: "\"kv_lease_duration\": 300 in kv_connector_extra_config of both roles, the same in both, and \"kv_load_failure_policy\": \"fail\".",
        check: Check::Container(lease),
    },
    Rule {
        id: "N56",
        title: "a Mamba hybrid with a KV connector, and settings that do not go together",
        severity: Severity::Error,
        cause: "The connector moves Mamba states only in whole aligned blocks and one layout; without that the engine ends at start or at the first request.",
        fix: "--mamba-cache-mode align with --enable-prefix-caching, chunked prefill and the hybrid KV cache manager left on, and VLLM_SSM_CONV_STATE_LAYOUT=DS.",
        check: Check::Container(hybrid),
    },
];

const CONFIG: &str = "--kv-transfer-config";

/// The settings of NIXL, if the container uses it: alone, or as one of several connectors.
fn nixl(container: &Container<'_>) -> Option<(Value, String)> {
    let (config, flag) = container.line.json(CONFIG)?;
    let is = |config: &Value| config["kv_connector"].as_str().is_some_and(|name| name.starts_with("Nixl"));
    if is(&config) {
        return Some((config, flag.path.clone()));
    }
    let inner = list(&config["kv_connector_extra_config"]["connectors"]).find(|config| is(config))?;
    Some((inner.clone(), flag.path.clone()))
}

fn backends(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    const RIGHT: &str = "\"kv_connector_extra_config\": {\"backends\": [\"LIBFABRIC\"]}";
    let Some((config, path)) = nixl(container) else { return };
    let backends = &config["kv_connector_extra_config"]["backends"];
    if list(backends).any(|backend| backend == "LIBFABRIC") {
        return;
    }
    let by_variable = container.env.keys().find(|name| name.starts_with("NIXL_") && name.contains("BACKEND"));
    let what = match (backends.is_array(), by_variable) {
        (true, _) => format!("\"backends\": {backends}"),
        (false, Some(name)) => format!("no backends, only the variable {name}, which nothing reads"),
        (false, None) => "no backends, so UCX".to_owned(),
    };
    // Without EFA in the pod UCX may be right: on another network.
    let finding = if container.efa() > 0 || by_variable.is_some() { found.add(path, what, RIGHT) } else { found.warn(path, what, RIGHT) };
    rewrite(finding, container, |extra| extra["backends"] = serde_json::json!(["LIBFABRIC"]));
}

/// Offers the whole JSON of the flag with another inner part, if it is one connector's alone and no script's.
fn rewrite(finding: &mut Finding, container: &Container<'_>, change: impl FnOnce(&mut Value)) {
    let Some(text) = container.line.value(&[CONFIG]) else { return };
    let Ok(mut config) = serde_json::from_str::<Value>(text) else { return };
    if config["kv_connector"].as_str().is_some_and(|name| name.starts_with("Nixl")) {
        if !config["kv_connector_extra_config"].is_object() {
            config["kv_connector_extra_config"] = serde_json::json!({});
        }
        change(&mut config["kv_connector_extra_config"]);
        finding.replace(text, config.to_string());
    }
}

fn lease(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let Some((config, path)) = nixl(container) else { return };
    let least = found.known.figures.kv_lease_s.value;
    match config["kv_connector_extra_config"]["kv_lease_duration"].as_f64() {
        Some(lease) if lease >= least as f64 => {}
        Some(lease) => {
            let finding = found.add(&path, format!("\"kv_lease_duration\": {lease}"), format!("\"kv_lease_duration\": {least}"));
            rewrite(finding, container, |extra| extra["kv_lease_duration"] = least.into());
        }
        None => {
            let finding = found.add(&path, "no kv_lease_duration, so 30", format!("\"kv_lease_duration\": {least} in kv_connector_extra_config"));
            rewrite(finding, container, |extra| extra["kv_lease_duration"] = least.into());
        }
    }
    let recomputes = config["kv_load_failure_policy"] == "recompute";
    if recomputes {
        found.warn(path, "\"kv_load_failure_policy\": \"recompute\"", "\"kv_load_failure_policy\": \"fail\"");
    }
}

fn hybrid(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let line = &container.line;
    let Some((config, _)) = line.json(CONFIG).filter(|(config, _)| config["kv_connector"].is_string()) else { return };
    if line.model().and_then(|model| found.known.hybrid(model)) != Some(true) {
        return;
    }
    let off = ["--disable-hybrid-kv-cache-manager", "--no-enable-prefix-caching", "--no-enable-chunked-prefill"];
    if let Some(flag) = line.flag(&off) {
        found.add(&flag.path, &flag.name, format!("no {}", flag.name));
    }
    match line.flag(&["--mamba-cache-mode"]) {
        Some(flag) if flag.value.as_deref() != Some("align") => {
            let value = flag.value.as_deref().unwrap_or_default();
            found.add(&flag.path, format!("--mamba-cache-mode {value}"), "--mamba-cache-mode align").replace(value, "align");
        }
        None => {
            found.warn(&container.path, "no --mamba-cache-mode", "--mamba-cache-mode align");
        }
        Some(_) => {}
    }
    let nixl = config["kv_connector"].as_str().is_some_and(|name| name.starts_with("Nixl"));
    if nixl && container.var("VLLM_SSM_CONV_STATE_LAYOUT") != Some("DS") {
        let at = container.env.get("VLLM_SSM_CONV_STATE_LAYOUT");
        let (path, what) = at.map_or((&container.path, "VLLM_SSM_CONV_STATE_LAYOUT is not set"), |variable| (&variable.path, variable.value.unwrap_or("from elsewhere")));
        found.add(path, what, "VLLM_SSM_CONV_STATE_LAYOUT=DS");
    }
}

/// How long one role keeps blocks.
#[derive(Debug)]
pub(in crate::lint) struct Lease {
    group: String,
    role: String,
    seconds: f64,
    path: String,
}

/// Notes the leases of a document's engines.
pub(in crate::lint) fn gather(document: &Value, pods: &[Pod<'_>], gathered: &mut Gathered, at: &At) {
    for pod in pods {
        for container in &pod.containers {
            let Some((config, path)) = nixl(container) else { continue };
            let role = container.line.value(&["--disaggregation-mode"]).or(pod.role).or(config["kv_role"].as_str()).unwrap_or("both").to_owned();
            let namespace = document["metadata"]["namespace"].as_str().unwrap_or_default();
            let group = format!("{namespace} {}", container.var("DYN_NAMESPACE").unwrap_or_default());
            let seconds = config["kv_connector_extra_config"]["kv_lease_duration"].as_f64().unwrap_or(30.0);
            gathered.leases.push((Lease { group, role, seconds, path }, at.clone()));
        }
    }
}

/// Roles of one deployment whose leases differ.
pub(in crate::lint) fn together(gathered: &Gathered, _: &Known) -> Vec<Together> {
    let mut wrong = Vec::new();
    for (index, (lease, at)) in gathered.leases.iter().enumerate() {
        let first = gathered.leases[..index].iter().find(|(other, _)| other.group == lease.group && other.role != lease.role);
        if let Some((other, _)) = first.filter(|(other, _)| (other.seconds - lease.seconds).abs() > f64::EPSILON) {
            let (what, right) = (format!("{} keeps blocks for {} s, {} for {} s", lease.role, lease.seconds, other.role, other.seconds), lease.seconds.max(other.seconds));
            wrong.push(Together { at: at.clone(), path: lease.path.clone(), found: what, right: format!("\"kv_lease_duration\": {right} in both") });
        }
    }
    wrong
}
