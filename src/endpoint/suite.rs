//! `nemo test endpoint`: what users of the API rely on beside a right answer, each with an answer known beforehand.

use std::future::Future;
use std::time::Instant;

use serde_json::{Value, json};

use super::client::{Chat, Endpoint, Refusal};
use super::encoded;
use super::known::{CHAT_TOKENS, Judged, QUESTION, TestResult, Verdict, is_the_answer, judged, leaked, passed, quoted};

/// What is asked, and what its model can do.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    pub model: &'a str,
    /// Has it a reasoning parser?
    pub reasons: bool,
    /// Has it a parser of tool calls?
    pub calls_tools: bool,
    pub sees_pictures: bool,
    /// Tokens of prompt and answer together
    pub max_model_len: u32,
    /// Makes long texts and pictures unlike those of other runs, so that no cache answers
    pub nonce: u64,
}

impl Subject<'_> {
    /// A chat of one message, with these fields more.
    fn body(&self, content: impl Into<Value>, more: &Value) -> Value {
        let mut body = json!({ "model": self.model, "messages": [{ "role": "user", "content": content.into() }], "max_tokens": CHAT_TOKENS, "temperature": 0 });
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        body
    }
}

const WEATHER: &str = "What is the weather in Paris now?";
const FACTS: &str = "Give the city of the Eiffel Tower and the number of its legs as JSON.";
const COUNT: &str = "Count from one to five in English words, with a comma and a space between.";
const CODE: &str = "What is the code number of this text? Answer with the number only.";
/// A sentence that says nothing about the code.
const FILLER: &str = "The river carries what the rain brings, and the mill takes of it what it needs.\n";
/// Of the tokens that fit, so much is filled: what one line has is an average.
const FILLED: f64 = 0.9;
/// Lines whose tokens are counted to know what one has.
const SAMPLE: usize = 200;

/// How an answer is wanted.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Whole,
    Streamed,
}

impl Manner {
    const BOTH: [Self; 2] = [Self::Whole, Self::Streamed];

    fn id(self, test: &str) -> String {
        if self == Self::Whole { test.to_owned() } else { format!("{test}-streamed") }
    }

    async fn answer(self, endpoint: &Endpoint, body: &Value) -> Result<Chat, crate::error::ServiceError> {
        match self {
            Self::Whole => endpoint.converse(body).await,
            Self::Streamed => endpoint.streamed(body).await,
        }
    }
}

/// How many tests this subject gets.
pub fn count(subject: &Subject) -> u64 {
    // Streamed chat, schema and stop word both ways, log probabilities, the same twice, long text, three refusals.
    let always = 1 + 2 + 2 + 1 + 1 + 1 + 3;
    always + if subject.reasons { 2 } else { 0 } + if subject.calls_tools { 2 } else { 0 } + if subject.sees_pictures { 4 } else { 0 }
}

/// Runs them one after the other; `done` is told of each. A test that fails ends none of the others.
pub async fn run(endpoint: &Endpoint, subject: &Subject<'_>, done: impl FnMut(&TestResult)) -> Vec<TestResult> {
    let mut suite = Suite { endpoint, subject, done, tests: Vec::new() };
    suite.streamed().await;
    if subject.reasons {
        suite.reasoning().await;
    }
    if subject.calls_tools {
        suite.tools().await;
    }
    suite.schema().await;
    suite.stop().await;
    suite.logprobs().await;
    suite.repeated().await;
    suite.long().await;
    suite.refusals().await;
    if subject.sees_pictures {
        suite.pictures().await;
    }
    suite.tests
}

struct Suite<'a, F> {
    endpoint: &'a Endpoint,
    subject: &'a Subject<'a>,
    done: F,
    tests: Vec<TestResult>,
}

