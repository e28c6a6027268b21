//! Which catalogue cells nobody has read at a source.

use serde_json::Value;

use super::spec::Spec;

/// The cells behind this deployment without a source, as `path (value)`: said in plan and check.
pub fn unverified(spec: &Spec) -> Vec<String> {
    let mut found = Vec::new();
    let mut model = serde_json::to_value(&spec.model).unwrap_or_default();
    if let Some(model) = model.as_object_mut() {
        // The other precisions are none of this deployment's business.
        model.remove("precisions");
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

/// A cell is a table that holds a figure, a version, a reference or a code; it should name its source.
fn cells(path: &str, value: &Value, found: &mut Vec<String>) {
    let Some(table) = value.as_object() else { return };
    match ["value", "version", "ref", "code"].into_iter().find_map(|key| table.get(key)) {
        Some(figure) => {
            let text = |key: &str| table.get(key).and_then(Value::as_str);
            if text("source").is_none() || text("status") == Some("unverified") {
                found.push(format!("{path} ({})", figure.as_str().map_or_else(|| figure.to_string(), str::to_owned)));
            }
        }
        None => table.iter().for_each(|(key, value)| cells(&format!("{path} {key}"), value, found)),
    }
}
