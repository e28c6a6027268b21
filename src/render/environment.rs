//! Templates to documents. An undefined value is an error, and every value enters the YAML as JSON: quoted where YAML would guess.

use std::sync::LazyLock;

use anyhow::Context;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;
use serde_json::Value;

use crate::error::{Kind, fail};

/// The templates of a folder by their file names; no two folders have one of the same name.
macro_rules! templates {
    ($folder:literal: $($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../templates/", $folder, "/", $name)))),*] };
}

const CLOUDFORMATION: &[(&str, &str)] = templates!["cloudformation": "gpu-nodes.yaml", "nat.yaml", "network.yaml", "roles.yaml"];
const KUBERNETES: &[(&str, &str)] = templates![
    "kubernetes":
    "access.yaml",
    "bench.yaml",
    "chart.yaml",
    "dgd-v1alpha1.yaml",
    "dgd.yaml",
    "frontend.yaml",
    "frontend-container.yaml",
    "frontend-pod.yaml",
    "installer.yaml",
    "lws.yaml",
    "namespaces.yaml",
    "storage.yaml",
    "values-aws-efa-k8s-device-plugin.yaml",
    "values-dynamo-platform.yaml",
    "values-lws.yaml",
    "values-nvidia-device-plugin.yaml",
    "worker.yaml",
    "worker-container.yaml",
    "worker-pod.yaml",
    "weights.yaml"
];
/// All templates, parsed once: a set of manifests renders some of them many times.
static ENVIRONMENT: LazyLock<Result<Environment<'static>, minijinja::Error>> = LazyLock::new(environment);

/// One document of a rendered file.
pub type Manifest = Value;

/// A rendered file: what a person reads (with its comments), and what is applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// `worker.yaml`
    pub file: &'static str,
    pub text: String,
    pub manifests: Vec<Manifest>,
}

/// Renders a template and parses every document of it.
pub fn render(file: &'static str, values: &impl Serialize) -> anyhow::Result<Rendered> {
    let wrong = || fail(Kind::Bug, format!("the template {file} does not render"));
    let environment = ENVIRONMENT.as_ref().map_err(|error| anyhow::anyhow!("{error:#}")).with_context(wrong)?;
    let text = environment.get_template(file).and_then(|template| template.render(Serde(values))).with_context(wrong)?;
    let manifests = documents(&text).with_context(|| fail(Kind::Bug, format!("what the template {file} gives is no YAML")))?;
    Ok(Rendered { file, text, manifests })
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    // Without the built-in functions: one is called `namespace`, and would stand in for a value of that name that is missing.
    let mut environment = Environment::empty();
    environment.add_filter("string", |value: minijinja::Value| value.to_string());
    environment.add_filter("plain", |value: String| minijinja::Value::from_safe_string(value));
    environment.add_filter("indent", indent);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Json);
    environment.set_syntax(SyntaxConfig::builder().keep_trailing_newline(true).build()?);
    for (name, source) in KUBERNETES.iter().chain(CLOUDFORMATION) {
        environment.add_template(name, source)?;
    }
    Ok(environment)
}

/// For text that is included deeper than it is written: all lines but the first, which stands where it is included.
fn indent(text: String, columns: usize) -> minijinja::Value {
    let mut lines = text.trim_end().lines();
    let mut indented = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        indented.push('\n');
        if !line.is_empty() {
            indented.push_str(&" ".repeat(columns));
            indented.push_str(line);
        }
    }
    minijinja::Value::from_safe_string(indented)
}

/// The documents of a YAML text; those that hold only comments are none.
fn documents(text: &str) -> anyhow::Result<Vec<Manifest>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_yaml_would_guess_at_stay_strings() {
        let values = json!({"namespace": "no", "volume": "on", "claim": "1e3", "capacity_gib": 1200, "file_system_id": "fs-1", "dns_name": "a: b # c", "mount_name": "y"});
        let rendered = render("storage.yaml", &values).unwrap();
        assert_eq!(rendered.manifests[0]["metadata"]["name"], "no");
        assert_eq!(rendered.manifests[1]["spec"]["csi"]["volumeAttributes"], json!({"dnsname": "a: b # c", "mountname": "y"}));
        assert_eq!(rendered.manifests[2]["metadata"], json!({"name": "1e3", "namespace": "no"}));
        assert!(rendered.text.contains("mountname: \"y\""), "YAML 1.1 readers take y for true");
    }

    #[test]
    fn an_undefined_value_is_an_error_that_names_the_template() {
        let error = render("access.yaml", &json!({})).unwrap_err();
        let failure = crate::error::Failure::of(None, &error);
        assert_eq!(failure.kind, Kind::Bug);
        assert!(failure.message.contains("access.yaml") && failure.message.contains("undefined"), "{}", failure.message);
    }
}
