//! Users' patches over what was rendered: a list of targets by kind and name, each with a JSON Patch (RFC 6902) or a merge patch (RFC 7386).
//!
//! These two need no schema, so that they reach every field of every kind alike. A strategic merge patch knows the keys of lists only for
//! kinds that are compiled in: of a LeaderWorkerSet or a DynamoGraphDeployment it would replace whole lists, as a merge patch does.

use json_patch::PatchOperation;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

use super::environment::{Manifest, Rendered, documents};
use crate::config::OverlayFile;
use crate::error::{Advice, Kind, fail};

/// What a file of patches looks like.
const SHAPE: &str = "a file of patches is a list: - {target: {kind: Deployment, name: vllm-worker}, patch: [{op: replace, path: /spec/replicas, value: 2}]}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    target: Target,
    /// A list is a JSON Patch, a mapping a merge patch; a text is one of the two as YAML or JSON.
    patch: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    name: String,
}

/// Patches the files in place, in the order of the list. A patch that meets nothing is refused: somebody meant something by it.
pub(super) fn apply(file: &OverlayFile, files: &mut [Rendered]) -> anyhow::Result<()> {
    plain_words(file)?;
    let entries: Vec<Spanned<Entry>> = serde_saphyr::from_str(&file.text).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line());
        fail(Kind::Config, format!("{}:{line}: {}", file.path, error.without_snippet())).hint(SHAPE)
    })?;
    if entries.is_empty() {
        return Err(fail(Kind::Config, format!("{}: there is no patch in it", file.path)).hint(SHAPE).into());
    }
    for Spanned { value: Entry { target, patch }, referenced, .. } in entries {
        let place = format!("{}:{}", file.path, referenced.line());
        let (rendered, index) = find(files, &target, &place)?;
        let patched = patched(&rendered.manifests[index], patch, &format!("{place}: {} {}", target.kind, target.name))?;
        rendered.text = rewritten(&rendered.text, index, &patched, &place)?;
        rendered.manifests[index] = patched;
        rendered.overlays.push(place);
    }
    Ok(())
}

/// Words that YAML takes for something that nobody may have meant.
fn plain_words(file: &OverlayFile) -> anyhow::Result<()> {
    for event in Parser::new_from_str(&file.text) {
        // What is no YAML is told by who reads it.
        let Ok((event, span)) = event else { break };
        let Event::Scalar(word, ScalarStyle::Plain, _, None) = event else { continue };
        let truth = matches!(word.to_ascii_lowercase().as_str(), "y" | "n" | "yes" | "no" | "on" | "off");
        let exponent = word.parse::<f64>().is_ok() && word.starts_with(|c: char| c.is_ascii_digit()) && word.contains(['e', 'E']);
        if truth || exponent {
            let becomes = if truth { "true or false to some readers of YAML and a word to others" } else { "a number to YAML" };
            return Err(fail(Kind::Config, format!("{}:{}: {word} without quotes is {becomes}", file.path, span.start.line()))
                .hint(format!("write \"{word}\" where the word is meant"))
                .into());
        }
    }
    Ok(())
}

fn find<'a>(files: &'a mut [Rendered], target: &Target, place: &str) -> anyhow::Result<(&'a mut Rendered, usize)> {
    let known: Vec<String> = files.iter().flat_map(|file| &file.manifests).map(title).collect();
    for file in files.iter_mut() {
        if let Some(index) = file.manifests.iter().position(|manifest| manifest["kind"] == target.kind.as_str() && manifest["metadata"]["name"] == target.name.as_str()) {
            return Ok((file, index));
        }
    }
    if let Some((_, why, hint)) = APART.iter().find(|(kind, ..)| *kind == target.kind) {
        return Err(fail(Kind::Config, format!("{place}: {} {} cannot be patched: {why}", target.kind, target.name)).hint(*hint).into());
    }
    Err(fail(Kind::Config, format!("{place}: there is no {} {} to patch", target.kind, target.name)).hint(format!("there is {}", known.join(", "))).into())
}

