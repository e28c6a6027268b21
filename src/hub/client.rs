//! A client of the hub's public API; the token goes to the hub only, never to where it redirects.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, LINK};
use reqwest::{Client, Method, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::ServiceError;
use crate::secret::Secret;

const SERVICE: &str = "hub";
/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A commit of a model repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// 40 hex digits.
    pub sha: String,
    /// Its files are given only to whom the owner has admitted.
    pub gated: bool,
}

/// A file of a repository at a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub size: u64,
    /// Of large files (LFS).
    pub sha256: Option<String>,
    /// Git's blob id (sha1) of small ones.
    pub git_blob: Option<String>,
}

/// The hub, as one user sees it.
#[derive(Debug, Clone)]
pub struct Hub {
    http: Client,
    endpoint: String,
    token: Option<Secret>,
}

impl Hub {
    /// The hub at this address, with the token of whoever asks.
    pub fn new(http: Client, endpoint: &str, token: Option<Secret>) -> Self {
        Self { http, endpoint: endpoint.trim_end_matches('/').to_owned(), token }
    }

    /// Its address.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The name of the token's owner.
    pub async fn whoami(&self) -> Result<String, ServiceError> {
        #[derive(Deserialize)]
        struct Answer {
            name: String,
        }
        Ok(self.get::<Answer>("/api/whoami-v2").await?.0.name)
    }

    /// The commit that a branch, tag or commit of a model repository means.
    pub async fn commit(&self, repository: &str, revision: &str) -> Result<Commit, ServiceError> {
        #[derive(Deserialize)]
        struct Answer {
            sha: String,
            /// `false`, `"auto"` or `"manual"`.
            #[serde(default)]
            gated: serde_json::Value,
        }
        let (answer, _) = self.get::<Answer>(&format!("/api/models/{repository}/revision/{revision}")).await?;
        let gated = !matches!(answer.gated, serde_json::Value::Null | serde_json::Value::Bool(false));
        Ok(Commit { sha: answer.sha, gated })
    }

    /// All files at a commit, with their sizes and checksums.
    pub async fn files(&self, repository: &str, commit: &str) -> Result<Vec<File>, ServiceError> {
        #[derive(Deserialize)]
        struct Entry {
            #[serde(rename = "type")]
            kind: String,
            path: String,
            #[serde(default)]
            size: u64,
            oid: Option<String>,
            lfs: Option<Lfs>,
        }
        #[derive(Deserialize)]
        struct Lfs {
            oid: String,
            size: u64,
        }
        let mut next = Some(format!("/api/models/{repository}/tree/{commit}?recursive=true"));
        let mut files = Vec::new();
        while let Some(page) = next {
            let (entries, following) = self.get::<Vec<Entry>>(&page).await?;
            next = following;
            files.extend(entries.into_iter().filter(|entry| entry.kind == "file").map(|entry| match entry.lfs {
                Some(lfs) => File { path: entry.path, size: lfs.size, sha256: Some(lfs.oid), git_blob: None },
                None => File { path: entry.path, size: entry.size, sha256: None, git_blob: entry.oid },
            }));
        }
        Ok(files)
    }

    /// May this file be read? The hub lists the files of a gated repository to everybody; only the file itself tells.
    pub async fn may_read(&self, repository: &str, commit: &str, path: &str) -> Result<(), ServiceError> {
        let address = format!("/{repository}/resolve/{commit}/{path}");
        let operation = format!("HEAD {address}");
        let response = self.send(Method::HEAD, &address, &operation).await?;
        if response.status().is_success() { Ok(()) } else { Err(refusal(&operation, response).await) }
    }

    /// An answer in JSON, and the address of the page after it on the same hub.
    async fn get<T: DeserializeOwned>(&self, address: &str) -> Result<(T, Option<String>), ServiceError> {
        let operation = format!("GET {address}");
        let response = self.send(Method::GET, address, &operation).await?;
        if !response.status().is_success() {
            return Err(refusal(&operation, response).await);
        }
        let following = response.headers().get(LINK).and_then(|link| link.to_str().ok()).and_then(|link| self.page_after(link));
        let html = is_html(&response);
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|e| unanswered(&operation, &e))?;
        match serde_json::from_slice(&body) {
            Ok(answer) => Ok((answer, following)),
            Err(e) => {
                let start = start_of(&String::from_utf8_lossy(&body));
                let message = if html || start.starts_with('<') { html_words(&start) } else { format!("the answer is not what the hub's API gives ({e}): {start}") };
                Err(error(&operation, "NoAnswer", message, Some(status)))
            }
        }
    }

    async fn send(&self, method: Method, address: &str, operation: &str) -> Result<Response, ServiceError> {
        let mut request = self.http.request(method, format!("{}{address}", self.endpoint)).timeout(ANSWER_LIMIT);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.reveal());
        }
        request.send().await.map_err(|e| unanswered(operation, &e))
    }

    /// `<https://hub/api/…?cursor=…>; rel="next"`, if it is of this hub: the token goes nowhere else.
    fn page_after(&self, link: &str) -> Option<String> {
        let part = link.split(',').find(|part| part.contains("rel=\"next\""))?;
        let address = part.split_once('<')?.1.split_once('>')?.0;
        address.strip_prefix(&self.endpoint).or(Some(address)).filter(|rest| rest.starts_with('/')).map(str::to_owned)
    }
}

