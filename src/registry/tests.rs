//! The client against a mock registry: sign-in, renewal, refusals, retries.

use serde_json::json;
use wiremock::matchers::{header, method, path, query_param};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::chart::tests::archive;
use super::manifest::{OCI_MANIFEST, digest_of};
use super::*;
use crate::error::Kind;

const MANIFEST: &str = r#"{"schemaVersion":2,"config":{"mediaType":"application/x","digest":"sha256:c","size":5},"layers":[{"mediaType":"l","digest":"sha256:l","size":37}]}"#;

fn found(body: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(body, OCI_MANIFEST)
}

fn reference(server: &MockServer, rest: &str) -> String {
    format!("{}/{rest}", server.uri().trim_start_matches("http://"))
}

async fn put(server: &MockServer, at: &str, answer: ResponseTemplate) {
    Mock::given(method("GET")).and(path(at)).respond_with(answer).mount(server).await;
}

async fn resolve(server: &MockServer, rest: &str) -> Result<Resolved, crate::error::ServiceError> {
    Upstream::resolve(&reqwest::Client::new(), &reference(server, rest)).await
}

#[tokio::test]
async fn a_token_is_fetched_once_and_renewed_when_it_is_refused() {
    let server = MockServer::start().await;
    let challenge = format!(r#"Bearer realm="{}/token",service="reg""#, server.uri());
    let refused = || ResponseTemplate::new(401).insert_header("WWW-Authenticate", challenge.as_str());
    put(&server, "/v2/a/b/manifests/1", refused()).await;
    // The first token has expired by the time it is used; the second is good.
    Mock::given(path("/token"))
        .and(query_param("scope", "repository:a/b:pull"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"token": "old"})))
        .up_to_n_times(1)
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(path("/token"))
        .and(query_param("service", "reg"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"access_token": "new", "token": "new"})))
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(path("/v2/a/b/manifests/1")).and(header("Authorization", "Bearer new")).respond_with(found(MANIFEST)).with_priority(1).mount(&server).await;
    Mock::given(path("/v2/a/b/manifests/2")).and(header("Authorization", "Bearer new")).respond_with(found(MANIFEST)).with_priority(1).expect(1).mount(&server).await;
    let registry = Registry::new(reqwest::Client::new(), server.uri().trim_start_matches("http://"), Box::new(Anonymous));
    // Refused with the old token: the next question brings a new one.
    assert_eq!(registry.manifest("a/b", "1", &client::silent).await.unwrap_err().status, Some(401));
    let manifest = registry.manifest("a/b", "1", &client::silent).await.unwrap().unwrap();
    assert_eq!(manifest.digest, digest_of(MANIFEST.as_bytes()));
    assert!(registry.manifest("a/b", "2", &client::silent).await.unwrap().is_some());
}

