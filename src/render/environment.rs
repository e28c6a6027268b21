//! Templates to documents. An undefined value is an error, and every value enters the YAML as JSON: quoted where YAML would guess.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::Context;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;
use serde_json::Value;

use crate::config::{Overlay, OverlayFile, nearest};
use crate::error::{Kind, fail};
use crate::lint;

/// The templates of a folder by their file names; no two folders have one of the same name.
macro_rules! templates {
    ($folder:literal: $($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../templates/", $folder, "/", $name)))),*] };
}

const CLOUDFORMATION: &[(&str, &str)] = templates!["cloudformation": "gpu-nodes.yaml", "nat.yaml", "network.yaml", "roles.yaml"];
/// Those that the serving manifests are made from: what users may put in the place of ours.
const SERVING: &[(&str, &str)] = templates![
    "kubernetes":
    "access.yaml",
    "dgd-v1alpha1.yaml",
    "dgd.yaml",
    "encode.yaml",
    "encoded-folder.yaml",
    "frontend.yaml",
    "frontend-container.yaml",
    "frontend-pod.yaml",
    "gateway.conf",
    "gateway.yaml",
    "lws.yaml",
    "router.conf",
    "router.yaml",
    "runtime-class.yaml",
    "worker.yaml",
    "worker-container.yaml",
    "worker-pod.yaml"
];
/// Those of the other steps.
const STEPS: &[(&str, &str)] = templates![
    "kubernetes":
    "bench.yaml",
    "chart.yaml",
    "installer.yaml",
    "namespaces.yaml",
    "storage.yaml",
    "values-aws-efa-k8s-device-plugin.yaml",
    "values-dynamo-platform.yaml",
    "values-lws.yaml",
    "values-nvidia-device-plugin.yaml",
    "weights.yaml"
];
/// What to do about a template.
const CORRECT: &str = "correct it; templates/kubernetes/ has the template that it takes the place of, and nemo render shows what comes out";
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
    /// Files of users that went into it.
    pub overlays: Vec<String>,
}

/// A rendered file as text: whoever only writes it out has no use for its documents, and parsing them takes longer than rendering.
#[derive(Debug, Clone)]
pub struct Text {
    /// `worker.yaml`
    pub file: &'static str,
    pub text: String,
    /// As in [`Rendered`].
    pub(super) overlays: Vec<String>,
}

impl Text {
    /// With every document of it.
    pub(super) fn parsed(self) -> anyhow::Result<Rendered> {
        let Self { file, text, overlays } = self;
        let manifests = if overlays.is_empty() {
            documents(&text).with_context(|| fail(Kind::Bug, format!("what the template {file} gives is no YAML")))?
        } else {
            let no_yaml = |error: serde_saphyr::Error| {
                let line = error.location().map_or(0, |at| usize::try_from(at.line()).unwrap_or(0));
                let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
                let words = error.without_snippet().to_string();
                fail(Kind::Config, format!("{}: it renders to what is no YAML, in line {line} of {file}: {shown}: {words}", overlays.join(", "))).hint(CORRECT)
            };
            serde_saphyr::from_multiple::<Value>(&text).map_err(no_yaml)?.into_iter().filter(|document| !document.is_null()).collect()
        };
        Ok(Rendered { file, text, manifests, overlays })
    }
}

impl From<Rendered> for Text {
    fn from(Rendered { file, text, overlays, .. }: Rendered) -> Self {
        Self { file, text, overlays }
    }
}

/// Renders a template of ours and parses every document of it.
pub fn render(file: &'static str, values: &impl Serialize) -> anyhow::Result<Rendered> {
    text(file, values)?.parsed()
}

/// Renders a template of ours.
pub(super) fn text(file: &'static str, values: &impl Serialize) -> anyhow::Result<Text> {
    let wrong = || fail(Kind::Bug, format!("the template {file} does not render"));
    let text = ours(file)?.get_template(file).and_then(|template| template.render(Serde(values))).with_context(wrong)?;
    Ok(Text { file, text, overlays: Vec::new() })
}

fn ours(file: &str) -> anyhow::Result<&'static Environment<'static>> {
    ENVIRONMENT.as_ref().map_err(|error| anyhow::anyhow!("{error:#}")).with_context(|| fail(Kind::Bug, format!("the template {file} does not render")))
}

/// Our templates, with a user's in the place of those of the same name.
pub(super) struct Templates {
    environment: Cow<'static, Environment<'static>>,
    /// Path of the user's file by its name.
    users: BTreeMap<String, String>,
}

impl Templates {
    /// A file that is called as none of ours would be left aside without a word: it is refused.
    pub(super) fn with(overlay: &Overlay) -> anyhow::Result<Self> {
        let mut templates = Self { environment: Cow::Borrowed(ours("access.yaml")?), users: BTreeMap::new() };
        if !overlay.templates.is_empty() {
            // For the place of an error in the text.
            templates.environment.to_mut().set_debug(true);
        }
        for OverlayFile { name, path, text } in &overlay.templates {
            let known: Vec<_> = SERVING.iter().map(|(name, _)| *name).collect();
            if !known.contains(&name.as_str()) {
                let near: Vec<_> = nearest(name, &known).iter().map(|name| format!("; did you mean {name}?")).take(1).collect();
                let wrong = fail(Kind::Config, format!("{path}: the serving manifests have no template of that name{}", near.concat()));
                return Err(wrong.hint(format!("templates are {}", known.join(", "))).into());
            }
            templates.users.insert(name.clone(), path.clone());
            let added = templates.environment.to_mut().add_template_owned(name.clone(), text.clone());
            added.map_err(|error| templates.wrong(name, &error))?;
        }
        Ok(templates)
    }

    /// As [`text`]; what is wrong with a user's template is told as the user's.
    pub(super) fn render(&self, file: &'static str, values: &impl Serialize) -> anyhow::Result<Text> {
        let overlays = self.reached(file);
        if overlays.is_empty() {
            return text(file, values);
        }
        let rendered = self.environment.get_template(file).and_then(|template| template.render(Serde(values)));
        Ok(Text { file, text: rendered.map_err(|error| self.wrong(file, &error))?, overlays })
    }

    /// A template as text, for what is no YAML, and the users' files that went into it.
    pub(super) fn text(&self, file: &str, values: &impl Serialize) -> anyhow::Result<(String, Vec<String>)> {
        let text = self.environment.get_template(file).and_then(|template| template.render(Serde(values))).map_err(|error| self.wrong(file, &error))?;
        Ok((text, self.reached(file)))
    }

    /// Users' files among the templates that make this one.
    fn reached(&self, file: &str) -> Vec<String> {
        if self.users.is_empty() {
            return Vec::new();
        }
        let (mut open, mut names): (Vec<String>, Vec<String>) = (vec![file.to_owned()], Vec::new());
        while let Some(name) = open.pop() {
            let Ok(template) = self.environment.get_template(&name) else { continue };
            open.extend(
                template.source().split("include \"").skip(1).filter_map(|rest| rest.split('"').next()).filter(|name| !names.iter().any(|seen| seen == name)).map(str::to_owned),
            );
            names.push(name);
        }
        self.users.iter().filter(|(name, _)| names.contains(name)).map(|(_, path)| path.clone()).collect()
    }

    /// File, line, and the words there.
    fn wrong(&self, file: &str, error: &minijinja::Error) -> anyhow::Error {
        // The outer ones only say what included it.
        let mut error = error;
        while let Some(inner) = std::error::Error::source(error).and_then(|source| source.downcast_ref()) {
            error = inner;
        }
        let name = error.name().unwrap_or(file);
        let path = self.users.get(name).cloned().unwrap_or_else(|| format!("{} (through nemo's own {name})", self.reached(file).join(", ")));
        let line = error.line().unwrap_or(0);
        let source = error.template_source().unwrap_or_default();
        let shown = source.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
        let words = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        fail(Kind::Config, format!("{path}:{line}: {words}: {shown}")).hint(CORRECT).into()
    }
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
    for (name, source) in SERVING.iter().chain(STEPS).chain(CLOUDFORMATION) {
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
pub(super) fn documents(text: &str) -> anyhow::Result<Vec<Manifest>> {
    Ok(lint::documents(text)?)
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
