//! How long a start may take.

use crate::lint::finding::Severity;
use crate::lint::path;
use crate::lint::rule::{Check, Found, Rule, Seen};
use crate::lint::workload::Container;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: "N50",
        title: "a probe ends the worker before the weights are loaded",
        severity: Severity::Error,
        cause: "Hundreds of gigabytes over a shared file system take longer than the probe allows: the kubelet kills the worker (`Startup probe failed: 503`), and it begins anew, for ever. Without a startup probe the liveness probe does that from the first second on.",
        fix: "A startupProbe with failureThreshold × periodSeconds ≥ 2 × bytes of the weights ÷ measured read rate.",
        check: Check::Container(probe_budget),
    },
    Rule {
        id: "N51",
        title: "the engine gives itself less time than the probe does",
        severity: Severity::Error,
        cause: "VLLM_ENGINE_READY_TIMEOUT_S (600 s unless set) ends a start that the probe would still allow; VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS (300 s) ends the first request while Mamba kernels are compiled.",
        fix: "VLLM_ENGINE_READY_TIMEOUT_S as long as the startup probe, VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800 for a Mamba hybrid.",
        check: Check::Container(timeouts),
    },
];

/// Annotation of manifests of ours: what their patience was computed from, in MB/s: measured, or what the file system is provisioned for.
const READ_RATE: &str = "nemo.dev/read-mb-s";

/// Seconds that the startup probe gives a container.
fn budget(container: &Container<'_>) -> Option<u64> {
    patience(container, "startupProbe")
}

/// Seconds until the kubelet kills a container that has not answered this probe yet.
fn patience(container: &Container<'_>, probe: &str) -> Option<u64> {
    let probe = container.value.get(probe)?;
    let number = |name: &str, default| probe[name].as_u64().unwrap_or(default);
    // Whatever number stands there: one that no probe can have must not end the lint.
    Some(number("periodSeconds", 10).saturating_mul(number("failureThreshold", 3)).saturating_add(number("initialDelaySeconds", 0)))
}

fn probe_budget(seen: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    if !container.line.engine() {
        return;
    }
    let Some((_, _, precision)) = container.line.model().and_then(|name| found.known.model(name)) else { return };
    let rate = seen.pod.annotation(READ_RATE).and_then(|text| text.parse().ok()).unwrap_or(found.known.figures.read_mb_s.value).max(1);
    let weights = u64::from(precision.weights_gb.value);
    let needed = weights.saturating_mul(2000) / rate;
    if let Some(budget) = budget(container).filter(|budget| *budget < needed) {
        found.add(path::field(&container.path, "startupProbe"), format!("{budget} s"), format!("{needed} s: {weights} GB at {rate} MB/s, twice"));
    }
    // A startup probe holds the liveness probe back until it has succeeded. Dynamo's operator adds one where there is none.
    let alone = container.value.get("startupProbe").is_none() && seen.document["kind"] != "DynamoGraphDeployment";
    if let Some(budget) = patience(container, "livenessProbe").filter(|budget| alone && *budget < needed) {
        let right = format!("a startupProbe of {needed} s: {weights} GB at {rate} MB/s, twice");
        found.add(path::field(&container.path, "livenessProbe"), format!("{budget} s without a startupProbe"), right);
    }
}

fn timeouts(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    if !container.line.engine() {
        return;
    }
    let figures = &found.known.figures;
    let (ready_default, execute_default) = (figures.engine_ready_s.value, figures.execute_model_s.value);
    let period = container.value["startupProbe"]["periodSeconds"].as_u64().unwrap_or(10);
    let seconds = |name: &str| container.var(name).and_then(|text| text.parse::<u64>().ok());
    let at = |name: &str| container.env.get(name).map_or_else(|| container.path.clone(), |variable| variable.path.clone());
    const READY: &str = "VLLM_ENGINE_READY_TIMEOUT_S";
    if let Some(budget) = budget(container) {
        let given = seconds(READY).unwrap_or(ready_default);
        // Rounded up to a whole period, the probe may be a little longer.
        if given.saturating_add(period) < budget {
            let what = if container.env.contains_key(READY) { format!("{READY}={given}") } else { format!("{READY} is not set, so {given}") };
            found.add(at(READY), format!("{what}; the probe allows {budget} s"), format!("{READY}={budget}")).replace(given.to_string(), budget.to_string());
        }
    }
    const EXECUTE: &str = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS";
    let hybrid = container.line.model().and_then(|name| found.known.hybrid(name)) == Some(true);
    let given = seconds(EXECUTE).unwrap_or(execute_default);
    if hybrid && given <= execute_default {
        let what = if container.env.contains_key(EXECUTE) { format!("{EXECUTE}={given}") } else { format!("{EXECUTE} is not set, so {given}") };
        found.add(at(EXECUTE), what, format!("{EXECUTE}=1800")).replace(given.to_string(), "1800");
    }
}
