//! What others have changed of what we set: the API server notes who owns which field.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use super::MANAGER;

/// The first field of the manifest that is no longer ours, and who took it: `.spec.replicas by kubectl`.
///
/// Server-side apply made us owner of every field that the manifest sets. A field that another manager sets to another value is theirs from then on,
/// and one that somebody deleted is nobody's; one set to the same value is owned by both, and so is no change.
pub(super) fn lost(manifest: &Value, owners: &[ManagedFieldsEntry]) -> Option<String> {
    let fields = |entry: &ManagedFieldsEntry| entry.fields_v1.as_ref().map(|fields| fields.0.clone());
    let (ours, others): (Vec<_>, Vec<_>) = owners.iter().partition(|entry| entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply"));
    // Somebody may have cleared all ownership, as the API server lets them: then nothing can be told.
    let path = unowned(&fields(ours.first()?)?, manifest)?;
    let taker = others.into_iter().find(|entry| fields(entry).is_some_and(|tree| owned(&tree, &path)));
    let by = taker.and_then(|entry| entry.manager.clone()).unwrap_or_else(|| "somebody who removed it".to_owned());
    Some(format!("{} by {by}", path.concat()))
}

/// The path of the first field of a manifest that an ownership tree lacks. `f:` is a field, `k:` an item of a list by its keys, `v:` one by its value;
/// a leaf of the tree stands for all below it.
fn unowned(tree: &Value, manifest: &Value) -> Option<Vec<String>> {
    let tree = tree.as_object().filter(|tree| tree.keys().any(|key| key != "."))?;
    let below = |step: String, branch: Option<&Value>, value: &Value| match branch {
        None => Some(vec![step]),
        Some(branch) => unowned(branch, value).map(|mut path| {
            path.insert(0, step);
            path
        }),
    };
    match manifest {
        Value::Object(fields) => fields.iter().filter(|(_, value)| !value.is_null()).find_map(|(field, value)| below(format!(".{field}"), tree.get(&format!("f:{field}")), value)),
        Value::Array(items) => items.iter().enumerate().find_map(|(n, item)| {
            let found = tree.iter().find(|(key, _)| is_key_of(key, item));
            below(found.map_or_else(|| named(n, item), |(key, _)| format!("[{}]", &key[2..])), found.map(|(_, branch)| branch), item)
        }),
        _ => None,
    }
}

/// Whether a key of an ownership tree means this item. Keys that the API server filled in are not in our manifest.
fn is_key_of(key: &str, item: &Value) -> bool {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    match key.split_at_checked(2) {
        Some(("k:", keys)) => parsed(keys).is_some_and(|keys| keys.as_object().is_some_and(|keys| keys.iter().all(|(key, value)| item.get(key).is_none_or(|own| own == value)))),
        Some(("v:", value)) => parsed(value).as_ref() == Some(item),
        _ => false,
    }
}

fn named(n: usize, item: &Value) -> String {
    item.get("name").map_or_else(|| format!("[{n}]"), |name| format!("[{}]", serde_json::json!({ "name": name })))
}

/// Whether a tree holds this path, or a leaf above it.
fn owned(tree: &Value, path: &[String]) -> bool {
    let Some((step, rest)) = path.split_first() else { return true };
    let key = match step.strip_prefix('.') {
        Some(field) => format!("f:{field}"),
        None => format!("k:{}", &step[1..step.len() - 1]),
    };
    tree.get(&key).is_some_and(|branch| branch.as_object().is_none_or(serde_json::Map::is_empty) || owned(branch, rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(manager: &str, operation: &str, fields: &Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({"manager": manager, "operation": operation, "fieldsV1": fields})).unwrap()
    }

    /// The tree of ownership of a Deployment with one container, as the API server writes it.
    fn tree(replicas: bool, container: &Value) -> Value {
        let mut tree = json!({"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {
            "f:selector": {}, "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"b\"}": container}}}}});
        if replicas {
            tree["f:spec"]["f:replicas"] = json!({});
        }
        tree
    }

    #[test]
    fn a_field_is_lost_when_we_own_it_no_longer() {
        let manifest = json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "b"}}, "template": {"spec": {"containers": [
            {"name": "b", "image": "y", "args": ["--port", "1"], "ports": [{"containerPort": 1}], "env": [{"name": "A", "value": "1"}]}]}}}});
        let whole = json!({".": {}, "f:name": {}, "f:image": {}, "f:args": {},
            "f:ports": {"k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
            "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}}});
        let without = |field: &str| {
            let mut rest = whole.clone();
            rest.as_object_mut().unwrap().remove(field);
            rest
        };
        let image = tree(false, &json!({"f:image": {}}));
        let scaled = json!({"f:spec": {"f:replicas": {}}});
        let bare = "[{\"name\":\"A\"}]";
        for (ours, other, found) in [
            (tree(true, &whole), ("kubectl", json!({})), None),
            (tree(true, &whole), ("kubectl", scaled.clone()), None),
            (tree(false, &whole), ("kubectl", scaled.clone()), Some(".spec.replicas by kubectl".to_owned())),
            (tree(true, &without("f:image")), ("set", image), Some(".spec.template.spec.containers[{\"name\":\"b\"}].image by set".to_owned())),
            (tree(true, &without("f:args")), ("set", scaled), Some(".spec.template.spec.containers[{\"name\":\"b\"}].args by somebody who removed it".to_owned())),
            (
                tree(true, &{
                    let mut rest = whole.clone();
                    rest["f:env"] = json!({"k:{\"name\":\"B\"}": {".": {}}});
                    rest
                }),
                ("edit", json!({})),
                Some(format!(".spec.template.spec.containers[{{\"name\":\"b\"}}].env{bare} by somebody who removed it")),
            ),
        ] {
            let owners = [owner(MANAGER, "Apply", &ours), owner(other.0, "Update", &other.1)];
            assert_eq!(lost(&manifest, &owners), found, "{ours}");
        }
        assert_eq!(lost(&manifest, &[]), None, "all ownership was cleared");
    }
}
