//! `nemo agent fetch` against the sandbox's hub, on loopback: faults on the way, kill -9, several workers, refusals.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nemo::agent::fetch::{FetchPlan, PlanFile, ReadBack, ReadRate, Said};
use nemo::hub::Hub;
use nemo::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

/// A megabyte: pieces of the tests' files.
const MB: u64 = 1 << 20;

/// A running hub of `sandbox/hub`, gone with the test.
struct SandboxHub {
    process: Child,
    endpoint: String,
    http: reqwest::Client,
    folder: tempfile::TempDir,
}

impl Drop for SandboxHub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port()
}

impl SandboxHub {
    async fn start() -> Self {
        let sandbox = Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/hub");
        let made = Command::new(sandbox.join("setup.sh")).stderr(Stdio::inherit()).output().unwrap();
        assert!(made.status.success(), "sandbox/hub/setup.sh failed; run scripts/setup");
        let python = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim()).join("bin/python");
        let folder = tempfile::tempdir().unwrap();
        // Digests of the contents are the same for all: kept where the next test finds them.
        let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hub-digests");
        let (port, cdn) = (free_port(), free_port());
        let process = Command::new(python)
            .args(["-m", "hub", "--host", "127.0.0.1", "--port", &port.to_string(), "--cdn-port", &cdn.to_string(), "--state"])
            .arg(state)
            .current_dir(&sandbox)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let hub = Self { process, endpoint: format!("http://127.0.0.1:{port}"), http: reqwest::Client::new(), folder };
        let began = Instant::now();
        while hub.http.get(format!("{}/_sandbox/settings", hub.endpoint)).send().await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "the hub does not answer");
            nemo::engine::clock::sleep(Duration::from_millis(50)).await;
        }
        hub
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.http.request(method, format!("{}/_sandbox/{path}", self.endpoint)).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
        answer.json().await.unwrap()
    }

    async fn fault(&self, fault: Value) {
        self.ask(Method::POST, "faults", fault).await;
    }

    /// Every file of a repository, as the check would pin it.
    async fn plan(&self, repository: &str, workers: u32) -> FetchPlan {
        let hub = Hub::new(self.http.clone(), &self.endpoint, Some(Secret::new("hf_sandbox_member")));
        let commit = hub.commit(repository, "main").await.unwrap();
        let files = hub.files(repository, &commit.sha).await.unwrap();
        let files = files.into_iter().map(|file| PlanFile { path: file.path, size: file.size, sha256: file.sha256, git_blob: file.git_blob }).collect();
        FetchPlan {
            endpoint: self.endpoint.clone(),
            repository: repository.into(),
            folder: format!("models/{repository}/{}", commit.sha),
            revision: commit.sha,
            workers,
            connections: 4,
            stall_s: 1,
            piece: 4 * MB,
            read_back: ReadBack { streams: 4, at_least: 16 * MB, at_most: 32 * MB },
            files,
        }
    }

    /// An agent that is about to start.
    fn agent(&self, plan: &FetchPlan, index: u32, token: &str) -> Command {
        let file = self.folder.path().join(format!("plan-{index}.json"));
        std::fs::write(&file, serde_json::to_string(plan).unwrap()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nemo"));
        command.args(["agent", "fetch", "--plan"]).arg(file).arg("--root").arg(self.root()).arg("--index").arg(index.to_string());
        command.env_remove("JOB_COMPLETION_INDEX").env("HF_TOKEN", token).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("volume")
    }

    /// Bytes that were sent of a repository, by file: size, sent twice.
    async fn sent(&self, repository: &str) -> BTreeMap<String, (u64, u64)> {
        let all = self.http.get(format!("{}/_sandbox/bytes?repo={repository}", self.endpoint)).send().await.unwrap().json::<Value>().await.unwrap();
        let files = all["files"].as_object().cloned().unwrap_or_else(|| panic!("{all}"));
        files.into_iter().map(|(path, file)| (path, (file["size"].as_u64().unwrap(), file["bytes_repeated"].as_u64().unwrap()))).collect()
    }
}

