//! Four tests of an endpoint: what was asked, what was expected, what came.

use std::fmt;
use std::time::Instant;

use serde::Serialize;

use super::client::{Chat, Endpoint, shown};
use crate::error::ServiceError;

const PROMPT: &str = "The capital of France is";
const CONTINUES: &str = "Paris";
pub(super) const QUESTION: &str = "What is 17 + 25? Answer with the number only.";
const ANSWER: &str = "42";
/// Enough for a name and a few words.
const COMPLETION_TOKENS: u32 = 32;
/// A reasoning model thinks first; this question needs little of it.
pub(super) const CHAT_TOKENS: u32 = 1024;

/// What a test came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Passed,
    /// An answer, and not the right one.
    Wrong,
    /// Reasoning used up all tokens before an answer began: nothing is said about the answer.
    OutOfBudget,
    /// It ended by itself with reasoning and without an answer, or a tag of the model's own language is in the answer: a parser does not fit the model.
    ParserBroken,
    /// No answer at all.
    Failed,
}

/// One test, done.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TestResult {
    /// `models`, `health`, `completion`, `chat`; `kv-moved` where prefill and decode are apart, `picture-encoded` where encode is; those of `nemo test endpoint`
    pub id: String,
    pub asked: String,
    pub expected: String,
    pub got: String,
    pub verdict: Verdict,
    pub seconds: f64,
}

impl TestResult {
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }
}

impl fmt::Display for TestResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, asked, expected, got, .. } = self;
        match self.verdict {
            Verdict::Passed => write!(f, "{id}: {got}"),
            Verdict::Wrong => write!(f, "{id}: asked {asked}, expected {expected}, got {got}"),
            Verdict::OutOfBudget => write!(f, "{id}: empty because the budget of {CHAT_TOKENS} tokens ended in the middle of the reasoning: {got}"),
            Verdict::ParserBroken => write!(f, "{id}: {got}"),
            Verdict::Failed => write!(f, "{id}: asked {asked}, {got}"),
        }
    }
}

/// All results, as text and as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Outcome {
    pub model: String,
    pub tests: Vec<TestResult>,
}

impl Outcome {
    /// Names of the tests that passed.
    pub fn passed(&self) -> Vec<String> {
        self.tests.iter().filter(|test| test.passed()).map(|test| test.id.clone()).collect()
    }

    /// What did not pass, in words.
    pub fn failures(&self) -> Vec<String> {
        self.tests.iter().filter(|test| !test.passed()).map(ToString::to_string).collect()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, test) in self.tests.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{:<4} {test} ({:.1} s)", if test.passed() { "ok" } else { "FAIL" }, test.seconds)?;
        }
        Ok(())
    }
}

pub(super) type Judged = Result<(Verdict, String), ServiceError>;

/// Runs the four tests, one after the other; `done` is told of each.
pub async fn run(endpoint: &Endpoint, model: &str, mut done: impl FnMut(&TestResult)) -> Outcome {
    let mut tests = Vec::new();
    let mut note = |id: &str, asked: String, expected: String, began: Instant, judged: Judged| {
        let (verdict, got) = judged.unwrap_or_else(|error| (Verdict::Failed, error.to_string()));
        let test = TestResult { id: id.into(), asked, expected, got, verdict, seconds: began.elapsed().as_secs_f64() };
        done(&test);
        tests.push(test);
    };
    let began = Instant::now();
    note("models", "which models are served".into(), model.into(), began, models(endpoint, model).await);
    let began = Instant::now();
    note("health", "GET /health".into(), "healthy".into(), began, health(endpoint).await);
    let began = Instant::now();
    note("completion", format!("{PROMPT:?}"), format!("{CONTINUES:?} in it"), began, completion(endpoint, model).await);
    let began = Instant::now();
    note("chat", format!("{QUESTION:?}"), format!("{ANSWER:?} in it"), began, chat(endpoint, model).await);
    Outcome { model: model.into(), tests }
}

async fn models(endpoint: &Endpoint, model: &str) -> Judged {
    let served = endpoint.models().await?;
    let got = if served.is_empty() { "no model".into() } else { served.join(", ") };
    Ok((passed(served.iter().any(|name| name == model)), got))
}

