//! Where the API takes nothing but strings, and a plain word became a number or true or false.

use serde_json::Value;

use crate::lint::path;
use crate::lint::yaml::Document;

/// Fields that are strings in whatever object has them.
const NAMES: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "image",
    "serviceAccountName",
    "serviceName",
    "nodeName",
    "schedulerName",
    "priorityClassName",
    "runtimeClassName",
    "storageClassName",
    "secretName",
    "claimName",
    "volumeName",
    "containerName",
    "hostname",
    "subdomain",
    "mountPath",
    "subPath",
    "workingDir",
    "topologyKey",
];

/// Path and word of every value that is no string, or not for every reader, where only a string may stand.
pub(super) fn mistyped(document: &Document) -> Vec<(String, String)> {
    let mut walk = Walk { document, kind: document.value["kind"].as_str().unwrap_or_default(), keys: Vec::new(), found: Vec::new() };
    walk.visit(&document.value, "");
    walk.found
}

struct Walk<'a> {
    document: &'a Document,
    kind: &'a str,
    /// From the root to here; none for an item of a list.
    keys: Vec<Option<&'a str>>,
    found: Vec<(String, String)>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, value: &'a Value, path: &str) {
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.below(None, item, path::item(path, index));
                }
            }
            // A schema tells of fields: what stands below their names is no value of theirs.
            Value::Object(map) => map.iter().filter(|(key, _)| *key != "openAPIV3Schema").for_each(|(key, value)| self.below(Some(key.as_str()), value, path::field(path, key))),
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let word = self.document.words.get(path).cloned().or_else(|| (!value.is_string()).then(|| value.to_string()));
                if let Some(word) = word.filter(|_| self.string()) {
                    self.found.push((path.to_owned(), word));
                }
            }
        }
    }

    fn below(&mut self, key: Option<&'a str>, value: &'a Value, path: String) {
        self.keys.push(key);
        self.visit(value, &path);
        self.keys.pop();
    }

    /// Does the API take a string here and nothing else?
    fn string(&self) -> bool {
        match self.keys.as_slice() {
            [.., Some("args" | "command"), None] => true,
            [.., Some("env" | "envs" | "httpHeaders"), None, Some("value")] => true,
            [.., Some("tolerations" | "taints" | "startupTaints"), None, Some("key" | "operator" | "value" | "effect")] => true,
            [.., Some("matchExpressions" | "matchFields"), None, Some("key" | "operator")] => true,
            [.., Some("matchExpressions" | "matchFields"), None, Some("values"), None] => true,
            [.., Some("labels" | "annotations" | "matchLabels" | "nodeSelector" | "selector" | "volumeAttributes"), Some(_)] => true,
            [.., Some("configMapKeyRef" | "secretKeyRef"), Some("key")] => true,
            [Some("data" | "stringData" | "binaryData"), Some(_)] => ["ConfigMap", "Secret"].contains(&self.kind),
            [Some("parameters"), Some(_)] => ["StorageClass", "VolumeSnapshotClass"].contains(&self.kind),
            // What is no object of the API may call other things so.
            [.., Some(name)] => NAMES.contains(name) && self.document.value["apiVersion"].is_string(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lint::yaml::load;

    use super::*;

    fn of(text: &str) -> Vec<String> {
        let mut all: Vec<_> = load(text).unwrap().iter().flat_map(mistyped).map(|(path, word)| format!("{path}={word}")).collect();
        all.sort();
        all
    }

    #[test]
    fn every_place_that_takes_only_strings_is_known() {
        const CASES: &[(&str, &[&str])] = &[
            ("kind: ConfigMap\ndata: {A: yes, B: 8, C: \"8\", D: 1_000, E: word, F: }\n", &["data.A=yes", "data.B=8", "data.D=1_000"]),
            ("kind: Secret\nstringData: {A: off}\ndata: {B: 0x10}\n", &["data.B=0x10", "stringData.A=off"]),
            ("kind: ControllerRevision\ndata: {A: 8}\n", &[]),
            ("kind: Service\nspec: {selector: {app: y}, ports: [{port: 80, name: 8}]}\napiVersion: v1\n", &["spec.ports[0].name=8", "spec.selector.app=y"]),
            ("spec: {tolerations: [{key: a, value: true, tolerationSeconds: 5}]}\n", &["spec.tolerations[0].value=true"]),
            (
                "apiVersion: v1\nmetadata: {name: no, namespace: n}\nspec: {containers: [{name: on, image: 3}]}\n",
                &["metadata.name=no", "metadata.namespace=n", "spec.containers[0].image=3", "spec.containers[0].name=on"],
            ),
            ("metadata: {labels: {a: off, b: word}, annotations: {c: 1.10}}\n", &["metadata.annotations.c=1.10", "metadata.labels.a=off"]),
            ("a: {matchExpressions: [{key: k, operator: In, values: [a, 5, yes]}]}\n", &["a.matchExpressions[0].values[1]=5", "a.matchExpressions[0].values[2]=yes"]),
            ("spec: {args: [--a, 8192, y, \"y\"], env: [{name: A, value: on}], replicas: 3}\n", &["spec.args[1]=8192", "spec.args[2]=y", "spec.env[0].value=on"]),
            ("kind: StorageClass\nparameters: {throughput: 125}\nallowVolumeExpansion: true\n", &["parameters.throughput=125"]),
            ("a: &no off\nlabels: {x: *no}\n", &["labels.x=false"]),
            ("name: 8\nservices: {web: {name: y}}\n", &[]),
            ("apiVersion: v1\nspec: {openAPIV3Schema: {properties: {labels: {nullable: true}, name: {maxLength: 5}}}}\n", &[]),
        ];
        for (text, expected) in CASES {
            assert_eq!(of(text), *expected, "{text}");
        }
    }
}
