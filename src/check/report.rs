//! Questions, their answers, and the table of them.

use std::fmt;

use serde::Serialize;

use crate::error::{Failure, Kind, ServiceError};

/// How an answer is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Ok,
    /// Worth knowing; nothing is refused because of it.
    Warn,
    /// Nothing is made while there is one.
    Red,
    /// Not asked, and why.
    Skipped,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Red => "RED",
            Self::Skipped => "skipped",
        }
    }
}

/// A question by its id; images and charts have one each.
#[derive(Debug, Clone)]
pub(super) struct Question(String);

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Answered {
    /// `credentials`, `quota-gpu`, `image-vllm-runtime` …
    pub question: String,
    pub verdict: Verdict,
    pub answer: String,
    /// What to type or do, where there is something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Of the failure that a red answer becomes.
    #[serde(skip)]
    #[schemars(skip)]
    pub kind: Option<Kind>,
}

impl Question {
    pub(super) fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    fn answered(&self, verdict: Verdict, answer: impl Into<String>, fix: Option<String>, kind: Option<Kind>) -> Answered {
        Answered { question: self.0.clone(), verdict, answer: answer.into(), fix, kind }
    }

    pub(super) fn ok(&self, answer: impl Into<String>) -> Answered {
        self.answered(Verdict::Ok, answer, None, None)
    }

    pub(super) fn warn(&self, answer: impl Into<String>, fix: impl Into<String>) -> Answered {
        self.answered(Verdict::Warn, answer, Some(fix.into()), None)
    }

    pub(super) fn red(&self, kind: Kind, answer: impl Into<String>, fix: impl Into<String>) -> Answered {
        self.answered(Verdict::Red, answer, Some(fix.into()), Some(kind))
    }

    pub(super) fn skipped(&self, why: impl Into<String>) -> Answered {
        self.answered(Verdict::Skipped, why, None, None)
    }

    /// The service did not answer, and without its answer nothing may be made.
    pub(super) fn failed(&self, error: &ServiceError) -> Answered {
        let fix = error.hint().map_or_else(|| format!("when {} answers again, run the same command", error.service), str::to_owned);
        self.red(error.kind(), error.to_string(), fix)
    }

    /// The service did not answer, and the walk can go on without knowing.
    pub(super) fn unknown(&self, error: &ServiceError) -> Answered {
        self.warn(format!("not known: {error}"), format!("allow {}:{} to have this checked beforehand", error.service, error.operation))
    }
}

/// All answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename = "check")]
pub struct Report {
    /// Of the credentials, once they are known to be good.
    pub account: Option<String>,
    pub region: String,
    pub answers: Vec<Answered>,
    /// Figures of the catalogue that nobody has read at a source.
    pub unverified: Vec<String>,
}

impl Report {
    /// The answer to a question.
    pub fn answer(&self, question: &str) -> Option<&Answered> {
        self.answers.iter().find(|answered| answered.question == question)
    }

    /// Nothing is made while an answer is red: of several, the kind with the lowest exit code.
    pub fn failure(&self) -> Option<Failure> {
        let red: Vec<_> = self.answers.iter().filter(|answered| answered.verdict == Verdict::Red).collect();
        let kind = red.iter().filter_map(|answered| answered.kind).min()?;
        let lines: Vec<_> = red.iter().map(|answered| format!("{}: {}", answered.question, answered.answer)).collect();
        let failure = Failure::new(kind, format!("the check says no, and nothing was made\n{}", lines.join("\n")));
        let mut hints: Vec<&str> = red.iter().filter_map(|answered| answered.fix.as_deref()).collect();
        hints.dedup();
        Some(hints.into_iter().fold(failure, |failure, hint| failure.hint(hint)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.answers.iter().map(|answered| answered.question.len()).max().unwrap_or(0);
        for answered in &self.answers {
            writeln!(f, "{:<8} {:<width$}  {}", answered.verdict.word(), answered.question, answered.answer)?;
            if let Some(fix) = &answered.fix {
                writeln!(f, "{:<8} {:<width$}  → {fix}", "", "")?;
            }
        }
        if !self.unverified.is_empty() {
            writeln!(f, "\nFigures in use that nobody has read at a source (unverified):\n  {}", self.unverified.join("\n  "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let question = Question::new;
        Report {
            account: Some("123456789012".into()),
            region: "us-east-2".into(),
            answers: vec![
                question("credentials").ok("account 123456789012"),
                question("quota-gpu").red(Kind::Capacity, "enough for 0 nodes", "ask for more"),
                question("hub-access").red(Kind::Credentials, "refused", "ask the owner"),
                question("price").warn("no price", "--price"),
                question("names").skipped("no credentials"),
            ],
            unverified: vec!["x (1)".into()],
        }
    }

    #[test]
    fn several_reds_are_one_failure_of_the_lowest_kind_with_every_fix() {
        let failure = report().failure().unwrap();
        assert_eq!(failure.kind, Kind::Credentials);
        assert_eq!(failure.hints, ["ask for more", "ask the owner"]);
        assert!(failure.message.contains("quota-gpu: enough for 0 nodes\nhub-access: refused"), "{}", failure.message);
        assert!(Report { answers: vec![Question::new("price").warn("no price", "--price")], ..Report::default() }.failure().is_none());
    }

    #[test]
    fn the_table_has_verdict_answer_and_fix_of_each() {
        let table = "\
ok       credentials  account 123456789012
RED      quota-gpu    enough for 0 nodes
                      → ask for more
RED      hub-access   refused
                      → ask the owner
warn     price        no price
                      → --price
skipped  names        no credentials

Figures in use that nobody has read at a source (unverified):
  x (1)
";
        assert_eq!(report().to_string(), table);
    }
}