/// The hub says in headers what it means; its bodies are for people.
async fn refusal(operation: &str, response: Response) -> ServiceError {
    let status = response.status();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (code, message) = (header("x-error-code"), header("x-error-message"));
    let html = is_html(&response);
    let body = response.text().await.unwrap_or_default();
    let said = serde_json::from_str::<serde_json::Value>(&body).ok().and_then(|json| json["error"].as_str().map(str::to_owned));
    let start = start_of(&body);
    let plain = || status.canonical_reason().unwrap_or("no reason given").to_owned();
    let words = if html || start.starts_with('<') { Some(html_words(&start)) } else { None };
    let message = message.or(said).or(words).unwrap_or_else(plain);
    error(operation, &code.unwrap_or_else(|| format!("HTTP {}", status.as_u16())), message, Some(status.as_u16()))
}

fn is_html(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.starts_with("text/html"))
}

fn html_words(start: &str) -> String {
    format!("answered HTML, not the hub's API (a proxy or a sign-in page in between?): {start}")
}

fn start_of(body: &str) -> String {
    body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(120).collect()
}

fn unanswered(operation: &str, cause: &reqwest::Error) -> ServiceError {
    let code = if cause.is_timeout() { "Timeout" } else { "Unreachable" };
    // reqwest's own words repeat the address; the causes say what happened.
    let mut words = Vec::new();
    let mut next = std::error::Error::source(cause);
    while let Some(inner) = next {
        words.push(inner.to_string());
        next = inner.source();
    }
    error(operation, code, if words.is_empty() { cause.to_string() } else { words.join(": ") }, cause.status().map(|status| StatusCode::as_u16(&status)))
}

fn error(operation: &str, code: &str, message: String, status: Option<u16>) -> ServiceError {
    ServiceError { service: SERVICE.into(), operation: operation.into(), code: code.into(), message, request_id: None, status }
}

#[cfg(test)]
mod tests {
    use wiremock::matchers::{header, method, path, query_param};
    use wiremock::{Mock, MockServer, ResponseTemplate};

    use super::*;
    use crate::error::Kind;

    async fn hub(mocks: Vec<Mock>) -> (MockServer, Hub) {
        let server = MockServer::start().await;
        for mock in mocks {
            server.register(mock).await;
        }
        let hub = Hub::new(Client::new(), &server.uri(), Some(Secret::new("hf_x")));
        (server, hub)
    }

    fn json(value: serde_json::Value) -> ResponseTemplate {
        ResponseTemplate::new(200).set_body_json(value)
    }

    #[tokio::test]
    async fn files_are_listed_over_all_pages_with_the_token() {
        let server = MockServer::start().await;
        let first = json(serde_json::json!([
            {"type": "directory", "path": "a", "oid": "0"},
            {"type": "file", "path": "a/big.safetensors", "size": 5, "oid": "1", "lfs": {"oid": "ab", "size": 5, "pointerSize": 1}},
        ]));
        let link = format!("<{}/api/models/o/n/tree/c?recursive=true&cursor=2>; rel=\"next\"", server.uri());
        let here = || Mock::given(method("GET")).and(path("/api/models/o/n/tree/c")).and(header("authorization", "Bearer hf_x"));
        server.register(here().and(query_param("cursor", "2")).respond_with(json(serde_json::json!([{"type": "file", "path": "config.json", "size": 7, "oid": "cd"}])))).await;
        server.register(here().respond_with(first.insert_header("link", link.as_str())).with_priority(9)).await;
        let files = Hub::new(Client::new(), &server.uri(), Some(Secret::new("hf_x"))).files("o/n", "c").await.unwrap();
        assert_eq!(
            files,
            [
                File { path: "a/big.safetensors".into(), size: 5, sha256: Some("ab".into()), git_blob: None },
                File { path: "config.json".into(), size: 7, sha256: None, git_blob: Some("cd".into()) },
            ]
        );
    }

    #[tokio::test]
    async fn refusals_keep_the_hubs_own_code_and_words() {
        let gated = ResponseTemplate::new(403).insert_header("x-error-code", "GatedRepo").insert_header("x-error-message", "you are not in the authorized list");
        let (_server, hub) = hub(vec![Mock::given(method("HEAD")).and(path("/o/n/resolve/c/config.json")).respond_with(gated)]).await;
        let error = hub.may_read("o/n", "c", "config.json").await.unwrap_err();
        assert_eq!((error.code.as_str(), error.kind()), ("GatedRepo", Kind::Credentials));
        assert!(error.message.contains("authorized list"));
        // Nothing is mocked at this address: a 404 where JSON was due.
        let error = hub.commit("o/n", "main").await.unwrap_err();
        assert_eq!((error.code.as_str(), error.status, error.kind()), ("HTTP 404", Some(404), Kind::Remote));
    }

    #[tokio::test]
    async fn html_is_told_from_an_answer() {
        let page = || ResponseTemplate::new(200).set_body_raw("<html>\n<h1>Welcome to the hotel</h1>", "text/html");
        let (_server, hub) = hub(vec![Mock::given(method("GET")).respond_with(page())]).await;
        let error = hub.whoami().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Remote);
        assert!(error.message.contains("HTML") && error.message.contains("hotel"), "{error}");
    }

    #[tokio::test]
    async fn a_hub_that_is_not_there_is_unreachable() {
        let error = Hub::new(Client::new(), "http://127.0.0.1:9", None).whoami().await.unwrap_err();
        assert_eq!(error.code, "Unreachable");
        assert!(error.message.to_lowercase().contains("refused"), "{error}");
    }

    #[test]
    fn the_token_follows_no_link_to_another_host() {
        let hub = Hub::new(Client::new(), "https://hub", None);
        assert_eq!(hub.page_after("<https://hub/api/x?cursor=1>; rel=\"next\"").as_deref(), Some("/api/x?cursor=1"));
        assert_eq!(hub.page_after("<https://evil/api/x>; rel=\"next\""), None);
        assert_eq!(hub.page_after("<https://hub.evil/api/x>; rel=\"next\""), None);
        assert_eq!(hub.page_after("<https://hub/api/x>; rel=\"prev\""), None);
    }
}
