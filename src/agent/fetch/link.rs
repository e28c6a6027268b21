//! Asks the hub for a range of a file, and follows where it sends us. The token goes to the hub alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, LOCATION, RANGE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};

use super::plan::{FetchPlan, PlanFile};
use crate::engine::clock;
use crate::error::{Kind, fail};
use crate::secret::Secret;

const CONNECT: Duration = Duration::from_secs(10);
const HOPS: usize = 8;

/// Why a request brought nothing.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// Worth another try; else what is to be said.
    pub(super) verdict: Verdict,
}

#[derive(Debug)]
pub(super) enum Verdict {
    /// Try again, after so long where the server said how long.
    Again(Option<Duration>),
    /// No other try will help.
    Lasting { kind: Kind, hint: String },
}

impl Trouble {
    pub(super) fn again(why: impl Into<String>) -> Self {
        Self { why: why.into(), verdict: Verdict::Again(None) }
    }

    fn lasting(kind: Kind, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { why: why.into(), verdict: Verdict::Lasting { kind, hint: hint.into() } }
    }
}

/// An answer that brings the bytes asked for, after `skip` bytes that were not asked for.
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) skip: u64,
}

/// The way to a hub.
pub(super) struct Link {
    http: Client,
    endpoint: Url,
    token: Option<Secret>,
    repository: String,
    revision: String,
    stall: Duration,
    /// Where the hub sent us for a file, as long as that address is good.
    signed: Mutex<HashMap<String, Url>>,
    /// The hub asked everybody to wait until then.
    not_before: Mutex<Option<Instant>>,
}