impl<F: FnMut(&TestResult)> Suite<'_, F> {
    async fn note(&mut self, id: impl Into<String>, asked: impl Into<String>, expected: impl Into<String>, judged: impl Future<Output = Judged>) {
        let began = Instant::now();
        let (verdict, got) = judged.await.unwrap_or_else(|error| (Verdict::Failed, error.to_string()));
        let test = TestResult { id: id.into(), asked: asked.into(), expected: expected.into(), got, verdict, seconds: began.elapsed().as_secs_f64() };
        (self.done)(&test);
        self.tests.push(test);
    }

    /// The same words as in one piece: what a client shows must not depend on how it asked.
    async fn streamed(&mut self) {
        let (endpoint, body) = (self.endpoint, self.subject.body(QUESTION, &Value::Null));
        self.note("chat-streamed", format!("{QUESTION:?}, streamed and not"), "the same right answer both ways", async {
            let (whole, parts) = (endpoint.converse(&body).await?, endpoint.streamed(&body).await?);
            Ok(match judged(&parts, is_the_answer) {
                (Verdict::Passed, got) if parts.content == whole.content && parts.reasoning_content == whole.reasoning_content => (Verdict::Passed, got),
                (Verdict::Passed, got) => (Verdict::Wrong, format!("{got} streamed, {} in one piece", quoted(whole.content.as_deref().unwrap_or_default()))),
                other => other,
            })
        })
        .await;
    }

    async fn reasoning(&mut self) {
        let (endpoint, body) = (self.endpoint, self.subject.body(QUESTION, &json!({ "chat_template_kwargs": { "enable_thinking": true } })));
        for manner in Manner::BOTH {
            self.note(manner.id("reasoning"), format!("{QUESTION:?} with reasoning"), "reasoning, and the answer apart from it", async {
                let chat = manner.answer(endpoint, &body).await?;
                let reasoning = chat.reasoning_content.as_deref().unwrap_or_default().trim();
                Ok(match judged(&chat, is_the_answer) {
                    (Verdict::Passed, got) if reasoning.is_empty() => {
                        (Verdict::ParserBroken, format!("no reasoning came apart from the answer, so the reasoning parser does not fit the model: {got}"))
                    }
                    (Verdict::Passed, got) => (Verdict::Passed, format!("{got}, after {} characters of reasoning", reasoning.chars().count())),
                    other => other,
                })
            })
            .await;
        }
    }

    async fn tools(&mut self) {
        let parameters = json!({ "type": "object", "properties": { "city": { "type": "string", "description": "The city's name" } }, "required": ["city"] });
        let tool = json!({ "type": "function", "function": { "name": "get_weather", "description": "The weather in a city now", "parameters": parameters } });
        let (endpoint, body) = (self.endpoint, self.subject.body(WEATHER, &json!({ "tools": [tool], "tool_choice": "auto" })));
        for manner in Manner::BOTH {
            self.note(manner.id("tool-call"), format!("{WEATHER:?} with the tool get_weather"), "get_weather({\"city\":\"Paris\"})", async {
                Ok(called(&manner.answer(endpoint, &body).await?))
            })
            .await;
        }
    }

    async fn schema(&mut self) {
        let schema =
            json!({ "type": "object", "properties": { "city": { "type": "string" }, "legs": { "type": "integer" } }, "required": ["city", "legs"], "additionalProperties": false });
        let format = json!({ "type": "json_schema", "json_schema": { "name": "tower", "schema": schema, "strict": true } });
        let (endpoint, body) = (self.endpoint, self.subject.body(FACTS, &json!({ "response_format": format })));
        for manner in Manner::BOTH {
            self.note(manner.id("json-schema"), format!("{FACTS:?} by a JSON schema"), "{\"city\": \"Paris\", \"legs\": 4} and nothing else", async {
                Ok(judged(&manner.answer(endpoint, &body).await?, follows))
            })
            .await;
        }
    }

    async fn stop(&mut self) {
        let (endpoint, body) = (self.endpoint, self.subject.body(COUNT, &json!({ "stop": ["four"] })));
        for manner in Manner::BOTH {
            self.note(manner.id("stop"), format!("{COUNT:?} with the stop word four"), "one, two, three, and no further", async {
                let chat = manner.answer(endpoint, &body).await?;
                let right = |content: &str| content.contains("three") && !content.contains("four") && !content.contains("five") && chat.finish_reason == "stop";
                Ok(judged(&chat, right))
            })
            .await;
        }
    }

    async fn logprobs(&mut self) {
        let (endpoint, body) = (self.endpoint, self.subject.body(QUESTION, &json!({ "logprobs": true, "top_logprobs": 2 })));
        self.note("logprobs", format!("{QUESTION:?} with log probabilities"), "one of each token of the answer, none above 0", async {
            let chat = endpoint.converse(&body).await?;
            Ok(match chat.logprobs.as_slice() {
                [] => (Verdict::Wrong, "none".into()),
                given if given.iter().any(|p| !p.is_finite() || *p > 0.0) => (Verdict::Wrong, format!("{} of them, one of which is no logarithm of a probability", given.len())),
                given => (Verdict::Passed, format!("{} of them, the least {:.2}", given.len(), given.iter().copied().fold(0.0, f64::min))),
            })
        })
        .await;
    }

    /// What differs between two greedy answers was computed differently.
    async fn repeated(&mut self) {
        let (endpoint, body) = (self.endpoint, self.subject.body("Describe in three sentences how a mill works.", &json!({ "max_tokens": 128 })));
        self.note("repeated", "the same question twice, greedy", "the same bytes", async {
            let (one, other) = (endpoint.converse(&body).await?, endpoint.converse(&body).await?);
            let text = |chat: &Chat| [chat.reasoning_content.as_deref(), chat.content.as_deref()].map(Option::unwrap_or_default).concat();
            let (one, other) = (text(&one), text(&other));
            let alike = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
            Ok(match one == other {
                _ if one.trim().is_empty() => (Verdict::Wrong, "an empty answer".into()),
                true => (Verdict::Passed, format!("{} characters, all alike", one.chars().count())),
                false => (Verdict::Wrong, format!("two answers that part after {alike} characters: {} and {}", quoted(&one), quoted(&other))),
            })
        })
        .await;
    }

    /// A number near the beginning of a text that fills the context.
    async fn long(&mut self) {
        let (endpoint, subject) = (self.endpoint, self.subject);
        let code = 1000 + subject.nonce % 9000;
        let sample = FILLER.repeat(SAMPLE);
        let body = |lines: usize| {
            let text = format!("Text {}.\n{}The code number of this text is {code}.\n{}", subject.nonce, FILLER.repeat(lines / 10), FILLER.repeat(lines - lines / 10));
            subject.body(format!("{text}\n{CODE}"), &Value::Null)
        };
        let room = f64::from(subject.max_model_len.saturating_sub(CHAT_TOKENS)) * FILLED;
        let judged = async {
            let Some(counted) = endpoint.read(subject.model, &sample).await? else { return Ok((Verdict::Failed, "the endpoint does not say how many tokens a prompt has".into())) };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "lines of a prompt: a small number that is not negative")]
            let lines = (room / (counted.max(1) as f64 / SAMPLE as f64)) as usize;
            let (verdict, got) = judged(&endpoint.converse(&body(lines)).await?, |content| content.contains(&code.to_string()));
            Ok((verdict, format!("{got}, after some {} tokens", room as u64)))
        };
        let asked = format!("a number at the beginning of a text of some {room:.0} tokens");
        self.note("long-context", asked, code.to_string(), judged).await;
    }

    /// What must be refused: with HTTP 4xx, and without harm to those who come after.
    async fn refusals(&mut self) {
        let endpoint = self.endpoint;
        let cases = [
            ("refused-length", "a prompt longer than the context", self.subject.body(FILLER.repeat(self.subject.max_model_len as usize / 8), &Value::Null)),
            ("refused-value", "a temperature of 9", self.subject.body(QUESTION, &json!({ "temperature": 9 }))),
        ];
        for (id, asked, body) in cases {
            self.note(id, asked, "HTTP 4xx", async { Ok(refused(endpoint.refuses(&body).await?)) }).await;
        }
        let body = self.subject.body(QUESTION, &Value::Null);
        self.note("after-refusals", format!("{QUESTION:?} after what was refused"), "42", async { Ok(judged(&endpoint.converse(&body).await?, is_the_answer)) }).await;
    }

    async fn pictures(&mut self) {
        let endpoint = self.endpoint;
        let question = |url: String| json!([{ "type": "image_url", "image_url": { "url": url } }, { "type": "text", "text": encoded::QUESTION }]);
        let address = |png: &[u8]| {
            use base64::Engine as _;
            format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(png))
        };
        let red = |content: &str| content.to_lowercase().contains("red");
        let small = self.subject.body(question(address(&encoded::picture(self.subject.nonce).unwrap_or_default())), &Value::Null);
        self.note("picture", format!("{:?} of a red picture", encoded::QUESTION), "red", async { Ok(judged(&endpoint.converse(&small).await?, red)) }).await;
        let png = encoded::large_picture(self.subject.nonce).unwrap_or_default();
        let large = self.subject.body(question(address(&png)), &Value::Null);
        let asked = format!("{:?} of a red picture of {:.1} MB", encoded::QUESTION, png.len() as f64 / 1e6);
        self.note("picture-large", asked, "red", async { Ok(judged(&endpoint.converse(&large).await?, red)) }).await;
        for (id, asked, url) in [
            ("refused-base64", "a picture that is no base64", "data:image/png;base64,!!!"),
            ("refused-metadata", "a picture at the nodes' metadata address", "http://169.254.169.254/latest/meta-data/"),
        ] {
            let body = self.subject.body(question(url.to_owned()), &Value::Null);
            self.note(id, asked, "HTTP 4xx", async { Ok(refused(endpoint.refuses(&body).await?)) }).await;
        }
    }
}

