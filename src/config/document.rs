//! What is published about the settings: their JSON Schema, and a `nemo.toml` to begin with.

use serde_json::{Map, Value, json};

use super::files::DEFAULTS;
use super::layers::Layers;
use super::rules::rule;

/// JSON Schema of `nemo.toml`.
pub fn schema() -> Value {
    let mut root = table();
    for setting in Layers::defaults().iter() {
        let mut parts: Vec<_> = setting.key.split('.').collect();
        let last = parts.pop().unwrap_or_default();
        let mut at = &mut root;
        for part in parts {
            at = &mut at["properties"][part];
            if at.is_null() {
                *at = table();
            }
        }
        let mut entry = rule(&setting.key).schema();
        entry["default"] = serde_json::to_value(&setting.value).unwrap_or_default();
        entry["description"] = format!("{} (also {})", setting.description, Layers::variable(&setting.key)).into();
        at["properties"][last] = entry;
    }
    let mut schema = Map::new();
    schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".into(), "nemo.toml: settings of nemo".into());
    if let Value::Object(root) = root {
        schema.extend(root);
    }
    Value::Object(schema)
}

fn table() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

/// A `nemo.toml` in which every setting stands commented out with its default.
pub fn sample() -> String {
    let mut text = String::from(
        "# Settings of this deployment. Uncomment what you want to change; `nemo config show` tells what is in force and why.\n\
         # NEMO_* variables and flags go over this file.\n\n",
    );
    for line in DEFAULTS.lines().skip_while(|line| line.starts_with('#')).skip(1) {
        if !line.is_empty() && !line.starts_with('#') {
            text.push_str("# ");
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_every_setting_and_nothing_else_is_allowed() {
        let schema = schema();
        for setting in Layers::defaults().iter() {
            let pointer = format!("/properties/{}", setting.key.replace('.', "/properties/"));
            let entry = schema.pointer(&pointer).unwrap_or_else(|| panic!("{pointer} is missing"));
            assert!(entry.get("type").is_some(), "{pointer}: {entry}");
        }
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["gpu"]["additionalProperties"], false);
        assert_eq!(schema["properties"]["gpu"]["properties"]["nodes"]["minimum"], 1);
    }

    #[test]
    fn the_sample_changes_nothing_and_says_the_defaults_once_uncommented() {
        assert!(toml::from_str::<toml::Table>(&sample()).unwrap().is_empty());
        let uncommented: String =
            sample().lines().map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ") || rest.starts_with('[')).unwrap_or("")).collect::<Vec<_>>().join("\n");
        assert_eq!(toml::from_str::<toml::Table>(&uncommented).unwrap(), toml::from_str::<toml::Table>(DEFAULTS).unwrap());
    }
}
