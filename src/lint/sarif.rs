//! Findings as SARIF 2.1.0, which code hosts show beside the lines.

use serde_json::{Value, json};

use super::finding::{Finding, Severity};
use super::linter::Answer;
use super::rule::{self, Rule};

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// One run with all rules that were broken, and a result for each finding.
pub fn sarif(answer: &Answer) -> Value {
    let broken: Vec<&Rule> = rule::all().filter(|rule| answer.findings.iter().any(|finding| finding.rule == rule.id)).collect();
    let results: Vec<Value> = answer.findings.iter().map(|finding| result(finding, &broken)).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "nemo",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": broken.iter().map(|rule| descriptor(rule)).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn descriptor(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.cause},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": level(rule.severity)},
    })
}

fn result(finding: &Finding, broken: &[&Rule]) -> Value {
    let mut location = json!({"logicalLocations": [{"fullyQualifiedName": format!("{}/{}", finding.document, finding.path), "kind": "member"}]});
    if !finding.file.is_empty() {
        let mut region = json!({"startLine": finding.line.unwrap_or(1)});
        if let Some(column) = finding.column {
            region["startColumn"] = column.into();
        }
        location["physicalLocation"] = json!({"artifactLocation": {"uri": uri(&finding.file)}, "region": region});
    }
    json!({
        "ruleId": finding.rule,
        "ruleIndex": broken.iter().position(|rule| rule.id == finding.rule),
        "level": level(finding.severity),
        "message": {"text": format!("{}: {}: found {}; right is {}", finding.document, finding.title, finding.found, finding.right)},
        "locations": [location],
    })
}

/// A path as a relative reference.
fn uri(path: &str) -> String {
    let kept = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    path.trim_start_matches("./").bytes().map(|byte| if kept(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use crate::lint::Linter;

    use super::*;

    #[test]
    fn a_run_names_tool_rules_and_places() {
        let mut linter = Linter::new().unwrap();
        linter.text("./a b/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: c, image: \"x:latest\"}\n").unwrap();
        linter.value("", serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}}));
        let sarif = sarif(&linter.end());
        let run = &sarif["runs"][0];
        assert_eq!((&sarif["version"], run["results"].as_array().unwrap().len()), (&json!("2.1.0"), 3));
        assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "N41");
        let image = &run["results"][1];
        assert_eq!((&image["ruleId"], &image["ruleIndex"], &image["level"]), (&json!("image-tag"), &json!(1), &json!("warning")));
        assert_eq!(image["locations"][0]["physicalLocation"], json!({"artifactLocation": {"uri": "a%20b/pod.yaml"}, "region": {"startLine": 6, "startColumn": 15}}));
        assert!(run["results"][2]["locations"][0].get("physicalLocation").is_none());
    }
}