fn refused(said: Refusal) -> (Verdict, String) {
    match said {
        Refusal::Refused(status, words) => (Verdict::Passed, format!("HTTP {status}: {words}")),
        Refusal::Other(words) => (Verdict::Wrong, words),
    }
}

/// The call that the question asks for. A coding agent sees what a person who reads the text does not: arguments that are no JSON.
fn called(chat: &Chat) -> (Verdict, String) {
    let Some([call]) = chat.tool_calls.as_deref() else {
        let (verdict, got) = judged(chat, |_| false);
        return (verdict, format!("{} tool calls, and {got}", chat.tool_calls.as_deref().unwrap_or_default().len()));
    };
    let got = format!("{}({})", call.function.name, call.function.arguments);
    match serde_json::from_str::<Value>(&call.function.arguments) {
        Err(error) => (Verdict::ParserBroken, format!("arguments that are no JSON ({error}), so the parser of tool calls does not fit the model: {got}")),
        Ok(arguments) => {
            let city = arguments["city"].as_str().unwrap_or_default();
            match leaked(chat.content.as_deref().unwrap_or_default()) {
                Some(tag) => (Verdict::ParserBroken, format!("{tag} is in the answer beside the call {got}, so a parser does not fit the model")),
                None => (passed(call.function.name == "get_weather" && city.to_lowercase().contains("paris") && chat.finish_reason == "tool_calls"), got),
            }
        }
    }
}

