//! Which catalogue cells nobody has read at a source.

use serde_json::Value;

use super::fit::Assumptions;
use super::spec::Spec;

/// The cells behind this deployment without a source, as `path (value)`: said in plan and check.
pub fn unverified(spec: &Spec) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut model = serde_json::to_value(&spec.model).unwrap_or_default();
    if let Some(model) = model.as_object_mut() {
        // The other precisions and other GPUs are none of this deployment's business.
        model.remove("precisions");
        // Nor is who could encode pictures apart, where nobody does.
        if !spec.serve.topology.splits_encode() {
            model.remove("encode_worker");
        }
        let gpu = spec.instance.gpu.as_deref().unwrap_or_default();
        let flags: Vec<_> = spec.model.flags_for(&spec.precision_name, gpu).collect();
        model.insert("flags".into(), serde_json::to_value(flags).unwrap_or_default());
    }
    for (name, value) in [
        (spec.instance.type_name.clone(), serde_json::to_value(&spec.instance).unwrap_or_default()),
        (spec.system_instance.type_name.clone(), serde_json::to_value(&spec.system_instance).unwrap_or_default()),
        (spec.model.name.clone(), model),
        (format!("{} {}", spec.model.name, spec.precision_name), serde_json::to_value(&spec.precision).unwrap_or_default()),
        (format!("platform {}", spec.platform_name), serde_json::to_value(&spec.platform).unwrap_or_default()),
    ] {
        cells(&name, &value, &mut found);
    }
    found
}

/// Those of the set of versions.
pub fn unverified_of_platform(spec: &Spec) -> Vec<String> {
    let mut found = Vec::new();
    cells(&spec.platform_name, &serde_json::to_value(&spec.platform).unwrap_or_default(), &mut found);
    found
}

/// Those that the fit uses: of the model, the precision, the GPUs' memory, and what is assumed.
pub fn unverified_of_fit(spec: &Spec, assumptions: &Assumptions) -> Vec<String> {
    let mut found = Vec::new();
    let (model, gpu) = (&spec.model, spec.instance.type_name.as_str());
    for (name, value) in [
        (format!("{} architecture", model.name), serde_json::to_value(&model.architecture)),
        (format!("{} max_model_len", model.name), serde_json::to_value(&model.max_model_len)),
        (format!("{} mamba_ssm_cache_dtype", model.name), serde_json::to_value(&model.mamba_ssm_cache_dtype)),
        (format!("{} {}", model.name, spec.precision_name), serde_json::to_value(&spec.precision)),
        (format!("{gpu} gpus"), serde_json::to_value(&spec.instance.gpus)),
        (format!("{gpu} gpu_memory_visible_gib"), serde_json::to_value(&spec.instance.gpu_memory_visible_gib)),
        ("assumed".to_owned(), serde_json::to_value(assumptions)),
    ] {
        cells(&name, &value.unwrap_or_default(), &mut found);
    }
    found
}

/// What a cell holds that should have a source.
const FIGURES: [&str; 6] = ["value", "version", "ref", "code", "repository", "args"];

/// A cell is a table that holds a figure, a version, a reference or a code, and names its source; one with a status alone speaks for all that is in it.
fn cells(path: &str, value: &Value, found: &mut Vec<String>) {
    if let Some(items) = value.as_array() {
        return items.iter().for_each(|item| cells(path, item, found));
    }
    let Some(table) = value.as_object() else { return };
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    match FIGURES.into_iter().find_map(|key| table.get(key)) {
        Some(figure) if text("source").is_none() || text("status") == Some("unverified") => found.push(format!("{path} ({})", shown(figure))),
        None if text("status") == Some("unverified") => found.push(path.to_owned()),
        _ => {}
    }
    table.iter().filter(|(_, inner)| inner.is_object() || inner.is_array()).for_each(|(key, inner)| cells(&format!("{path} {key}"), inner, found));
}

fn shown(figure: &Value) -> String {
    match figure {
        Value::String(text) => text.clone(),
        Value::Array(words) => words.iter().map(shown).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::{Inputs, load};
    use super::*;

    fn spec(set: &str) -> Spec {
        // One that both sets can load.
        let flags = [("platform.set", set), ("model", "nemotron-3-ultra")].map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        load(&Inputs { working_folder: std::env::temp_dir().join("nowhere"), flags, ..Inputs::default() }).unwrap().0
    }

    #[test]
    fn every_set_locks_what_belongs_together_and_says_what_was_not_read() {
        for (set, unsure) in [("1.4", false), ("1.6", true)] {
            let spec = spec(set);
            let said = unverified_of_platform(&spec);
            let cells = [("efa_installer", Some(&spec.platform.efa_installer)), ("aws_ofi_nccl", Some(&spec.platform.aws_ofi_nccl)), ("grove", spec.platform.grove.as_ref())];
            for (name, cell) in cells.into_iter().chain([("kai_scheduler", spec.platform.kai_scheduler.as_ref())]) {
                let cell = cell.unwrap_or_else(|| panic!("{set} names no {name}"));
                assert!(cell.source.is_some() && cell.read.is_some(), "{set} {name}");
                assert_eq!(said.contains(&format!("{set} {name} ({})", cell.version)), unsure, "{set} {name}: {said:?}");
            }
            // The plan and the check say no less.
            let all = unverified(&spec);
            assert!(said.iter().all(|cell| all.contains(&format!("platform {cell}"))), "{said:?}\n{all:?}");
        }
    }
}
