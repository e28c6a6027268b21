//! What sets one kept set of manifests apart from another, in few words: settings first, then objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::history::Revision;
use crate::render::Manifest;

/// So many differences are named; more are counted.
const NAMED: usize = 4;

/// What of `revision` is not as in the set before it. Never empty: sets are kept by their digest.
pub fn apart(revision: &Revision, before: &Revision) -> Vec<String> {
    let mut words = settings(&revision.settings, &before.settings);
    let (now, then) = (by_title(&revision.manifests), by_title(&before.manifests));
    words.extend(now.keys().filter(|title| !then.contains_key(*title)).map(|title| format!("with {title}")));
    words.extend(then.keys().filter(|title| !now.contains_key(*title)).map(|title| format!("without {title}")));
    // Where settings say it, the fields that follow from them are no news.
    if words.is_empty() {
        let changed = now.iter().filter_map(|(title, manifest)| Some((title, path(then.get(title)?, manifest)?)));
        words.extend(changed.map(|(title, path)| format!("{title} differs at {path}")));
    }
    let more = words.len().saturating_sub(NAMED);
    words.truncate(NAMED);
    words.extend((more > 0).then(|| format!("{more} more")));
    words
}

fn settings(now: &BTreeMap<String, String>, then: &BTreeMap<String, String>) -> Vec<String> {
    let word = |value: Option<&String>| value.filter(|value| !value.is_empty()).map_or("nothing", String::as_str).to_owned();
    let keys: std::collections::BTreeSet<&String> = now.keys().chain(then.keys()).collect();
    keys.into_iter().filter(|key| now.get(*key) != then.get(*key)).map(|key| format!("{key} {} (was {})", word(now.get(key)), word(then.get(key)))).collect()
}

fn by_title(manifests: &[Manifest]) -> BTreeMap<String, &Manifest> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    manifests.iter().map(|manifest| (format!("{} {}", word(&manifest["kind"]), word(&manifest["metadata"]["name"])), manifest)).collect()
}

/// The first place where two values differ: `spec.template.spec.containers[0].env[3].value`.
fn path(then: &Value, now: &Value) -> Option<String> {
    let under = |key: String, rest: String| if rest.is_empty() || rest.starts_with('[') { format!("{key}{rest}") } else { format!("{key}.{rest}") };
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            let keys: std::collections::BTreeSet<&String> = then.keys().chain(now.keys()).collect();
            keys.into_iter().find_map(|key| match (then.get(key), now.get(key)) {
                (Some(then), Some(now)) => path(then, now).map(|rest| under(key.clone(), rest)),
                _ => Some(key.clone()),
            })
        }
        (Value::Array(then), Value::Array(now)) => {
            let both = then.iter().zip(now).enumerate().find_map(|(n, (then, now))| path(then, now).map(|rest| under(format!("[{n}]"), rest)));
            both.or_else(|| (then.len() != now.len()).then(|| format!("[{}]", then.len().min(now.len()))))
        }
        (then, now) => (then != now).then(String::new),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(expose: &str, manifests: Vec<Value>) -> Revision {
        Revision::of([("model".to_owned(), "m".to_owned()), ("serve.expose".to_owned(), expose.to_owned())].into(), manifests)
    }

    fn deployment(name: &str, value: &str) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": value}]}]}})
    }

    #[test]
    fn sets_of_the_same_model_topology_and_form_are_told_apart() {
        let plain = set("no", vec![deployment("worker", "1")]);
        let exposed = set("public", vec![deployment("worker", "1"), deployment("gateway", "1")]);
        assert_eq!(apart(&exposed, &plain), ["serve.expose public (was no)", "with Deployment gateway"]);
        assert_eq!(apart(&plain, &exposed), ["serve.expose no (was public)", "without Deployment gateway"]);
        let patched = set("no", vec![deployment("worker", "2")]);
        assert_eq!(apart(&patched, &plain), ["Deployment worker differs at spec.containers[0].env[0].value"]);
        let many: Vec<_> = (0..6).map(|n| deployment(&format!("d{n}"), "1")).collect();
        assert_eq!(apart(&set("no", many), &set("no", vec![])).last().map(String::as_str), Some("2 more"));
    }

    #[test]
    fn the_first_place_is_named_however_it_differs() {
        for (then, now, place) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"b": 1}), Some("a")),
            (json!({"a": [1, 2]}), json!({"a": [1, 2, 3]}), Some("a[2]")),
            (json!({"a": [[1], [2]]}), json!({"a": [[1], [3]]}), Some("a[1][0]")),
            (json!({"a": {"b": 1}}), json!({"a": "x"}), Some("a")),
        ] {
            assert_eq!(path(&then, &now).as_deref(), place, "{then} {now}");
        }
    }
}