fn follows(content: &str) -> bool {
    serde_json::from_str::<Value>(content.trim()).is_ok_and(|value| {
        let fields = value.as_object().map_or(0, serde_json::Map::len);
        fields == 2 && value["city"].as_str().is_some_and(|city| city.to_lowercase().contains("paris")) && value["legs"].as_i64() == Some(4)
    })
}

#[cfg(test)]
mod tests {
    use wiremock::matchers::{body_string_contains, path};
    use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

    use super::*;

    const SUBJECT: Subject<'static> = Subject { model: "nvidia/m", reasons: true, calls_tools: true, sees_pictures: true, max_model_len: 4_000, nonce: 41 };

    /// An endpoint that answers all of it rightly.
    struct Right;

    impl Respond for Right {
        fn respond(&self, request: &Request) -> ResponseTemplate {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let text = body["messages"][0]["content"].as_str().map_or_else(|| body["messages"][0]["content"].to_string(), str::to_owned);
            if body["temperature"] == 9 || text.len() > 30_000 && !text.contains(CODE) && !text.contains("image_url") || text.contains("!!!") || text.contains("169.254") {
                return ResponseTemplate::new(400).set_body_json(json!({"message": "Invalid request"}));
            }
            let reasoning = "I work it out.";
            let (content, calls, finish) = if text.contains(CODE) {
                ("\n\n1041", Value::Null, "stop")
            } else if text == WEATHER {
                ("\n", json!([{"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Paris\"}"}}]), "tool_calls")
            } else if text == FACTS {
                ("{\"city\": \"Paris\", \"legs\": 4}", Value::Null, "stop")
            } else if text == COUNT {
                ("one, two, three, ", Value::Null, "stop")
            } else if text.contains("image_url") {
                ("Red.", Value::Null, "stop")
            } else {
                ("42", Value::Null, "stop")
            };
            if body["stream"] == true {
                let delta = |delta: Value, finish: Value| format!("data: {}\n\n", json!({"choices": [{"delta": delta, "finish_reason": finish}]}));
                let calls = calls.as_array().map(|calls| calls.iter().map(|call| json!({"index": 0, "function": call["function"]})).collect::<Vec<_>>());
                let events = [
                    delta(json!({"reasoning_content": reasoning}), Value::Null),
                    delta(json!({"content": content, "tool_calls": calls}), json!(finish)),
                    "data: [DONE]\n\n".into(),
                ];
                return ResponseTemplate::new(200).set_body_raw(events.concat(), "text/event-stream");
            }
            let logprobs = json!({"content": [{"token": "42", "logprob": -0.25}]});
            let message = json!({"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": calls});
            ResponseTemplate::new(200).set_body_json(json!({"choices": [{"message": message, "finish_reason": finish, "logprobs": logprobs}]}))
        }
    }

    /// What becomes of the suite when requests with these words in them get these answers; the rest is right.
    async fn results(subject: &Subject<'_>, over: &[(&str, ResponseTemplate)]) -> Vec<TestResult> {
        let server = MockServer::start().await;
        for (words, answer) in over {
            Mock::given(path("/v1/chat/completions")).and(body_string_contains(*words)).respond_with(answer.clone()).mount(&server).await;
        }
        Mock::given(path("/v1/chat/completions")).respond_with(Right).mount(&server).await;
        let counted = json!({"choices": [{"text": ""}], "usage": {"prompt_tokens": 20 * SAMPLE}});
        Mock::given(path("/v1/completions")).respond_with(ResponseTemplate::new(200).set_body_json(counted)).mount(&server).await;
        run(&Endpoint::new(server.uri()).unwrap(), subject, |_| ()).await
    }

    fn says(content: Value, reasoning: Value, calls: Value, finish: &str) -> ResponseTemplate {
        let message = json!({"content": content, "reasoning_content": reasoning, "tool_calls": calls});
        ResponseTemplate::new(200).set_body_json(json!({"choices": [{"message": message, "finish_reason": finish}]}))
    }

    fn call(arguments: &str) -> Value {
        json!([{"function": {"name": "get_weather", "arguments": arguments}}])
    }

    fn of<'a>(results: &'a [TestResult], id: &str) -> &'a TestResult {
        results.iter().find(|result| result.id == id).unwrap()
    }

    #[tokio::test]
    async fn all_pass_and_are_as_many_as_was_said() {
        for subject in [SUBJECT, Subject { reasons: false, calls_tools: false, sees_pictures: false, ..SUBJECT }] {
            let results = results(&subject, &[]).await;
            let failed: Vec<_> = results.iter().filter(|result| !result.passed()).map(ToString::to_string).collect();
            assert_eq!(failed, Vec::<String>::new());
            assert_eq!(results.len() as u64, count(&subject));
        }
    }

    /// Story 86: what one way of asking shows, the other hides.
    #[tokio::test]
    async fn a_parser_that_fails_in_the_stream_only() {
        let cut = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\":\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
        let results = results(&SUBJECT, &[("\"stream\":true", ResponseTemplate::new(200).set_body_raw(cut, "text/event-stream"))]).await;
        assert!(of(&results, "tool-call").passed());
        let streamed = of(&results, "tool-call-streamed");
        assert_eq!(streamed.verdict, Verdict::ParserBroken);
        assert!(streamed.to_string().contains("arguments that are no JSON") && streamed.got.contains("get_weather({\"city\":)"), "{streamed}");
    }

    #[tokio::test]
    async fn each_fault_is_told_from_the_others() {
        use Verdict::{Failed, OutOfBudget, ParserBroken, Wrong};
        let none = || Value::Null;
        for (words, answer, id, verdict, told) in [
            (WEATHER, says(json!("<tool_call>\n<function=get_weather>"), none(), none(), "stop"), "tool-call", ParserBroken, "<tool_call> is in the answer"),
            (WEATHER, says(json!("It is sunny."), none(), none(), "stop"), "tool-call", Wrong, "0 tool calls, and \"It is sunny.\""),
            (WEATHER, says(json!(""), none(), call("{\"city\":\"London\"}"), "tool_calls"), "tool-call", Wrong, "London"),
            (WEATHER, says(json!("</think>"), none(), call("{\"city\":\"Paris\"}"), "tool_calls"), "tool-call", ParserBroken, "</think> is in the answer beside the call"),
            (FACTS, says(json!("Here it is: {\"city\": \"Paris\", \"legs\": 4}"), none(), none(), "stop"), "json-schema", Wrong, "Here it is"),
            (FACTS, says(json!("{\"city\": \"Paris\", \"legs\": \"4\"}"), none(), none(), "stop"), "json-schema", Wrong, "legs"),
            (COUNT, says(json!("one, two, three, four"), none(), none(), "stop"), "stop", Wrong, "four"),
            (COUNT, says(none(), json!("They want"), none(), "length"), "stop", OutOfBudget, "in the middle of the reasoning"),
            ("logprobs", says(json!("42"), none(), none(), "stop"), "logprobs", Wrong, "got none"),
            ("enable_thinking", says(json!("42"), none(), none(), "stop"), "reasoning", ParserBroken, "no reasoning came apart"),
            ("enable_thinking", says(json!("17 + 25</think>42"), none(), none(), "stop"), "reasoning", ParserBroken, "</think> is in the answer"),
            (CODE, says(json!("I see no code."), none(), none(), "stop"), "long-context", Wrong, "expected 1041"),
            (CODE, ResponseTemplate::new(500).set_body_string("worker gone"), "long-context", Failed, "worker gone"),
            ("169.254", says(json!("It shows ami-id."), none(), none(), "stop"), "refused-metadata", Wrong, "HTTP 200"),
            ("!!!", ResponseTemplate::new(500).set_body_json(json!({"message": "panicked"})), "refused-base64", Wrong, "HTTP 500: panicked"),
            ("\"temperature\":9", says(json!("42"), none(), none(), "stop"), "refused-value", Wrong, "HTTP 200"),
            ("image_url", says(json!("Blue."), none(), none(), "stop"), "picture", Wrong, "got \"Blue.\""),
        ] {
            let subject = Subject { sees_pictures: id.starts_with("picture") || id.starts_with("refused"), ..SUBJECT };
            let results = results(&subject, &[(words, answer)]).await;
            let result = of(&results, id);
            assert_eq!(result.verdict, verdict, "{words}: {result}");
            assert!(result.to_string().contains(told), "{words}: {result}");
        }
    }
}