impl Link {
    pub(super) fn new(plan: &FetchPlan, token: Option<Secret>) -> anyhow::Result<Self> {
        // One connection a request: HTTP/2 would put them all on one. Redirects are followed here, where the token is taken care of.
        let http = Client::builder()
            .user_agent(concat!("nemo/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT)
            .pool_max_idle_per_host(plan.connections as usize)
            .build()
            .context("starting the HTTP client")?;
        let endpoint = Url::parse(&plan.endpoint).map_err(|e| fail(Kind::Config, format!("hub.endpoint {:?} is no address: {e}", plan.endpoint)))?;
        Ok(Self {
            http,
            endpoint,
            token,
            repository: plan.repository.clone(),
            revision: plan.revision.clone(),
            stall: Duration::from_secs(plan.stall_s.max(1)),
            signed: Mutex::default(),
            not_before: Mutex::default(),
        })
    }

    /// How long nothing may come until a connection is dropped.
    pub(super) fn stall(&self) -> Duration {
        self.stall
    }

    /// Bytes `from..to` of the file.
    pub(super) async fn get(&self, file: &PlanFile, from: u64, to: u64) -> Result<Answer, Trouble> {
        self.wait().await;
        let known = self.signed.lock().unwrap_or_else(PoisonError::into_inner).get(&file.path).cloned();
        if let Some(url) = known {
            let response = self.ask(&url, from, to).await?;
            if !matches!(response.status().as_u16(), 400 | 401 | 403 | 404 | 410) && !response.status().is_redirection() {
                return self.judge(file, from, response).await;
            }
            // Signed addresses end after a while; the hub gives new ones.
            self.signed.lock().unwrap_or_else(PoisonError::into_inner).remove(&file.path);
        }
        let mut url = self.address(file)?;
        for _ in 0..HOPS {
            let response = self.ask(&url, from, to).await?;
            if !response.status().is_redirection() {
                if !self.is_hub(&url) && response.status().is_success() {
                    self.signed.lock().unwrap_or_else(PoisonError::into_inner).insert(file.path.clone(), url);
                }
                return self.judge(file, from, response).await;
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).and_then(|location| url.join(location).ok());
            let next = location.ok_or_else(|| Trouble::again("was redirected to nowhere"))?;
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(Trouble::lasting(Kind::Remote, format!("{} redirects to {} without TLS", host(&url), host(&next)), "check hub.endpoint and proxies in between"));
            }
            url = next;
        }
        Err(Trouble::again("was redirected in a circle"))
    }

    fn address(&self, file: &PlanFile) -> Result<Url, Trouble> {
        let mut url = self.endpoint.clone();
        match url.path_segments_mut() {
            Ok(mut path) => path.pop_if_empty().extend(self.repository.split('/')).push("resolve").push(&self.revision).extend(file.path.split('/')),
            Err(()) => return Err(Trouble::lasting(Kind::Config, format!("hub.endpoint {} has no path", self.endpoint), "set hub.endpoint to https://…")),
        };
        Ok(url)
    }

    /// Another port is another host, and another scheme too.
    fn is_hub(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    async fn ask(&self, url: &Url, from: u64, to: u64) -> Result<Response, Trouble> {
        // Compressed bytes would not be those that the hash is of.
        let mut request = self.http.get(url.clone()).header(ACCEPT_ENCODING, "identity").header(RANGE, format!("bytes={from}-{}", to - 1));
        if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(url)) {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        match tokio::time::timeout(self.stall, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(Trouble::again(format!("{}: {}", host(url), words(&error)))),
            Err(_) => Err(Trouble::again(format!("{} did not answer for {} s", host(url), self.stall.as_secs()))),
        }
    }

    async fn judge(&self, file: &PlanFile, from: u64, response: Response) -> Result<Answer, Trouble> {
        let host = host(response.url());
        let changed = |why: String| Trouble::lasting(Kind::Verification, why, "plan again, so that the files of the present revision are taken: nemo plan");
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
                let (begins, size) = content_range(&range).ok_or_else(|| Trouble::again(format!("{host} answered a range {range:?} that says nothing")))?;
                if size.is_some_and(|size| size != file.size) {
                    return Err(changed(format!("{host} has {range}, planned were {} bytes", file.size)));
                }
                if begins != from {
                    return Err(Trouble::again(format!("{host} answered with {range} where {from} was asked for")));
                }
                Ok(Answer { response, skip: 0 })
            }
            // The range was not heeded: what lies before it comes too.
            StatusCode::OK => match response.content_length().filter(|length| *length != file.size) {
                Some(length) => Err(changed(format!("{host} has {length} bytes, planned were {}", file.size))),
                None => Ok(Answer { response, skip: from }),
            },
            StatusCode::RANGE_NOT_SATISFIABLE => Err(changed(format!("{host} has less of the file than the {} bytes planned", file.size))),
            status if matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error() => {
                let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok()).map(Duration::from_secs);
                if let Some(after) = after {
                    *self.not_before.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + after);
                }
                Err(Trouble { why: format!("{host} answered {status}"), verdict: Verdict::Again(after) })
            }
            _ if !self.is_hub(response.url()) => Err(Trouble::again(format!("{host} answered {} to an address that the hub had just given", response.status()))),
            _ => Err(self.refused(file, response).await),
        }
    }

    /// The hub itself says no.
    async fn refused(&self, file: &PlanFile, response: Response) -> Trouble {
        let status = response.status();
        let code = response.headers().get("x-error-code").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let said: String = response.text().await.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ").chars().take(160).collect();
        let (host, repository) = (host(&self.endpoint), &self.repository);
        let why = format!("{host} answered {status} {code} for {repository} {}: {said}", file.path);
        let page = format!("{}/{repository}", self.endpoint.as_str().trim_end_matches('/'));
        match status {
            StatusCode::UNAUTHORIZED if self.token.is_none() => Trouble::lasting(Kind::Credentials, why, "set HF_TOKEN: this repository is not for everybody"),
            StatusCode::UNAUTHORIZED => Trouble::lasting(Kind::Credentials, why, "the token is wrong or has ended, or the repository's name is wrong: check HF_TOKEN"),
            StatusCode::FORBIDDEN => Trouble::lasting(Kind::Credentials, why, format!("ask for access at {page} with the account of HF_TOKEN")),
            StatusCode::NOT_FOUND => Trouble::lasting(Kind::Verification, why, "the file is gone from this revision; plan again: nemo plan"),
            _ => Trouble::again(why),
        }
    }

    /// Waits as long as the hub asked for.
    async fn wait(&self) {
        let until = *self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until {
            clock::sleep(until.saturating_duration_since(Instant::now())).await;
        }
    }
}

/// `bytes 0-9/100` → (0, 100); a `*` for the size is unknown.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (begins, _) = range.split_once('-')?;
    Some((begins.parse().ok()?, size.parse().ok()))
}

fn host(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or("the hub"))
}

/// An error without the address, which may hold a signature.
pub(super) fn words(error: &reqwest::Error) -> String {
    let mut words = String::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let line = cause.to_string();
        if !words.contains(&line) {
            words = if words.is_empty() { line } else { format!("{words}: {line}") };
        }
        next = cause.source();
    }
    if words.is_empty() { "the connection broke".into() } else { words }
}
