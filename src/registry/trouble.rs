//! What a registry answered when it was no success, and whether to try again.

use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode};

use crate::error::ServiceError;

/// Tries of one request or one blob before it is given up.
const TRIES: u32 = 6;

/// An error, with what the server said about trying again.
#[derive(Debug)]
pub struct Trouble {
    pub error: ServiceError,
    /// Worth another try: too many requests, a server's fault, a connection that broke.
    pub again: bool,
    /// `Retry-After`.
    pub after: Option<Duration>,
}

impl From<Trouble> for ServiceError {
    fn from(trouble: Trouble) -> Self {
        trouble.error
    }
}

/// Is told that something is tried again: what, why, the how-manyth try comes now.
pub type Notice<'a> = &'a (dyn Fn(&str, &str, u32) + Send + Sync);

impl Trouble {
    /// One that no other try will help.
    pub(super) fn lasting(host: &str, operation: &str, code: &str, message: impl Into<String>) -> Self {
        Self { error: error(host, operation, code, message.into(), None), again: false, after: None }
    }

    /// One that another try may help.
    pub(super) fn passing(host: &str, operation: &str, code: &str, message: impl Into<String>) -> Self {
        Self { again: true, ..Self::lasting(host, operation, code, message) }
    }

    /// No answer came: no connection, or it broke.
    pub(super) fn unanswered(host: &str, operation: &str, cause: &reqwest::Error) -> Self {
        let code = if cause.is_timeout() { "Timeout" } else { "Unreachable" };
        let mut words = String::new();
        let mut next: Option<&dyn std::error::Error> = Some(cause);
        while let Some(error) = next {
            let line = error.to_string();
            // The outermost words carry the address, which may hold a signature.
            if !line.contains("://") && !words.contains(&line) {
                words = if words.is_empty() { line } else { format!("{words}: {line}") };
            }
            next = error.source();
        }
        // A certificate that is not trusted, or a name that does not exist, stays so.
        let again = !words.contains("certificate") && !words.contains("dns error");
        Self { again, ..Self::lasting(host, operation, code, words) }
    }

    /// An answer that is no success, in the registry's words.
    pub(super) async fn answered(host: &str, operation: &str, response: Response) -> Self {
        let status = response.status();
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|value| value.trim().parse().ok()).map(Duration::from_secs);
        let request_id = ["x-amzn-requestid", "x-request-id"].iter().find_map(|name| response.headers().get(*name)).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = response.text().await.unwrap_or_default();
        let (code, message) = words(status, &body);
        let again = matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504);
        let message = match status {
            StatusCode::UNAUTHORIZED => format!("a sign-in is needed, or there is no such repository: {message}"),
            StatusCode::FORBIDDEN => format!("the registry knows who asks and refuses it: {message}"),
            _ => message,
        };
        let mut error = error(host, operation, &code, message, Some(status.as_u16()));
        error.request_id = request_id;
        Self { error, again, after }
    }

    /// How long to wait before the next try; the first is `attempt` 1.
    fn pause(&self, attempt: u32) -> Duration {
        self.after.unwrap_or_else(|| Duration::from_millis(250 << attempt.min(7))).min(Duration::from_secs(120))
    }
}

/// The tries of one thing.
pub(super) struct Tries<'a> {
    what: String,
    notice: Notice<'a>,
    made: u32,
}

impl<'a> Tries<'a> {
    pub(super) fn new(what: String, notice: Notice<'a>) -> Self {
        Self { what, notice, made: 0 }
    }

    /// After a try that failed: waits until the next one is due, or gives up with its error.
    #[expect(clippy::disallowed_methods, reason = "adapters know no engine, where the clock lives")]
    pub(super) async fn again(&mut self, trouble: Trouble) -> Result<(), ServiceError> {
        self.made += 1;
        if !trouble.again || self.made == TRIES {
            return Err(trouble.error);
        }
        (self.notice)(&self.what, &trouble.error.to_string(), self.made + 1);
        tokio::time::sleep(trouble.pause(self.made)).await;
        Ok(())
    }
}

fn error(host: &str, operation: &str, code: &str, message: String, status: Option<u16>) -> ServiceError {
    ServiceError { service: host.to_owned(), operation: operation.to_owned(), code: code.to_owned(), message, request_id: None, status }
}

/// Code and message of an error body: the protocol's JSON, or the start of whatever it is.
fn words(status: StatusCode, body: &str) -> (String, String) {
    let plain = status.canonical_reason().unwrap_or("no reason given").to_owned();
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(body) {
        let first = &json["errors"][0];
        let text = |value: &serde_json::Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let code = text(&first["code"]).unwrap_or_else(|| format!("HTTP {}", status.as_u16()));
        return (code, text(&first["message"]).or_else(|| text(&json["message"])).or_else(|| text(&json["details"])).unwrap_or(plain));
    }
    let start: String = body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(120).collect();
    let code = format!("HTTP {}", status.as_u16());
    if start.starts_with('<') {
        (code, format!("answered HTML, not a registry's answer (a proxy or a sign-in page in between?): {start}"))
    } else {
        (code, if start.is_empty() { plain } else { start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_body_is_quoted_in_its_own_words() {
        let json = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":"x"}]}"#;
        assert_eq!(words(StatusCode::NOT_FOUND, json), ("MANIFEST_UNKNOWN".into(), "manifest unknown".into()));
        let (code, message) = words(StatusCode::BAD_GATEWAY, "<html>\n<h1>Welcome to the hotel</h1></html>");
        assert_eq!(code, "HTTP 502");
        assert!(message.contains("HTML") && message.contains("hotel"), "{message}");
        assert_eq!(words(StatusCode::FORBIDDEN, "").1, "Forbidden");
    }

    #[test]
    fn pauses_grow_and_the_server_is_obeyed() {
        let trouble = Trouble::passing("h", "GET", "429", "slow down");
        assert!(trouble.pause(1) < trouble.pause(2) && trouble.pause(2) < trouble.pause(3));
        let told = Trouble { after: Some(Duration::from_secs(7)), ..trouble };
        assert_eq!(told.pause(1), Duration::from_secs(7));
    }
}
