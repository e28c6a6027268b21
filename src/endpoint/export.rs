//! Results as other programs read them: JUnit's XML, and CTRF's JSON (ctrf.io).

use std::fmt::Write;

use serde_json::{Value, json};

use super::known::Outcome;

/// JUnit: one suite, a test case each; a test that did not pass is a failure with its words.
pub fn junit(outcome: &Outcome) -> String {
    let seconds: f64 = outcome.tests.iter().map(|test| test.seconds).sum();
    let (tests, failures) = (outcome.tests.len(), outcome.failures().len());
    let name = escaped(&outcome.model);
    let mut text =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" time=\"{seconds:.3}\">\n");
    for test in &outcome.tests {
        let head = format!("    <testcase classname=\"{name}\" name=\"{}\" time=\"{:.3}\"", escaped(&test.id), test.seconds);
        // Writing into a String does not fail.
        let _ = match test.passed() {
            true => writeln!(text, "{head}/>"),
            false => writeln!(text, "{head}>\n      <failure message=\"{}\"/>\n    </testcase>", escaped(&test.to_string())),
        };
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// CTRF, with the time from the first test to the last.
pub fn ctrf(outcome: &Outcome, started: jiff::Timestamp, ended: jiff::Timestamp) -> Value {
    let failed = outcome.failures().len();
    let tests: Vec<Value> = outcome
        .tests
        .iter()
        .map(|test| {
            let mut told = json!({ "name": test.id, "status": if test.passed() { "passed" } else { "failed" }, "duration": (test.seconds * 1000.0).round() });
            if !test.passed() {
                told["message"] = json!(test.to_string());
            }
            told
        })
        .collect();
    let summary = json!({
        "tests": tests.len(), "passed": tests.len() - failed, "failed": failed, "skipped": 0, "pending": 0, "other": 0,
        "start": started.as_millisecond(), "stop": ended.as_millisecond(),
    });
    let tool = json!({ "name": "nemo", "version": env!("CARGO_PKG_VERSION") });
    json!({ "reportFormat": "CTRF", "specVersion": "0.0.0", "results": { "tool": tool, "summary": summary, "tests": tests } })
}

/// As the value of an attribute. What XML 1.0 cannot have at all becomes U+FFFD.
fn escaped(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => done.push_str("&amp;"),
            '<' => done.push_str("&lt;"),
            '>' => done.push_str("&gt;"),
            '"' => done.push_str("&quot;"),
            '\n' => done.push_str("&#10;"),
            '\t' => done.push_str("&#9;"),
            '\r' => done.push_str("&#13;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => done.push('\u{fffd}'),
            c => done.push(c),
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::super::known::{TestResult, Verdict};
    use super::*;

    fn outcome() -> Outcome {
        let test = |id: &str, got: &str, verdict| TestResult { id: id.into(), asked: "a <question>".into(), expected: "\"42\"".into(), got: got.into(), verdict, seconds: 0.25 };
        Outcome { model: "nvidia/m".into(), tests: vec![test("chat", "42", Verdict::Passed), test("tool-call", "</think>\u{1b}[31m\n&", Verdict::Wrong)] }
    }

    #[test]
    fn junit_holds_any_answer() {
        insta::assert_snapshot!(junit(&outcome()), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites>
          <testsuite name="nvidia/m" tests="2" failures="1" time="0.500">
            <testcase classname="nvidia/m" name="chat" time="0.250"/>
            <testcase classname="nvidia/m" name="tool-call" time="0.250">
              <failure message="tool-call: asked a &lt;question&gt;, expected &quot;42&quot;, got &lt;/think&gt;�[31m&#10;&amp;"/>
            </testcase>
          </testsuite>
        </testsuites>
        "#);
    }

    #[test]
    fn ctrf_counts() {
        let at = |ms| jiff::Timestamp::from_millisecond(ms).unwrap();
        let told = ctrf(&outcome(), at(1000), at(3000));
        assert_eq!(told["results"]["summary"], json!({"tests": 2, "passed": 1, "failed": 1, "skipped": 0, "pending": 0, "other": 0, "start": 1000, "stop": 3000}));
        assert_eq!(told["results"]["tests"][0], json!({"name": "chat", "status": "passed", "duration": 250.0}));
        assert!(told["results"]["tests"][1]["message"].as_str().unwrap().contains("</think>"));
    }
}
