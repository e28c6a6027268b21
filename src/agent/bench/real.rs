//! The driver with the real aiperf, which `sandbox/aiperf/setup.sh` installs, against a small server on loopback.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::mock_openai::{Manner, Server, tokenizer};
use super::*;
use crate::bench::plan::{Limits, Load, Served};

/// aiperf is a dozen processes: one at a time.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const GOOD: Manner = Manner { ttft: Duration::from_millis(60), itl: Duration::from_millis(8), in_one_piece: false, hangs_from: usize::MAX };

struct Shared(tempfile::TempDir);

impl Shared {
    fn new() -> Self {
        let lock = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/aiperf-0.13.0.lock")).unwrap();
        let sum: String = Sha256::digest(lock).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache");
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
        let installed = cache.join("nemo/aiperf").join(sum).join("installed");
        assert!(installed.join(".complete").is_file(), "{} is not there: run sandbox/aiperf/setup.sh", installed.display());
        let shared = tempfile::tempdir().unwrap();
        symlink(installed, shared.path().join("aiperf-0.13.0")).unwrap();
        fs::create_dir(shared.path().join("weights")).unwrap();
        let (tokenizer, config) = tokenizer();
        fs::write(shared.path().join("weights/tokenizer.json"), tokenizer).unwrap();
        fs::write(shared.path().join("weights/tokenizer_config.json"), config).unwrap();
        Self(shared)
    }

    fn plan(&self, server: &Server, limits: Limits) -> Plan {
        Plan {
            run: "real".into(),
            url: format!("http://{}", server.address),
            model: "m".into(),
            tokenizer: self.0.path().join("weights"),
            shared: self.0.path().to_owned(),
            load: Load { concurrency: 3, requests: 15, warmup: 4, isl: 60, osl: 20, seed: 42 },
            limits: Limits { attempts: 1, ..limits },
            gpu_telemetry: vec![],
            served: Served::default(),
        }
    }

    async fn run(&self, plan: &Plan, said: &Mutex<Vec<Said>>, stop: CancellationToken) -> anyhow::Result<RunResult> {
        let say = |line: &Said| said.lock().unwrap().push(line.clone());
        Driver { plan, python: Path::new("/usr/bin/python3.11"), stop, say: &say }.run().await
    }

    /// Processes that still work in a folder of this volume.
    fn left(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path().join("cwd")).ok());
        folders.filter(|cwd| cwd.starts_with(self.0.path())).collect()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.0.path().join("runs/real/attempt-1/aiperf-output.log")).unwrap_or_default()
    }
}

#[tokio::test]
async fn a_run_of_the_real_aiperf_is_valid_and_true() {
    let _one = ONE.lock().await;
    let (server, shared, said) = (Server::start(GOOD).await, Shared::new(), Mutex::default());
    let result = shared.run(&shared.plan(&server, Limits::default()), &said, CancellationToken::new()).await.unwrap();
    let attempt = result.last().unwrap();
    assert_eq!((attempt.end.as_str(), attempt.objections()), ("exit code 0", vec![]), "{}", shared.log());
    let numbers = result.numbers().unwrap();
    let (ttft, itl) = (numbers.ttft_ms.clone().unwrap(), numbers.itl_ms.clone().unwrap());
    // What the server does is the floor; the rest is this machine.
    assert!(ttft.min >= 60.0 && ttft.p50 < 400.0, "{ttft:?}");
    assert!(itl.min >= 8.0 && itl.p50 < 60.0, "{itl:?}");
    assert_eq!((numbers.answered, numbers.output_tokens.clone().unwrap().p50, attempt.aiperf_version.as_str()), (15, 20.0, "0.13.0"));
    assert_eq!(shared.left(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn answers_in_one_piece_are_found_out() {
    let _one = ONE.lock().await;
    let (server, shared) = (Server::start(Manner { in_one_piece: true, ..GOOD }).await, Shared::new());
    let result = shared.run(&shared.plan(&server, Limits::default()), &Mutex::default(), CancellationToken::new()).await.unwrap();
    let attempt = result.last().unwrap();
    assert_eq!(attempt.end, "exit code 0");
    assert!(attempt.objections().iter().any(|objection| objection.starts_with("streaming: ")), "{:?}", attempt.objections());
    assert!(result.numbers().is_none());
}

#[tokio::test]
async fn a_server_that_stops_answering_ends_the_run_and_keeps_the_records() {
    let _one = ONE.lock().await;
    let (server, shared) = (Server::start(Manner { hangs_from: 10, ..GOOD }).await, Shared::new());
    let plan = shared.plan(&server, Limits { stall_s: 4, model_s: 60, ..Limits::default() });
    let result = shared.run(&plan, &Mutex::default(), CancellationToken::new()).await.unwrap();
    let attempt = result.last().unwrap();
    assert_eq!(attempt.end, "stopped after 4 s without a new record", "{}", shared.log());
    // Interrupted and not killed, it wrote its summary.
    let objections = attempt.objections().join("; ");
    assert!(objections.contains("not-cancelled: was_cancelled true") && objections.contains("count: 6 answered and 0 failed of 15 asked"), "{objections}");
    assert_eq!(shared.left(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_pod_that_is_told_to_end_leaves_no_load_behind() {
    let _one = ONE.lock().await;
    let (server, shared, said) = (Server::start(Manner { hangs_from: 10, ..GOOD }).await, Shared::new(), Mutex::<Vec<Said>>::default());
    let stop = CancellationToken::new();
    let (plan, stopping) = (shared.plan(&server, Limits::default()), stop.clone());
    let (said, shared) = (&said, &shared);
    let stopper = async move {
        while !said.lock().unwrap().iter().any(|said| matches!(said, Said::Progress { done, .. } if *done > 0)) {
            crate::engine::clock::sleep(Duration::from_millis(50)).await;
        }
        stopping.cancel();
    };
    let (result, ()) = tokio::join!(shared.run(&plan, said, stop), stopper);
    assert_eq!(crate::error::Failure::of(None, &result.unwrap_err()).kind, Kind::Interrupted);
    assert_eq!(shared.left(), Vec::<PathBuf>::new());
    assert!(shared.0.path().join("runs/real/attempt-1/profile_export_aiperf.json").is_file(), "{}", shared.log());
}
