//! Right values written into the text, word by word: comments, order and everything else stay as they are.

use super::finding::Finding;
use super::yaml::{self, Place};

/// A word that was replaced.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub rule: String,
    pub line: usize,
    pub old: String,
    pub new: String,
}

/// The text with the fixable findings about it repaired, and what was changed. One word is changed once: for the rest lint and fix again.
pub fn fixed(text: &str, findings: &[&Finding]) -> (String, Vec<Change>) {
    let places = yaml::places(text);
    let mut edits: Vec<(&Place, &Finding)> =
        findings.iter().filter(|finding| finding.fixable).filter_map(|finding| Some((places.get(finding.index)?.get(&finding.path)?, *finding))).collect();
    edits.sort_by_key(|(place, _)| place.value.start);
    edits.dedup_by_key(|(place, _)| place.value.start);
    let (mut result, mut changes) = (text.to_owned(), Vec::new());
    for (place, finding) in edits.into_iter().rev() {
        let (Some(edit), Some(word)) = (&finding.edit, text.get(place.value.clone())) else { continue };
        // What stands there must be the word and nothing more: a part of a script is left to a person.
        let same = yaml::word(word).is_some_and(|read| read == edit.old) && place.scalar;
        if same {
            let new = quoted(&edit.new, word);
            result.replace_range(place.value.clone(), &new);
            changes.push(Change { rule: finding.rule.clone(), line: place.line, old: word.to_owned(), new });
        }
    }
    changes.reverse();
    (result, changes)
}

/// In single quotes where the word had them, else as JSON, which is YAML.
fn quoted(new: &str, old: &str) -> String {
    if old.starts_with('\'') || new.contains('"') { format!("'{}'", new.replace('\'', "''")) } else { format!("{new:?}") }
}

#[cfg(test)]
mod tests {
    use crate::lint::Linter;

    use super::*;

    fn repaired(text: &str) -> (String, Vec<Change>) {
        let mut linter = Linter::new().unwrap();
        linter.text("f", text).unwrap();
        let answer = linter.end();
        fixed(text, &answer.findings.iter().collect::<Vec<_>>())
    }

    const POD: &str = r#"# The pod that people copy.
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: nemo}   # here
spec:
  containers:
  - name: main
    image: x/vllm-runtime:1.6.1
    command: [python3, -m, dynamo.vllm]
    args:
    - --max-model-len
    - 8192            # a number
    - --kv-transfer-config
    - '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
    env:
    - {name: NCCL_SOCKET_IFNAME, value: "^lo,docker"}  # half of it
    - name: ANSWER
      value: no
    resources: {limits: {vpc.amazonaws.com/efa: "16"}}
"#;

    #[test]
    fn words_are_replaced_and_nothing_else_moves() {
        let (text, changes) = repaired(POD);
        let expected = POD.replace("8192 ", "\"8192\" ").replace("value: no\n", "value: \"no\"\n").replace("\"^lo,docker\"", "\"^lo,docker,pod-id-link0\"");
        let json = text.lines().find(|line| line.contains("NixlConnector")).unwrap().to_owned();
        assert!(json.contains(r#"'{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_connector_extra_config":{"backends":["LIBFABRIC"]}}'"#), "{json}");
        let others = |text: &str| text.lines().filter(|line| !line.contains("NixlConnector")).collect::<Vec<_>>().join("\n");
        assert_eq!(others(&text), others(&expected));
        assert_eq!(changes.iter().map(|change| change.line).collect::<Vec<_>>(), [12, 14, 16, 18]);
        // The lease stands in the same word: the next round.
        let (text, changes) = repaired(&text);
        assert_eq!((changes.len(), changes[0].rule.as_str()), (1, "N30"));
        assert!(text.contains(r#""kv_lease_duration":300"#));
        assert_eq!(repaired(&text).1, []);
    }

    #[test]
    fn a_script_and_an_alias_are_left_to_a_person() {
        let script = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: nemo}\nspec:\n  containers:\n  - name: main\n    image: x/vllm-runtime:1.6.1\n    command: [sh, -c]\n    args:\n    - |\n      exec python3 -m dynamo.vllm --model x/Nemotron-3-Y --disaggregation-mode decode --mamba-cache-mode all --kv-transfer-config '{\"kv_connector\":\"NixlConnector\"}'\n";
        assert_eq!(repaired(script), (script.to_owned(), Vec::new()));
    }
}