/// What the step `storage` makes: `nemo render` shows it, patches are over what serves. With the reason, and what to do instead.
const APART: [(&str, &str, &str); 3] = [
    (
        "Namespace",
        "it is made once for the weights and all that serves, and stays when the manifests change",
        "kubectl label and kubectl annotate: what nemo does not set itself, it leaves as it is",
    ),
    ("PersistentVolume", "it is the file system as it is, and takes no other source once a claim is bound to it", "storage.* settings, before the file system is made"),
    ("PersistentVolumeClaim", "its volume holds the weights, and it takes no other size or class once it is bound", "storage.* settings, before the file system is made"),
];

/// nemo's own marks on the object itself: by these it finds again what it made, so it sets them last, whatever else stands there.
pub fn marks(manifest: &Manifest) -> Vec<(String, String)> {
    let own = |key: &str| key.starts_with("nemo.dev/") || key == "app.kubernetes.io/managed-by";
    let of = |what: &'static str| {
        let pairs = manifest["metadata"][format!("{what}s").as_str()].as_object().into_iter().flatten();
        pairs.filter(|(key, _)| own(key)).map(move |(key, value)| (format!("{what} {key}"), value.to_string()))
    };
    of("label").chain(of("annotation")).collect()
}

fn title(manifest: &Manifest) -> String {
    format!("{} {}", manifest["kind"].as_str().unwrap_or_default(), manifest["metadata"]["name"].as_str().unwrap_or_default())
}

/// The manifest with one patch on it. `what` begins every error.
fn patched(manifest: &Manifest, patch: Value, what: &str) -> anyhow::Result<Manifest> {
    let patch = match patch {
        Value::String(text) => serde_saphyr::from_str(&text).map_err(|error| fail(Kind::Config, format!("{what}: {}", error.without_snippet())).hint(SHAPE))?,
        patch => patch,
    };
    let mut patched = manifest.clone();
    let only_tests = match patch {
        Value::Array(_) => {
            let operations: Vec<PatchOperation> = serde_json::from_value(patch).map_err(|error| fail(Kind::Config, format!("{what}: no JSON Patch: {error}")).hint(SHAPE))?;
            json_patch::patch(&mut patched, &operations).map_err(|error| missed(manifest, &operations, &error, what))?;
            !operations.is_empty() && operations.iter().all(|operation| matches!(operation, PatchOperation::Test(_)))
        }
        Value::Object(_) => {
            json_patch::merge(&mut patched, &patch);
            false
        }
        _ => return Err(fail(Kind::Config, format!("{what}: neither a list of operations nor a mapping")).hint(SHAPE).into()),
    };
    if patched == *manifest && !only_tests {
        return Err(fail(Kind::Config, format!("{what}: the patch changes nothing"))
            .hint("take it out, or correct what it was meant to change: nemo render shows what is there")
            .into());
    }
    let identity = |of: &Value| ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"].map(|pointer| of.pointer(pointer).cloned());
    if identity(&patched) != identity(manifest) {
        return Err(fail(Kind::Config, format!("{what}: apiVersion, kind, name and namespace stay as they are: other objects refer to them"))
            .hint("a deployment of another name: --name; another namespace: serve.namespace")
            .into());
    }
    let (before, after) = (marks(manifest), marks(&patched));
    if let Some((mark, _)) = after.iter().find(|mark| !before.contains(mark)).or(before.iter().find(|mark| !after.contains(mark))) {
        return Err(fail(Kind::Config, format!("{what}: the {mark} is nemo's own mark, which it sets itself: the patch would be undone"))
            .hint("take it out; labels and annotations of any other name stay")
            .into());
    }
    Ok(patched)
}