fn said(output: &Output) -> Vec<Said> {
    String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn assert_done(output: &Output) {
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

/// Every file is there under its name, with the hash that the hub lists, and nothing half-made beside it.
fn assert_whole(hub: &SandboxHub, plan: &FetchPlan) {
    let folder = hub.root().join(&plan.folder);
    for file in &plan.files {
        let path = folder.join(&file.path);
        let (program, wanted) = match &file.sha256 {
            Some(sha256) => (vec!["sha256sum"], sha256),
            None => (vec!["git", "hash-object", "--no-filters"], file.git_blob.as_ref().unwrap()),
        };
        let hashed = Command::new(program[0]).args(&program[1..]).arg(&path).output().unwrap();
        assert!(String::from_utf8_lossy(&hashed.stdout).starts_with(wanted.as_str()), "{}: {hashed:?}", file.path);
        assert!(!path.with_added_extension("part").exists() && !path.with_added_extension("part.journal").exists());
    }
}

fn is_complete(hub: &SandboxHub, plan: &FetchPlan) -> bool {
    hub.root().join(&plan.folder).join(".nemo-manifest.json").is_file()
}

/// Alone, so that no other fault takes away the answer that holds the wrong bytes.
#[tokio::test]
async fn wrong_bytes_are_told_by_their_hash_and_fetched_again() {
    let hub = SandboxHub::start().await;
    let plan = hub.plan("sandbox/medium-model", 1).await;
    hub.fault(json!({"kind": "wrong_bytes", "origin": "cdn", "path": "*00004*", "after_bytes": 1000})).await;
    let output = hub.agent(&plan, 0, "hf_sandbox_member").output().unwrap();
    assert_done(&output);
    assert_whole(&hub, &plan);
    let said = said(&output);
    assert!(said.iter().any(|said| matches!(said, Said::Retrying { what, why, .. } if what.contains("00004") && why.contains("hash"))), "{said:?}");
}

#[tokio::test]
async fn every_fault_of_the_way_is_survived_and_no_token_leaves_the_hub() {
    let hub = SandboxHub::start().await;
    let plan = hub.plan("sandbox/medium-model", 1).await;
    for fault in [
        json!({"kind": "stall", "origin": "cdn", "after_bytes": 1_000_000, "skip": 2}),
        json!({"kind": "close_early", "origin": "cdn", "after_bytes": 3_000_000, "skip": 4, "times": 3}),
        json!({"kind": "truncate", "origin": "cdn", "length": 1000, "skip": 9}),
        json!({"kind": "ignore_range", "origin": "cdn", "skip": 12}),
        json!({"kind": "expired_url", "origin": "hub", "path": "*00002*"}),
        json!({"kind": "status", "status": 429, "seconds": 1, "origin": "hub", "skip": 1}),
        json!({"kind": "status", "status": 503, "origin": "cdn", "skip": 20, "times": 2}),
        json!({"kind": "reset", "origin": "cdn", "skip": 25, "times": 2}),
        json!({"kind": "redirect_loop", "origin": "hub", "path": "*00003*", "times": 12}),
    ] {
        hub.fault(fault).await;
    }
    let output = hub.agent(&plan, 0, "hf_sandbox_member").output().unwrap();
    assert_done(&output);
    assert_whole(&hub, &plan);
    assert!(is_complete(&hub, &plan));
    let faults = hub.ask(Method::GET, "faults", json!(null)).await;
    let missed: Vec<_> = faults.as_array().unwrap().iter().filter(|fault| fault["hits"] == 0).collect();
    assert!(missed.is_empty(), "faults that nothing met: {missed:?}");
    let said = said(&output);
    let retried = |words: &str| said.iter().any(|said| matches!(said, Said::Retrying { why, .. } if why.contains(words)));
    for words in ["no byte came for 1 s", "429", "circle"] {
        assert!(retried(words), "{words}: {said:?}");
    }
    let requests = hub.ask(Method::GET, "requests", json!(null)).await;
    let (mut asked, mut given) = (0, 0);
    for request in requests.as_array().unwrap() {
        let token = request["token"].as_bool().unwrap_or_else(|| panic!("{request}"));
        match request["origin"].as_str().unwrap_or_else(|| panic!("{request}")) {
            "cdn" => {
                given += 1;
                assert!(!token, "{request}");
            }
            _ => asked += u32::from(token),
        }
    }
    assert!(asked > 0 && given > 0, "{requests}");
    // Told once more, it reads its notes and asks the hub for nothing.
    hub.ask(Method::DELETE, "bytes", json!(null)).await;
    assert_done(&hub.agent(&plan, 0, "hf_sandbox_member").output().unwrap());
    assert!(hub.sent("sandbox/medium-model").await.is_empty());
}

#[tokio::test]
async fn killed_in_the_middle_it_goes_on_and_fetches_little_twice() {
    let hub = SandboxHub::start().await;
    let plan = hub.plan("sandbox/medium-model", 1).await;
    let total: u64 = plan.files.iter().map(|file| file.size).sum();
    hub.ask(Method::PUT, "settings", json!({"total_rate": 24_000_000})).await;
    let mut agent = hub.agent(&plan, 0, "hf_sandbox_member").spawn().unwrap();
    for line in BufReader::new(agent.stdout.take().unwrap()).lines() {
        if let Ok(Said::Progress { done, .. }) = serde_json::from_str(&line.unwrap())
            && done > total / 2
        {
            break;
        }
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(!is_complete(&hub, &plan));
    hub.ask(Method::PUT, "settings", json!({"total_rate": 0})).await;
    let output = hub.agent(&plan, 0, "hf_sandbox_member").output().unwrap();
    assert_done(&output);
    assert_whole(&hub, &plan);
    assert!(matches!(said(&output).first(), Some(Said::Progress { .. })));
    let repeated: u64 = hub.sent("sandbox/medium-model").await.values().map(|(_, repeated)| repeated).sum();
    // At most what lay between two notes, the pieces in flight, and what the hub had already put into sockets.
    assert!(repeated < total / 3, "{repeated} of {total} bytes came twice");
}

#[tokio::test]
async fn several_workers_share_the_files_and_the_last_one_writes_the_manifest() {
    let hub = SandboxHub::start().await;
    let plan = hub.plan("sandbox/medium-model", 2).await;
    let first = hub.agent(&plan, 0, "hf_sandbox_member").output().unwrap();
    assert_done(&first);
    assert!(!is_complete(&hub, &plan), "half of the files is not all");
    let second = hub.agent(&plan, 1, "hf_sandbox_member").output().unwrap();
    assert_done(&second);
    assert!(matches!(said(&second).last(), Some(Said::Done { complete: true, .. })));
    assert!(is_complete(&hub, &plan));
    assert_whole(&hub, &plan);
    assert!(hub.sent("sandbox/medium-model").await.values().all(|(_, repeated)| *repeated == 0));
    // A file that was changed since is seen, fetched anew and checked.
    let victim = hub.root().join(&plan.folder).join(&plan.share(0).unwrap()[0].path);
    let mut bytes = std::fs::read(&victim).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&victim, bytes).unwrap();
    assert_done(&hub.agent(&plan, 0, "hf_sandbox_member").output().unwrap());
    assert_whole(&hub, &plan);
}

/// What the agent said about the read rate.
fn rates(output: &Output) -> Vec<ReadRate> {
    said(output).into_iter().filter_map(|said| if let Said::Read(rate) = said { Some(rate) } else { None }).collect()
}

#[tokio::test]
async fn the_read_rate_is_measured_once_by_whoever_ends_last_and_moves_only_with_the_files() {
    let hub = SandboxHub::start().await;
    let mut plan = hub.plan("sandbox/medium-model", 2).await;
    let first = hub.agent(&plan, 0, "hf_sandbox_member").output().unwrap();
    assert_done(&first);
    assert_eq!(rates(&first), [], "others may still write");
    let second = hub.agent(&plan, 1, "hf_sandbox_member").output().unwrap();
    assert_done(&second);
    let measured = rates(&second);
    assert!(matches!(measured.as_slice(), [ReadRate { mb_s: 1.., streams: 4, on }] if on.starts_with("20")), "{measured:?}");
    // Told again, every worker says the same: what serves is made from it.
    for index in [0, 1] {
        assert_eq!(rates(&hub.agent(&plan, index, "hf_sandbox_member").output().unwrap()), measured);
    }
    // Too small to tell: caches would be measured.
    std::fs::remove_file(hub.root().join(&plan.folder).join(".nemo-read-rate.json")).unwrap();
    plan.read_back = ReadBack::by(4);
    let output = hub.agent(&plan, 0, "hf_sandbox_member").output().unwrap();
    assert_done(&output);
    assert_eq!(rates(&output), []);
}

#[tokio::test]
async fn what_no_other_try_will_help_ends_at_once_with_the_reason() {
    let hub = SandboxHub::start().await;
    let gated = hub.plan("sandbox/gated-model", 1).await;
    let mut wrong = hub.plan("sandbox/tiny-model", 1).await;
    wrong.files.truncate(1);
    let mut missing = wrong.clone();
    missing.files[0].path = "no-such-file".into();
    let mut huge = wrong.clone();
    huge.files[0].size = 1 << 60;
    let mut outside = wrong.clone();
    outside.files[0].path = "../outside".into();
    wrong.files[0].git_blob = Some("0".repeat(40));
    wrong.files[0].sha256 = None;
    for (plan, token, code, words) in [
        (&gated, "hf_sandbox_reader", 11, "ask for access"),
        (&gated, "hf_no_such_token", 11, "HF_TOKEN"),
        (&missing, "hf_sandbox_member", 16, "gone"),
        (&wrong, "hf_sandbox_member", 16, "never hashed"),
        (&huge, "hf_sandbox_member", 12, "capacity_gib"),
        (&outside, "hf_sandbox_member", 10, "outside"),
    ] {
        let output = hub.agent(plan, 0, token).output().unwrap();
        let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{words}: {shown}");
        assert!(shown.contains(words), "{words}: {shown}");
        assert!(!shown.contains(token), "a secret was shown: {shown}");
    }
}
