//! A streamed answer, put together again as a client that shows it would.

use serde::Deserialize;

use super::client::{Chat, ToolCall, shown};

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<String>,
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Part>>,
}

/// A part of a call: the first one has the name, and each some of the arguments.
#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    index: usize,
    #[serde(default)]
    function: Named,
}

#[derive(Default, Deserialize)]
struct Named {
    name: Option<String>,
    arguments: Option<String>,
}

/// More calls than anybody asks for: an index beyond it is no index.
const CALLS: usize = 64;

/// The whole answer. Errors: no event stream, an event that is no JSON, an error among the events, no `[DONE]` at the end.
pub(super) fn gathered(body: &str) -> Result<Chat, String> {
    let (mut chat, mut calls, mut done) = (Chat::default(), Vec::<ToolCall>::new(), false);
    // Lines without `data:` are comments, names of events, or the empty ones between them; an error of Dynamo's frontend is an event with that name.
    let mut event = "";
    for line in body.lines() {
        if let Some(name) = line.strip_prefix("event:") {
            event = name.trim();
        }
        let Some(data) = line.strip_prefix("data:").map(str::trim) else {
            if event == "error" && line.starts_with(':') {
                return Err(format!("an error in the stream: {}", shown(line.trim_start_matches(':'))));
            }
            continue;
        };
        if data == "[DONE]" {
            done = true;
            continue;
        }
        let value: serde_json::Value = serde_json::from_str(data).map_err(|error| format!("an event that is no JSON ({error}): {}", shown(data)))?;
        if event == "error" || value.get("error").is_some() {
            return Err(format!("an error in the stream: {}", shown(data)));
        }
        let chunk: Chunk = serde_json::from_value(value).map_err(|error| format!("no event of a chat ({error}): {}", shown(data)))?;
        for Choice { delta, finish_reason } in chunk.choices {
            join(&mut chat.content, delta.content);
            join(&mut chat.reasoning_content, delta.reasoning_content);
            for Part { index, function } in delta.tool_calls.into_iter().flatten() {
                if index >= CALLS {
                    return Err(format!("a tool call with index {index}"));
                }
                calls.resize_with(calls.len().max(index + 1), ToolCall::default);
                calls[index].function.name += function.name.as_deref().unwrap_or_default();
                calls[index].function.arguments += function.arguments.as_deref().unwrap_or_default();
            }
            if let Some(reason) = finish_reason {
                chat.finish_reason = reason;
            }
        }
    }
    if !done {
        return Err(format!("the stream ended without [DONE]: {}", shown(body)));
    }
    chat.tool_calls = Some(calls).filter(|calls| !calls.is_empty());
    Ok(chat)
}

fn join(whole: &mut Option<String>, part: Option<String>) {
    if let Some(part) = part {
        whole.get_or_insert_default().push_str(&part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Dynamo's frontend 1.6.1 streams it.
    const TOOL: &str = r#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"The"},"finish_reason":null,"logprobs":null}],"object":"chat.completion.chunk"}

data: {"id":"c","choices":[{"index":0,"delta":{"reasoning_content":" user"},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"","tool_calls":[{"index":0,"id":"call-1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":"}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Paris\"}"}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls","logprobs":null}]}

data: {"id":"c","choices":[],"usage":{"prompt_tokens":25,"completion_tokens":77}}

data: [DONE]

"#;

    #[test]
    fn parts_are_joined() {
        let chat = gathered(TOOL).unwrap();
        let calls = chat.tool_calls.unwrap();
        assert_eq!((chat.content.as_deref(), chat.reasoning_content.as_deref(), chat.finish_reason.as_str()), (Some(""), Some("The user"), "tool_calls"));
        assert_eq!(calls.iter().map(|call| (call.function.name.as_str(), call.function.arguments.as_str())).collect::<Vec<_>>(), [("get_weather", r#"{"city":"Paris"}"#)]);
    }

    #[test]
    fn what_breaks_off_or_errs_is_no_answer() {
        for (body, words) in [
            ("", "without [DONE]: an empty body"),
            ("data: {\"choices\":[]}\n\n", "without [DONE]"),
            ("data: {\"choi\n\n", "no JSON"),
            ("data: {\"error\":{\"message\":\"no instances\"}}\n\ndata: [DONE]\n", "no instances"),
            ("event: error\n: lost the worker\n\ndata: [DONE]\n", "lost the worker"),
            ("event: error\ndata: {\"message\":\"lost\"}\n\ndata: [DONE]\n", "lost"),
            ("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":9999999}]}}]}\n", "index 9999999"),
            ("data: {\"choices\":4}\n", "no event of a chat"),
        ] {
            let said = gathered(body).unwrap_err();
            assert!(said.contains(words), "{body:?}: {said}");
        }
    }

    #[test]
    fn a_cut_stream_gives_no_answer() {
        let done = TOOL.find("data: [DONE]").unwrap() + "data: [DONE]".len();
        assert!((0..done).all(|end| gathered(&TOOL[..end]).is_err()));
        assert!(gathered(&TOOL[..done]).is_ok());
    }
}
