//! A client of the OpenAI API, as far as tests need it. Everything that is no answer becomes a [`ServiceError`] that says what came instead.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::stream;
use crate::error::ServiceError;

/// Until the list of models or the health is there.
const LISTED: Duration = Duration::from_secs(15);
/// Until an answer is complete.
const ANSWERED: Duration = Duration::from_secs(180);
const CHAT: &str = "/v1/chat/completions";
/// Of an unexpected body, so much is shown.
const SHOWN: usize = 200;

/// An endpoint, `http://127.0.0.1:8000`.
#[derive(Debug, Clone)]
pub struct Endpoint {
    base: String,
    http: reqwest::Client,
}

/// An answer to a chat.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Chat {
    /// None or empty when nothing but reasoning came.
    #[serde(default)]
    pub content: Option<String>,
    #[serde(default, alias = "reasoning")]
    pub reasoning_content: Option<String>,
    #[serde(default)]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Logarithms of the probabilities of the answer's tokens, where they were asked for and came.
    #[serde(default, skip)]
    pub logprobs: Vec<f64>,
    /// `stop`, or `length` when the budget of tokens ended it.
    #[serde(default, skip)]
    pub finish_reason: String,
}

/// What the model wants called.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct ToolCall {
    #[serde(default)]
    pub function: Function,
}

/// The function, and its arguments as JSON in a string, as the API has them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Function {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub arguments: String,
}

/// What an endpoint said to a request that it should not take.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// HTTP 4xx, and its words
    Refused(u16, String),
    /// Another answer, in words
    Other(String),
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

#[derive(Deserialize)]
struct Choices<T> {
    choices: Vec<T>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
struct Counted {
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
}

#[derive(Deserialize)]
struct Message {
    message: Chat,
    finish_reason: Option<String>,
    logprobs: Option<Logprobs>,
}

#[derive(Deserialize)]
struct Logprobs {
    content: Option<Vec<Logprob>>,
}

#[derive(Deserialize)]
struct Logprob {
    logprob: f64,
}

impl Endpoint {
    /// The endpoint at this address. Proxies of the environment are not used: the address is a port-forward of this machine.
    pub fn new(base: impl Into<String>) -> Result<Self, ServiceError> {
        let http = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(10)).build();
        let http = http.map_err(|error| failed("start", "Client", words(&error), None))?;
        Ok(Self { base: base.into().trim_end_matches('/').to_owned(), http })
    }

    /// Names of the models that are served.
    pub async fn models(&self) -> Result<Vec<String>, ServiceError> {
        let models: Models = self.get("/v1/models").await?;
        Ok(models.data.into_iter().map(|model| model.id).collect())
    }

    /// What the frontend says of itself; vLLM's own server says yes without a word.
    pub async fn health(&self) -> Result<Value, ServiceError> {
        let (operation, request) = ("GET /health", self.http.get(format!("{}/health", self.base)).timeout(LISTED));
        let answer = self.answer(operation, request).await?;
        if answer.body.is_empty() { Ok(Value::Null) } else { answer.parsed(operation) }
    }