#[tokio::test]
async fn a_tag_is_resolved_to_digest_bytes_and_architectures() {
    let server = MockServer::start().await;
    let amd = digest_of(MANIFEST.as_bytes());
    let index = json!({"schemaVersion": 2, "manifests": [
        {"mediaType": OCI_MANIFEST, "digest": format!("sha256:{}", "1".repeat(64)), "size": 1, "platform": {"architecture": "arm64", "os": "linux"}},
        {"mediaType": OCI_MANIFEST, "digest": amd, "size": 1, "platform": {"architecture": "amd64", "os": "linux"}}]})
    .to_string();
    put(&server, "/v2/a/b/manifests/1", found(&index)).await;
    put(&server, &format!("/v2/a/b/manifests/{amd}"), found(MANIFEST)).await;
    let resolved = resolve(&server, "a/b:1").await.unwrap();
    assert_eq!((resolved.digest, resolved.bytes, resolved.architectures), (digest_of(index.as_bytes()), 42, vec!["arm64".to_owned(), "amd64".to_owned()]));
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let server = MockServer::start().await;
    let json = |status, code: &str| ResponseTemplate::new(status).set_body_json(json!({"errors": [{"code": code, "message": "because"}]}));
    put(&server, "/v2/a/missing/manifests/1", json(404, "MANIFEST_UNKNOWN")).await;
    put(&server, "/v2/a/private/manifests/1", json(401, "UNAUTHORIZED")).await;
    put(&server, "/v2/a/denied/manifests/1", json(403, "DENIED")).await;
    put(&server, "/v2/a/hotel/manifests/1", ResponseTemplate::new(200).set_body_raw("<html>Welcome", "text/html")).await;
    put(&server, "/v2/a/lost/manifests/1", ResponseTemplate::new(404).set_body_raw("<html>Not found", "text/html")).await;
    for (name, code, kind, word) in [
        ("missing", "MANIFEST_UNKNOWN", Kind::Remote, "there is no"),
        ("private", "UNAUTHORIZED", Kind::Credentials, "sign-in"),
        ("denied", "DENIED", Kind::Credentials, "refuses"),
        ("hotel", "NotAManifest", Kind::Remote, "HTML"),
        ("lost", "HTTP 404", Kind::Remote, "HTML"),
    ] {
        let error = resolve(&server, &format!("a/{name}:1")).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.kind()), (code, kind), "{error}");
        assert!(error.message.contains(word), "{error}");
    }
}

#[tokio::test]
async fn a_busy_registry_is_asked_again_and_the_listener_told() {
    let server = MockServer::start().await;
    Mock::given(path("/v2/a/b/manifests/1")).respond_with(ResponseTemplate::new(429).insert_header("Retry-After", "0")).up_to_n_times(2).mount(&server).await;
    put(&server, "/v2/a/b/manifests/1", found(MANIFEST)).await;
    let told = std::sync::Mutex::new(Vec::new());
    let registry = Registry::new(reqwest::Client::new(), server.uri().trim_start_matches("http://"), Box::new(Anonymous));
    let notice = |_: &str, why: &str, attempt: u32| told.lock().unwrap().push((why.contains("429"), attempt));
    assert!(registry.manifest("a/b", "1", &notice).await.unwrap().is_some());
    assert_eq!(*told.lock().unwrap(), [(true, 2), (true, 3)]);
}

#[tokio::test]
async fn bytes_that_are_not_what_was_asked_for_are_refused() {
    let server = MockServer::start().await;
    Mock::given(path("/v2/a/b/manifests/1"))
        .respond_with(|_: &Request| found(MANIFEST).insert_header("Docker-Content-Digest", format!("sha256:{}", "0".repeat(64)).as_str()).insert_header("Retry-After", "0"))
        .mount(&server)
        .await;
    put(&server, &format!("/v2/a/b/manifests/{}", digest_of(b"other")), found(MANIFEST)).await;
    let error = resolve(&server, &format!("a/b@{}", digest_of(b"other"))).await.unwrap_err();
    assert_eq!(error.code, "DigestMismatch");
}

#[tokio::test]
async fn a_chart_is_resolved_from_its_archive() {
    let server = MockServer::start().await;
    let bytes = archive("0.17.4");
    put(&server, "/stable/x-0.17.4.tgz", ResponseTemplate::new(200).set_body_bytes(bytes.clone())).await;
    let address = format!("{}/stable/x-0.17.4.tgz", server.uri());
    let http = reqwest::Client::new();
    let resolved = Upstream::resolve_chart(&http, &address).await.unwrap();
    assert_eq!(resolved, ResolvedChart { digest: digest_of(&bytes), version: "0.17.4".into(), bytes: bytes.len() as u64 });
    let artifact = Upstream::chart_archive(&http, &address, &resolved.digest).await.unwrap();
    assert_eq!(artifact.blobs[1].1, bytes);
    let error = Upstream::chart_archive(&http, &address, &digest_of(b"older")).await.unwrap_err();
    assert!(error.message.contains("changed since"), "{error}");
}
