//! The AWS emulator of `sandbox/aws` for tests that need no cluster: one process a test, on a port of its own, gone with the test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A running emulator.
pub(crate) struct Emulator {
    process: Child,
    pub(crate) endpoint: String,
    http: reqwest::Client,
    /// For state files; removed with it.
    pub(crate) folder: tempfile::TempDir,
}

fn sandbox() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/aws")
}

/// The emulator's Python environment: made once, then only named.
fn python() -> PathBuf {
    let output = Command::new(sandbox().join("setup.sh")).stderr(Stdio::inherit()).output().expect("sandbox/aws/setup.sh runs");
    assert!(output.status.success(), "sandbox/aws/setup.sh failed");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim()).join("bin/python")
}

impl Emulator {
    /// Starts it with AWS's latencies divided by `factor`, and ECR's data plane in front of `registry`, and waits until it answers.
    pub(crate) async fn start(factor: u32, registry: Option<&str>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let endpoint = format!("http://127.0.0.1:{port}");
        let mut command = Command::new(python());
        command.args(["-m", "sandbox_aws", "--host", "127.0.0.1", "--port", &port.to_string(), "--factor", &factor.to_string()]);
        if let Some(registry) = registry {
            command.args(["--registry", &format!("127.0.0.1:{port}"), "--registry-backend", &format!("http://{registry}")]);
        }
        let process = command.current_dir(sandbox()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the emulator starts");
        let emulator = Self { process, endpoint, http: reqwest::Client::new(), folder: tempfile::tempdir().expect("a folder") };
        let began = Instant::now();
        while emulator.http.get(format!("{}/_sandbox/health", emulator.endpoint)).send().await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "the emulator does not answer");
            nemo::engine::clock::sleep(Duration::from_millis(50)).await;
        }
        emulator
    }

    /// An SDK's settings for it.
    pub(crate) async fn sdk(&self) -> aws_config::SdkConfig {
        let keys = aws_credential_types::Credentials::new("AKIATESTTESTTESTTEST", "secret", None, None, "test");
        let region = aws_config::Region::new("us-east-2");
        aws_config::defaults(aws_config::BehaviorVersion::latest()).endpoint_url(&self.endpoint).region(region).credentials_provider(keys).load().await
    }

    /// One of its own paths: `_sandbox/…`.
    pub(crate) async fn ask(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
        let call = self.http.request(method, format!("{}/_sandbox/{path}", self.endpoint));
        let call = if let Some(body) = body { call.json(&body) } else { call };
        call.send().await.expect("the emulator answers").json().await.expect("JSON")
    }

    /// Adds a fault rule.
    pub(crate) async fn fault(&self, rule: Value) {
        let answer = self.ask(reqwest::Method::POST, "faults", Some(rule)).await;
        assert!(answer.get("ids").is_some(), "{answer}");
    }

    /// Takes all fault rules back and lets held replies go.
    pub(crate) async fn no_faults(&self) {
        self.ask(reqwest::Method::DELETE, "faults", None).await;
        self.ask(reqwest::Method::POST, "release", Some(json!({}))).await;
    }

    /// Writes that clients made since the start, by `service:Operation`. What stacks did themselves is not among them.
    pub(crate) async fn writes(&self) -> Writes {
        let answer = self.ask(reqwest::Method::GET, "calls?since=0&via=", None).await;
        Writes(answer["writes_by_operation"].as_object().map(|rows| rows.iter().map(|(k, v)| (k.clone(), v.as_u64().unwrap_or(0))).collect()).unwrap_or_default())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writing calls, counted at the server.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Writes(pub(crate) std::collections::BTreeMap<String, u64>);

impl Writes {
    pub(crate) fn of(&self, operation: &str) -> u64 {
        self.0.get(operation).copied().unwrap_or(0)
    }
}