    /// The text that follows this prompt.
    pub async fn complete(&self, model: &str, prompt: &str, max_tokens: u32) -> Result<String, ServiceError> {
        let body = json!({ "model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0 });
        let answer: Choices<Text> = self.post("/v1/completions", &body).await?;
        first(answer, "/v1/completions").map(|choice| choice.text)
    }

    /// Has this prompt read and a word or two written; gives the tokens that it was, where the endpoint counts them.
    pub async fn read(&self, model: &str, prompt: &str) -> Result<Option<u64>, ServiceError> {
        let body = json!({ "model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0 });
        let answer: Counted = self.post("/v1/completions", &body).await?;
        Ok(answer.usage.map(|usage| usage.prompt_tokens))
    }

    /// The answer to one question.
    pub async fn chat(&self, model: &str, question: &str, max_tokens: u32) -> Result<Chat, ServiceError> {
        self.say(model, json!(question), max_tokens).await
    }

    /// The answer to one question about a picture (PNG).
    pub async fn see(&self, model: &str, question: &str, picture: &[u8], max_tokens: u32) -> Result<Chat, ServiceError> {
        let picture = json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{}", STANDARD.encode(picture)) } });
        self.say(model, json!([picture, { "type": "text", "text": question }]), max_tokens).await
    }

    async fn say(&self, model: &str, content: Value, max_tokens: u32) -> Result<Chat, ServiceError> {
        let messages = json!([{ "role": "user", "content": content }]);
        self.converse(&json!({ "model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0 })).await
    }

    /// The answer to a chat with this body.
    pub async fn converse(&self, body: &Value) -> Result<Chat, ServiceError> {
        let answer: Choices<Message> = self.post(CHAT, body).await?;
        let Message { message, finish_reason, logprobs } = first(answer, CHAT)?;
        let logprobs = logprobs.and_then(|given| given.content).unwrap_or_default().into_iter().map(|token| token.logprob).collect();
        Ok(Chat { finish_reason: finish_reason.unwrap_or_default(), logprobs, ..message })
    }

    /// The same as a stream, put together again. Errors: also a stream that breaks off, or that holds what is no event.
    pub async fn streamed(&self, body: &Value) -> Result<Chat, ServiceError> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let operation = format!("POST {CHAT}, streamed");
        let answer = self.answer(&operation, self.request(CHAT, &body)).await?;
        stream::gathered(&answer.body).map_err(|why| failed(&operation, "NoAnswer", why, Some(answer.status)))
    }

    /// What is said to a chat that should be refused. Errors: no answer at all.
    pub async fn refuses(&self, body: &Value) -> Result<Refusal, ServiceError> {
        match self.answer(&format!("POST {CHAT}"), self.request(CHAT, body)).await {
            Ok(answer) => Ok(Refusal::Other(format!("HTTP {}: {}", answer.status, shown(&answer.body)))),
            Err(error) => match error.status {
                Some(status) if (400..500).contains(&status) => Ok(Refusal::Refused(status, error.message)),
                Some(status) => Ok(Refusal::Other(format!("HTTP {status}: {}", error.message))),
                None => Err(error),
            },
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ServiceError> {
        self.send(&format!("GET {path}"), self.http.get(format!("{}{path}", self.base)).timeout(LISTED)).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, ServiceError> {
        self.send(&format!("POST {path}"), self.request(path, body)).await
    }

    fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.http.post(format!("{}{path}", self.base)).json(body).timeout(ANSWERED)
    }

    async fn send<T: DeserializeOwned>(&self, operation: &str, request: reqwest::RequestBuilder) -> Result<T, ServiceError> {
        self.answer(operation, request).await?.parsed(operation)
    }

    async fn answer(&self, operation: &str, request: reqwest::RequestBuilder) -> Result<Answer, ServiceError> {
        let unreachable = |error: reqwest::Error| {
            let code = if error.is_timeout() { "Timeout" } else { "Unreachable" };
            failed(operation, code, words(&error), None)
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let body = response.text().await.map_err(unreachable)?;
        if !status.is_success() {
            return Err(failed(operation, &format!("HTTP {}", status.as_u16()), complaint(&body), Some(status.as_u16())));
        }
        Ok(Answer { status: status.as_u16(), kind, body })
    }
}

/// What came, before anybody knows that it is JSON.
struct Answer {
    status: u16,
    kind: String,
    body: String,
}

impl Answer {
    fn parsed<T: DeserializeOwned>(&self, operation: &str) -> Result<T, ServiceError> {
        let Self { status, kind, body } = self;
        serde_json::from_str(body).map_err(|error| {
            let what = if kind.contains("html") || body.trim_start().starts_with('<') { "HTML instead of JSON".into() } else { format!("no answer of an OpenAI API ({error})") };
            failed(operation, "NoAnswer", format!("{what}: {}", shown(body)), Some(*status))
        })
    }
}

fn first<T>(answer: Choices<T>, path: &str) -> Result<T, ServiceError> {
    answer.choices.into_iter().next().ok_or_else(|| failed(&format!("POST {path}"), "NoAnswer", "an answer without any choice".into(), Some(200)))
}

fn failed(operation: &str, code: &str, message: String, status: Option<u16>) -> ServiceError {
    ServiceError { service: "endpoint".into(), operation: operation.into(), code: code.into(), message, request_id: None, status }
}

/// The message of an error body in one of its usual forms, or its beginning.
fn complaint(body: &str) -> String {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let message = [&json["error"]["message"], &json["message"], &json["detail"], &json["error"]].into_iter().find_map(Value::as_str);
    message.map_or_else(|| shown(body), str::to_owned)
}

/// The beginning of a text, in one line.
pub(super) fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.is_empty() => "an empty body".into(),
        None => line,
    }
}

/// The innermost causes say what happened (connection refused); reqwest's own words repeat the address.
fn words(error: &reqwest::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words.push(error.to_string());
        cause = error.source();
    }
    if words.is_empty() { error.to_string() } else { words.join(": ") }
}