/// The operation that met nothing, and what is there instead.
fn missed(manifest: &Manifest, operations: &[PatchOperation], error: &json_patch::PatchError, what: &str) -> Advice {
    let path = error.path.to_string();
    let op = match operations.get(error.operation) {
        Some(PatchOperation::Add(_)) => "add",
        Some(PatchOperation::Remove(_)) => "remove",
        Some(PatchOperation::Replace(_)) => "replace",
        Some(PatchOperation::Move(_)) => "move",
        Some(PatchOperation::Copy(_)) => "copy",
        _ => "test",
    };
    // The longest part of the path that leads somewhere.
    let mut above = path.as_str();
    while manifest.pointer(above).is_none() {
        above = above.rsplit_once('/').map_or("", |(above, _)| above);
    }
    let there = match manifest.pointer(above) {
        Some(Value::Object(fields)) => format!("{above}/ has {}", fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ")),
        Some(Value::Array(items)) => format!("{above} is a list of {}, counted from 0; - is behind the last", items.len()),
        Some(value) => format!("{above} is {value}"),
        None => String::new(),
    };
    fail(Kind::Config, format!("{what}: {op} {path}: {}", error.kind)).hint(there)
}

/// The text with one document written anew; the reasons of its lines are lost, and that is said there.
fn rewritten(text: &str, index: usize, manifest: &Manifest, place: &str) -> anyhow::Result<String> {
    let mut parts = vec![String::new()];
    for line in text.split_inclusive('\n') {
        match (line.trim_end(), parts.last_mut()) {
            ("---", _) | (_, None) => parts.push(String::new()),
            (_, Some(part)) => part.push_str(line),
        }
    }
    let mut filled = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        if !documents(part)?.is_empty() {
            filled.push(n);
        }
    }
    let yaml = serde_saphyr::to_string(manifest)?;
    let again = documents(&yaml)?;
    let Some(part) = filled.get(index).and_then(|n| parts.get_mut(*n)).filter(|_| again == [manifest.clone()]) else {
        return Err(fail(Kind::Bug, format!("{place}: what was patched cannot be written as YAML")).into());
    };
    let said = part.lines().next().filter(|line| line.starts_with("# Patched by ")).map_or_else(
        || format!("# Patched by {place}: the reasons that stood here are in what nemo renders without patches.\n"),
        |line| format!("{}\n", line.replace(": the reasons", &format!(", {place}: the reasons"))),
    );
    *part = said + &yaml;
    Ok(parts.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;

    const TEXT: &str = "# one\nkind: Service\napiVersion: v1\nmetadata: {name: a, namespace: n}\nspec: {ports: [{port: 1}]}\n---\n# two\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: b}\ndata: {x: \"no\"}\n";

    fn files() -> Vec<Rendered> {
        vec![Rendered { file: "a.yaml", text: TEXT.into(), manifests: documents(TEXT).unwrap(), overlays: Vec::new() }]
    }

    fn laid(text: &str) -> Result<Rendered, Failure> {
        let mut files = files();
        apply(&OverlayFile { name: "p.yaml".into(), path: "p.yaml".into(), text: text.into() }, &mut files)?;
        Ok(files.remove(0))
    }

    #[test]
    fn each_standard_changes_what_it_names_and_the_text_says_so() {
        let patches = "- target: {kind: ConfigMap, name: b}\n  patch: {data: {k: \"1e3\", l: \"on\"}}\n- target: {kind: Service, name: a}\n  patch:\n  - {op: test, path: /spec/ports/0/port, value: 1}\n  - {op: add, path: /spec/ports/-, value: {port: 2}}\n- target: {kind: ConfigMap, name: b}\n  patch: |-\n    - op: remove\n      path: /data/x\n";
        let rendered = laid(patches).unwrap();
        assert_eq!(rendered.manifests, documents(&rendered.text).unwrap(), "what is read and what is applied are the same");
        assert_eq!(rendered.manifests[0]["spec"], serde_json::json!({"ports": [{"port": 1}, {"port": 2}]}));
        assert_eq!(rendered.manifests[1]["data"], serde_json::json!({"k": "1e3", "l": "on"}));
        assert_eq!(rendered.overlays, ["p.yaml:1", "p.yaml:3", "p.yaml:7"]);
        let (first, second) = rendered.text.split_once("---\n").unwrap();
        assert!(first.starts_with("# Patched by p.yaml:3: the reasons") && second.starts_with("# Patched by p.yaml:1, p.yaml:7: the reasons"), "{}", rendered.text);
        assert!(second.contains("l: \"on\"") || second.contains("l: 'on'"), "YAML 1.1 readers take on for true: {second}");
    }

    #[test]
    fn what_meets_nothing_or_says_nothing_clear_is_refused_with_its_place() {
        let service = |patch: &str| format!("# first\n- target: {{kind: Service, name: a}}\n  patch: {patch}\n");
        for (text, words, hint) in [
            ("- target: {kind: Deployment, name: a}\n  patch: {}\n".to_owned(), "p.yaml:1: there is no Deployment a to patch", "there is Service a, ConfigMap b"),
            (service("[{op: replace, path: /spec/prots/0, value: 2}]"), "p.yaml:2: Service a: replace /spec/prots/0: path is invalid", "/spec/ has ports"),
            (service("[{op: add, path: /spec/ports/7, value: 2}]"), "p.yaml:2: Service a: add /spec/ports/7: path is invalid", "/spec/ports is a list of 1"),
            (service("[{op: test, path: /spec/ports/0/port, value: 2}]"), "test /spec/ports/0/port: value did not match", "/spec/ports/0/port is 1"),
            (service("{spec: {ports: [{port: 1}]}}"), "p.yaml:2: Service a: the patch changes nothing", "nemo render"),
            (service("[]"), "p.yaml:2: Service a: the patch changes nothing", "nemo render"),
            (service("{metadata: {name: c}}"), "name and namespace stay", "--name"),
            (service("[{op: chnage, path: /spec}]"), "no JSON Patch: unknown variant `chnage`", "a list"),
            (service("{metadata: {labels: {nemo.dev/step: weights}}}"), "p.yaml:2: Service a: the label nemo.dev/step is nemo's own mark", "any other name"),
            (
                service("[{op: add, path: /metadata/labels, value: {app.kubernetes.io/managed-by: helm}}]"),
                "p.yaml:2: Service a: the label app.kubernetes.io/managed-by",
                "take it out",
            ),
            (service("{metadata: {annotations: {nemo.dev/inputs: x}}}"), "the annotation nemo.dev/inputs is nemo's own mark", "take it out"),
            ("- target: {kind: Namespace, name: nemo}\n  patch: {}\n".to_owned(), "p.yaml:1: Namespace nemo cannot be patched: it is made once", "kubectl label"),
            ("- target: {kind: PersistentVolumeClaim, name: shared}\n  patch: {}\n".to_owned(), "cannot be patched: its volume holds the weights", "storage."),
            (service("3"), "neither a list of operations nor a mapping", "a list"),
            (service("{metadata: {labels: {a: no}}}"), "p.yaml:3: no without quotes is true or false", "write \"no\""),
            (service("{metadata: {labels: {a: 1e3}}}"), "p.yaml:3: 1e3 without quotes is a number", "write \"1e3\""),
            ("- target: {kind: Service}\n  patch: {}\n".to_owned(), "p.yaml:1: ", "a list"),
            ("a: [\n".to_owned(), "p.yaml:", "a list"),
            ("[]\n".to_owned(), "p.yaml: there is no patch in it", "a list"),
        ] {
            let failure = laid(&text).unwrap_err();
            assert!(failure.kind == Kind::Config && failure.message.contains(words) && failure.hints.concat().contains(hint), "{text}: {failure} {:?}", failure.hints);
        }
    }
}