async fn health(endpoint: &Endpoint) -> Judged {
    let answer = endpoint.health().await?;
    // Dynamo's frontend says so with HTTP 200 and a status; a status that is missing is no complaint.
    let status = answer["status"].as_str().unwrap_or("healthy").to_owned();
    Ok((passed(status == "healthy"), status))
}

async fn completion(endpoint: &Endpoint, model: &str) -> Judged {
    let text = endpoint.complete(model, PROMPT, COMPLETION_TOKENS).await?;
    Ok((passed(text.contains(CONTINUES)), quoted(&text)))
}

async fn chat(endpoint: &Endpoint, model: &str) -> Judged {
    Ok(judged(&endpoint.chat(model, QUESTION, CHAT_TOKENS).await?, is_the_answer))
}

/// As a number of its own: 142 is not the answer.
pub(super) fn is_the_answer(content: &str) -> bool {
    content.split(|c: char| !c.is_ascii_digit()).any(|number| number == ANSWER)
}

/// Tags of the model's own language that a parser has to take out of the answer.
const TAGS: [&str; 6] = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "<|im_end|>"];

/// One of them that is in the answer.
pub(super) fn leaked(content: &str) -> Option<&'static str> {
    TAGS.into_iter().find(|tag| content.contains(tag))
}

/// Is the answer right, or why is there none?
pub(super) fn judged(chat: &Chat, right: impl Fn(&str) -> bool) -> (Verdict, String) {
    let content = chat.content.as_deref().unwrap_or_default();
    if let Some(tag) = leaked(content) {
        return (Verdict::ParserBroken, format!("{tag} is in the answer, so a parser does not fit the model: {}", quoted(content)));
    }
    if !content.trim().is_empty() {
        return (passed(right(content)), quoted(content));
    }
    let reasoning = chat.reasoning_content.as_deref().unwrap_or_default();
    match (chat.finish_reason.as_str(), reasoning.trim().is_empty()) {
        ("length", _) => (Verdict::OutOfBudget, if reasoning.is_empty() { "nothing".into() } else { quoted(reasoning) }),
        (_, false) => (Verdict::ParserBroken, format!("the whole answer is in the reasoning, so the reasoning parser does not fit the model: {}", quoted(reasoning))),
        (_, true) => (Verdict::Wrong, "an empty answer".into()),
    }
}

pub(super) fn passed(right: bool) -> Verdict {
    if right { Verdict::Passed } else { Verdict::Wrong }
}

pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", shown(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use wiremock::matchers::{body_partial_json, method, path};
    use wiremock::{Mock, MockServer, ResponseTemplate};

    use super::*;

    fn ok(body: Value) -> ResponseTemplate {
        ResponseTemplate::new(200).set_body_json(body)
    }

    fn says(content: Value, reasoning: Value, finish: &str) -> ResponseTemplate {
        ok(json!({"choices": [{"message": {"role": "assistant", "content": content, "reasoning_content": reasoning}, "finish_reason": finish}]}))
    }

    /// An endpoint that answers all tests rightly, but for what is laid over it.
    async fn verdicts(over: &[(&str, ResponseTemplate)]) -> (Vec<Verdict>, Outcome) {
        let server = MockServer::start().await;
        let right = [
            ("/v1/models", ok(json!({"object": "list", "data": [{"id": "nvidia/m", "object": "model"}]}))),
            ("/health", ok(json!({"status": "healthy", "instances": []}))),
            ("/v1/completions", ok(json!({"choices": [{"text": " Paris, and", "index": 0}]}))),
            ("/v1/chat/completions", says(json!("\n\n42"), json!("17 + 25"), "stop")),
        ];
        for (at, answer) in over.iter().chain(&right) {
            Mock::given(path(*at)).respond_with(answer.clone()).mount(&server).await;
        }
        let outcome = run(&Endpoint::new(server.uri()).unwrap(), "nvidia/m", |_| ()).await;
        (outcome.tests.iter().map(|test| test.verdict).collect(), outcome)
    }

    use Verdict::{Failed, OutOfBudget, ParserBroken, Passed, Wrong};

    #[tokio::test]
    async fn all_pass() {
        let (verdicts, outcome) = verdicts(&[]).await;
        assert_eq!(verdicts, [Passed; 4]);
        assert_eq!((outcome.passed(), outcome.failures()), (["models", "health", "completion", "chat"].map(str::to_owned).to_vec(), vec![]));
        assert!(outcome.to_string().starts_with("ok   models: nvidia/m ("), "{outcome}");
    }

    #[tokio::test]
    async fn a_wrong_answer_shows_what_was_expected() {
        for content in ["43", "142", "I do not know that."] {
            let (verdicts, outcome) = verdicts(&[("/v1/chat/completions", says(json!(content), Value::Null, "stop"))]).await;
            assert_eq!(verdicts, [Passed, Passed, Passed, Wrong]);
            let words = &outcome.failures()[0];
            assert!(words.contains("17 + 25") && words.contains("expected \"42\" in it") && words.contains(&format!("got {content:?}")), "{words}");
        }
        let (verdicts, _) = verdicts(&[("/v1/completions", ok(json!({"choices": [{"text": " Berlin"}]}))), ("/v1/models", ok(json!({"data": []})))]).await;
        assert_eq!(verdicts, [Wrong, Passed, Wrong, Passed]);
    }

    #[tokio::test]
    async fn empty_for_lack_of_tokens_is_not_wrong() {
        for (answer, verdict, words) in [
            (says(json!("It is</think>42"), Value::Null, "stop"), ParserBroken, "</think> is in the answer"),
            (says(json!("<think>17 + 25</think>42"), Value::Null, "stop"), ParserBroken, "<think> is in the answer"),
            (says(Value::Null, json!("The user asks"), "length"), OutOfBudget, "budget of 1024 tokens"),
            (says(json!(""), Value::Null, "length"), OutOfBudget, "got nothing"),
            (says(Value::Null, json!("It is 42."), "stop"), ParserBroken, "reasoning parser does not fit the model: \"It is 42.\""),
            (says(json!("  "), Value::Null, "stop"), Wrong, "got an empty answer"),
        ] {
            let (verdicts, outcome) = verdicts(&[("/v1/chat/completions", answer)]).await;
            assert_eq!(verdicts[3], verdict);
            assert!(verdict == OutOfBudget || outcome.failures()[0].contains(words), "{:?}", outcome.failures());
        }
    }

    #[tokio::test]
    async fn what_is_no_answer_is_told() {
        let html = || ResponseTemplate::new(200).set_body_raw("<!DOCTYPE html>\n<title>Sign in</title>", "text/html");
        for (answer, words) in [
            (html(), "HTML instead of JSON: <!DOCTYPE html> <title>Sign in</title>"),
            (ResponseTemplate::new(404).set_body_string("404 page not found"), "HTTP 404: 404 page not found"),
            (ResponseTemplate::new(503).set_body_json(json!({"error": {"message": "no worker", "code": 503}})), "HTTP 503: no worker"),
            (ok(json!({"choices": []})), "an answer without any choice"),
            (ok(json!([1])), "no answer of an OpenAI API"),
            (ResponseTemplate::new(200), "no answer of an OpenAI API (EOF while parsing a value at line 1 column 0): an empty body"),
        ] {
            let (verdicts, outcome) = verdicts(&[("/v1/chat/completions", answer)]).await;
            assert_eq!(verdicts[3], Failed);
            let failures = outcome.failures();
            assert!(failures[0].starts_with("chat: asked \"What is 17 + 25?") && failures[0].contains(words), "{failures:?}");
        }
        let nobody = run(&Endpoint::new("http://127.0.0.1:1").unwrap(), "nvidia/m", |_| ()).await;
        assert_eq!(nobody.failures().len(), 4);
        assert!(nobody.failures()[0].contains("endpoint GET /v1/models: Unreachable: ") && nobody.failures()[0].contains("refused"), "{:?}", nobody.failures());
    }

    #[tokio::test]
    async fn requests_are_as_the_api_wants_them() {
        let server = MockServer::start().await;
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "q"}], "max_tokens": 5});
        Mock::given(method("POST")).and(path("/v1/chat/completions")).and(body_partial_json(body)).respond_with(says(json!("a"), Value::Null, "stop")).mount(&server).await;
        let chat = Endpoint::new(format!("{}/", server.uri())).unwrap().chat("m", "q", 5).await.unwrap();
        assert_eq!(chat, Chat { content: Some("a".into()), finish_reason: "stop".into(), ..Chat::default() });
    }
}
