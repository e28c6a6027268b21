//! A client from endpoint, CA and a source of tokens that is asked again before a token ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, header};
use jiff::{SignedDuration, Timestamp};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::BoxError;
use tower::buffer::BufferLayer;
use tower::filter::{AsyncFilterLayer, AsyncPredicate};
use tower::timeout::TimeoutLayer;

use crate::error::ServiceError;
use crate::secret::Secret;

/// Until a connection to the API server stands.
const CONNECT: Duration = Duration::from_secs(10);
/// Until the head of an answer is there; what follows (logs, watches) may take as long as it likes.
const ANSWER: Duration = Duration::from_secs(60);
/// So long before its end a token is renewed.
const RENEW: SignedDuration = SignedDuration::from_mins(2);

/// Where an API server is and whom it must be signed by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// `https://…`
    pub url: String,
    /// PEM, base64 as EKS gives it.
    pub certificate_authority: String,
}

/// A token and until when it may be used.
#[derive(Debug, Clone)]
pub struct Bearer {
    pub token: Secret,
    pub expires: Timestamp,
}

/// Gives a fresh token. Called again some time before the last one ends.
pub type TokenSource = Arc<dyn Fn() -> BoxFuture<'static, Result<Bearer, ServiceError>> + Send + Sync>;

/// A client that signs in with tokens of `source`. Nothing is asked of the API server yet.
pub fn client(endpoint: &Endpoint, source: TokenSource, now: fn() -> Timestamp) -> Result<Client, ServiceError> {
    let wrong = |what: &str, why: String| ServiceError {
        service: "kubernetes".into(),
        operation: format!("client of {}", endpoint.url),
        code: "BadEndpoint".into(),
        message: format!("{what}: {why}"),
        request_id: None,
        status: None,
    };
    let url = endpoint.url.parse::<http::Uri>().map_err(|error| wrong("the endpoint is no address", error.to_string()))?;
    let pem = STANDARD.decode(endpoint.certificate_authority.trim()).map_err(|error| wrong("the certificate authority is not base64", error.to_string()))?;
    let certificates = certificates(&pem).map_err(|why| wrong("the certificate authority is not PEM", why))?;
    let mut config = Config::new(url);
    config.root_cert = Some(certificates);
    config.connect_timeout = Some(CONNECT);
    let stack = ClientBuilder::try_from(config).map_err(|error| wrong("no client", error.to_string()))?;
    // The filter wants a service that can be cloned; kube's own stack cannot, a buffer around it can.
    let sign_in = SignIn { source, now, last: Arc::default() };
    Ok(stack.with_layer(&BufferLayer::new(256)).with_layer(&TimeoutLayer::new(ANSWER)).with_layer(&AsyncFilterLayer::new(sign_in)).build())
}

/// The DER of every certificate in a PEM bundle.
fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let text = std::str::from_utf8(pem).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for block in text.split("-----BEGIN CERTIFICATE-----").skip(1) {
        let body: String = block.split("-----END CERTIFICATE-----").next().unwrap_or_default().split_whitespace().collect();
        found.push(STANDARD.decode(body).map_err(|error| error.to_string())?);
    }
    if found.is_empty() { Err("no certificate in it".into()) } else { Ok(found) }
}

/// Puts the token on each request, a renewed one when the last is about to end.
#[derive(Clone)]
struct SignIn {
    source: TokenSource,
    now: fn() -> Timestamp,
    last: Arc<tokio::sync::Mutex<Option<Bearer>>>,
}

impl AsyncPredicate<Request<Body>> for SignIn {
    type Future = BoxFuture<'static, Result<Request<Body>, BoxError>>;
    type Request = Request<Body>;

    fn check(&mut self, mut request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            // One request renews; the others wait for it.
            let mut last = this.last.lock().await;
            let bearer = match last.take().filter(|bearer| bearer.expires - RENEW > (this.now)()) {
                Some(bearer) => bearer,
                None => (this.source)().await?,
            };
            let mut value = HeaderValue::from_str(&format!("Bearer {}", bearer.token.reveal()))?;
            value.set_sensitive(true);
            *last = Some(bearer);
            request.headers_mut().insert(header::AUTHORIZATION, value);
            Ok(request)
        })
    }
}

/// The clients of a process: one for each API server and cluster name, so that connections and tokens are shared.
#[derive(Default)]
pub struct Clients(Mutex<BTreeMap<(Endpoint, String), Client>>);

impl Clients {
    /// The client of this cluster, made when it is first asked for.
    pub fn get_or_make(&self, endpoint: &Endpoint, cluster: &str, make: impl FnOnce() -> Result<Client, ServiceError>) -> Result<Client, ServiceError> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (endpoint.clone(), cluster.to_owned());
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = make()?;
        clients.insert(key, client.clone());
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    static NOW: AtomicI64 = AtomicI64::new(0);

    fn now() -> Timestamp {
        Timestamp::from_second(NOW.load(Ordering::SeqCst)).unwrap()
    }

    #[tokio::test]
    async fn renews_the_token_before_it_ends() {
        let made = Arc::new(AtomicI64::new(0));
        let counter = made.clone();
        let source: TokenSource = Arc::new(move || {
            let n = counter.fetch_add(1, Ordering::SeqCst) + 1;
            Box::pin(async move { Ok(Bearer { token: Secret::new(format!("t{n}")), expires: now() + SignedDuration::from_mins(14) }) })
        });
        let mut sign_in = SignIn { source, now, last: Arc::default() };
        for (second, token) in [(0, "Bearer t1"), (600, "Bearer t1"), (719, "Bearer t1"), (721, "Bearer t2"), (1400, "Bearer t2"), (1500, "Bearer t3")] {
            NOW.store(second, Ordering::SeqCst);
            let request = sign_in.check(Request::new(Body::empty())).await.unwrap();
            assert_eq!(request.headers()[header::AUTHORIZATION], token, "at {second} s");
        }
        assert_eq!(made.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_wrong_certificate_authority_is_said() {
        let source: TokenSource = Arc::new(|| Box::pin(async { Ok(Bearer { token: Secret::new("t"), expires: Timestamp::MAX }) }));
        for (ca, words) in [("%%%", "not base64"), ("bm90aGluZw==", "not PEM: no certificate in it")] {
            let endpoint = Endpoint { url: "https://127.0.0.1:1".into(), certificate_authority: ca.into() };
            let error = client(&endpoint, source.clone(), now).err().unwrap();
            assert!(error.message.contains(words), "{error}");
        }
    }
}
