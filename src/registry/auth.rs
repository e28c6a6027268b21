//! Signing in to a registry: it names the way in a challenge; tokens are kept a while and renewed when they are refused.

use std::collections::HashMap;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Client;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::trouble::Trouble;
use crate::error::ServiceError;
use crate::secret::Secret;

/// Who knows user and password of a registry. Asked again when what it gave is refused: ECR's lives twelve hours.
#[async_trait]
pub trait Login: Send + Sync {
    /// User and password, or nothing for a registry that everybody may read.
    async fn credentials(&self) -> Result<Option<(String, Secret)>, ServiceError>;
}

/// Nobody: public images.
#[derive(Debug, Clone, Copy)]
pub struct Anonymous;

#[async_trait]
impl Login for Anonymous {
    async fn credentials(&self) -> Result<Option<(String, Secret)>, ServiceError> {
        Ok(None)
    }
}

/// What a registry said in `WWW-Authenticate`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    /// Reads the header; the scope in it is not used, since what will be asked for is known better here.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let field = |name: &str| {
            rest.match_indices(name).find_map(|(at, _)| {
                let before = rest[..at].chars().next_back();
                let value = rest[at + name.len()..].strip_prefix("=\"")?;
                before.is_none_or(|c| c == ',' || c == ' ').then(|| value.split('"').next().map(str::to_owned)).flatten()
            })
        };
        Some(Self::Bearer { realm: field("realm")?, service: field("service") })
    }
}

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    /// The older name; some services give both.
    access_token: Option<String>,
}

/// The way in, once it is known, and one header for each scope.
#[derive(Default)]
struct Known {
    challenge: Option<Challenge>,
    headers: HashMap<String, HeaderValue>,
}

/// Keeps a registry's authorizations.
pub(super) struct Auth {
    host: String,
    login: Box<dyn Login>,
    // Held while a token is fetched, so that ten blobs that are refused at once ask for one.
    known: Mutex<Known>,
}

impl Auth {
    pub(super) fn new(host: &str, login: Box<dyn Login>) -> Self {
        Self { host: host.to_owned(), login, known: Mutex::default() }
    }

    /// The header for a scope, as far as the way in is known already.
    pub(super) async fn header(&self, http: &Client, scope: &str) -> Result<Option<HeaderValue>, Trouble> {
        let mut known = self.known.lock().await;
        match known.challenge.clone() {
            Some(challenge) => self.fetch(http, scope, &challenge, &mut known).await,
            None => Ok(None),
        }
    }

    /// After a 401: learns the way in from the challenge and gets a new header, unless somebody else has just done so.
    /// `None`: there is no way in.
    pub(super) async fn renew(&self, http: &Client, scope: &str, refused: Option<&HeaderValue>, challenge: Option<Challenge>) -> Result<Option<HeaderValue>, Trouble> {
        let mut known = self.known.lock().await;
        if let Some(header) = known.headers.get(scope)
            && Some(header) != refused
        {
            return Ok(Some(header.clone()));
        }
        known.headers.remove(scope);
        let Some(challenge) = challenge.or_else(|| known.challenge.clone()) else { return Ok(None) };
        if challenge == Challenge::Basic {
            known.headers.clear();
        }
        known.challenge = Some(challenge.clone());
        self.fetch(http, scope, &challenge, &mut known).await
    }

    async fn fetch(&self, http: &Client, scope: &str, challenge: &Challenge, known: &mut Known) -> Result<Option<HeaderValue>, Trouble> {
        // A password is the same for all that is asked for; a token is for one scope.
        let key = if *challenge == Challenge::Basic { "" } else { scope };
        if let Some(header) = known.headers.get(key).or_else(|| known.headers.get(scope)) {
            return Ok(Some(header.clone()));
        }
        let credentials = self.login.credentials().await.map_err(|error| Trouble { error, again: false, after: None })?;
        let basic = credentials.map(|(user, password)| format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.reveal()))));
        let text = match challenge {
            Challenge::Basic => basic,
            Challenge::Bearer { realm, service } => Some(format!("Bearer {}", self.token(http, realm, service.as_deref(), scope, basic).await?)),
        };
        let Some(text) = text else { return Ok(None) };
        let mut header = HeaderValue::from_str(&text).map_err(|_| Trouble::lasting(&self.host, "GET token", "BadToken", "the token holds characters that no header may carry"))?;
        header.set_sensitive(true);
        known.headers.insert(scope.to_owned(), header.clone());
        known.headers.insert(key.to_owned(), header.clone());
        Ok(Some(header))
    }

    async fn token(&self, http: &Client, realm: &str, service: Option<&str>, scope: &str, basic: Option<String>) -> Result<String, Trouble> {
        const OPERATION: &str = "GET token";
        let mut url = reqwest::Url::parse(realm)
            .map_err(|e| Trouble::lasting(&self.host, OPERATION, "BadChallenge", format!("the registry names {realm:?} as its token service, which is no address: {e}")))?;
        if super::reference::origin(&self.host).starts_with("https") && url.scheme() != "https" {
            return Err(Trouble::lasting(&self.host, OPERATION, "BadChallenge", format!("the registry sends its users to {realm} without TLS")));
        }
        url.query_pairs_mut().extend_pairs(service.map(|service| ("service", service))).extend_pairs(scope.split(' ').map(|scope| ("scope", scope)));
        let mut request = http.get(url).timeout(super::client::ANSWER_LIMIT);
        if let Some(basic) = basic {
            request = request.header(AUTHORIZATION, basic);
        }
        let response = request.send().await.map_err(|e| Trouble::unanswered(&self.host, OPERATION, &e))?;
        if !response.status().is_success() {
            return Err(Trouble::answered(&self.host, OPERATION, response).await);
        }
        let body = response.text().await.map_err(|e| Trouble::unanswered(&self.host, OPERATION, &e))?;
        let answer: Option<Answer> = serde_json::from_str(&body).ok();
        answer
            .and_then(|answer| answer.token.or(answer.access_token))
            .ok_or_else(|| Trouble::lasting(&self.host, OPERATION, "BadToken", "the token service answered without a token"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let bearer = |realm: &str, service: Option<&str>| Some(Challenge::Bearer { realm: realm.into(), service: service.map(str::to_owned) });
        for (header, challenge) in [
            (
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#,
                bearer("https://auth.docker.io/token", Some("registry.docker.io")),
            ),
            (r#"bearer scope="x", realm="https://r/t""#, bearer("https://r/t", None)),
            (r#"Basic realm="https://1.dkr.ecr.us-east-2.amazonaws.com/",service="ecr.amazonaws.com""#, Some(Challenge::Basic)),
            ("Negotiate", None),
            (r#"Bearer service="x""#, None),
        ] {
            assert_eq!(Challenge::parse(header), challenge, "{header}");
        }
    }
}
