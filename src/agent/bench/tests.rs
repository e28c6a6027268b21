//! The driver against programs that behave as aiperf was seen to: well, hanging, leaving children, failing; and against aiperf itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::*;
use crate::bench::plan::{Limits, Load, Served};

/// A shared volume with weights and an installed aiperf, and a Python that is this shell script instead.
struct World {
    folder: tempfile::TempDir,
    said: Mutex<Vec<Said>>,
}

impl World {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("weights")).unwrap();
        fs::write(at("weights/tokenizer.json"), "{}").unwrap();
        fs::create_dir(at("aiperf-0.13.0")).unwrap();
        let lock = include_bytes!("../../../configs/aiperf-0.13.0.lock");
        let sum: String = <sha2::Sha256 as sha2::Digest>::digest(lock).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(at("aiperf-0.13.0/.complete"), sum).unwrap();
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/aiperf/0.13.0");
        fs::write(
            at("python3"),
            format!("#!/bin/bash\nworld={}\nrecorded={}\nrecord=$(tail -1 $recorded/profile_export.jsonl)\n{script}\n", folder.path().display(), recorded.display()),
        )
        .unwrap();
        fs::set_permissions(at("python3"), fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, said: Mutex::default() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plan(&self) -> Plan {
        Plan {
            run: "abc".into(),
            url: "http://127.0.0.1:1".into(),
            model: "m".into(),
            tokenizer: self.at("weights"),
            shared: self.folder.path().to_owned(),
            load: Load { concurrency: 8, requests: 48, warmup: 4, isl: 200, osl: 48, seed: 42 },
            limits: Limits { stall_s: 2, model_s: 1, stop_s: 1, attempts: 2, ..Limits::default() },
            gpu_telemetry: vec![],
            served: Served { digest: "d".into(), ..Served::default() },
        }
    }

    async fn run(&self, stop: CancellationToken) -> anyhow::Result<RunResult> {
        let say = |said: &Said| self.said.lock().unwrap().push(said.clone());
        Driver { plan: &self.plan(), python: &self.at("python3"), stop, say: &say }.run().await
    }

    fn notes(&self) -> String {
        self.said.lock().unwrap().iter().filter_map(|said| if let Said::Note { text } = said { Some(format!("{text}\n")) } else { None }).collect()
    }
}

/// Is any process left whose command line names this folder's child?
fn alive(pid_file: &Path) -> bool {
    let pid = fs::read_to_string(pid_file).unwrap();
    fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_run_is_kept_and_not_made_twice() {
    // The recorded run is older than the launch, and that is the one thing wrong with it.
    let world = World::new("echo started >> $world/starts; env > env; cp $recorded/* .");
    let result = world.run(CancellationToken::new()).await.unwrap();
    assert_eq!(result.attempts.len(), 2, "not valid: tried once more");
    for attempt in &result.attempts {
        let failed: Vec<_> = attempt.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect();
        assert_eq!((attempt.end.as_str(), failed), ("exit code 0", vec!["fresh"]));
        assert_eq!(attempt.numbers.as_ref().unwrap().answered, 48);
    }
    assert_eq!((result.folder.as_str(), result.served.digest.as_str()), ("runs/abc", "d"));
    let last = world.said.lock().unwrap().last().cloned();
    let line = serde_json::to_string(&last.unwrap()).unwrap();
    let read = Said::result_in(&format!("python: noise\n{line}\n")).unwrap();
    assert_eq!((&read.served, read.to_string()), (&result.served, result.to_string()));
    let env = fs::read_to_string(world.at("runs/abc/attempt-1/env")).unwrap();
    assert!(env.contains(&format!("PYTHONPATH={}", world.at("aiperf-0.13.0").display())) && !env.contains("OFFLINE"));

    // Another pod: what was not valid is made again in folders of its own, what is valid is not.
    let again = world.run(CancellationToken::new()).await.unwrap();
    assert_eq!(again.attempts.iter().map(|attempt| attempt.folder.as_str()).collect::<Vec<_>>(), ["attempt-3", "attempt-4"]);
    let mut valid = again;
    valid.attempts[1].checks.iter_mut().for_each(|check| check.passed = true);
    write(&world.at("runs/abc/result.json"), &valid).unwrap();
    assert_eq!(world.run(CancellationToken::new()).await.unwrap().to_string(), valid.to_string());
    assert_eq!(fs::read_to_string(world.at("starts")).unwrap().lines().count(), 4);
}

#[tokio::test]
async fn a_run_without_new_records_is_ended_with_all_its_children() {
    let world = World::new(
        "trap '' INT; (trap '' INT TERM; exec sleep 300) & echo $! > $world/child; echo $$ > $world/main
         echo \"$record\" > profile_export.jsonl; while :; do sleep 300 & wait $!; done",
    );
    let began = Instant::now();
    let result = world.run(CancellationToken::new()).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(result.attempts.iter().map(|attempt| attempt.end.as_str()).collect::<Vec<_>>(), ["stopped after 2 s without a new record"; 2]);
    assert!(result.numbers().is_none() && result.attempts[1].objections()[0].contains("profile_export_aiperf.json is not there"));
    assert!(!alive(&world.at("child")) && !alive(&world.at("main")));
    assert!(world.said.lock().unwrap().contains(&Said::Progress { what: "requests".into(), done: 1, total: 48 }));
}

#[tokio::test]
async fn told_to_end_it_interrupts_aiperf_and_keeps_what_there_is() {
    let world = World::new("trap 'cp $recorded/* .; exit 0' INT; echo \"$record\" > profile_export.jsonl; while :; do sleep 0.1; done");
    let stop = CancellationToken::new();
    let (world, stopping) = (&world, stop.clone());
    let stopper = async move {
        while !world.said.lock().unwrap().iter().any(|said| matches!(said, Said::Progress { .. })) {
            clock_tick().await;
        }
        stopping.cancel();
    };
    let (result, ()) = tokio::join!(world.run(stop), stopper);
    let error = result.unwrap_err();
    assert_eq!(crate::error::Failure::of(None, &error).kind, Kind::Interrupted);
    assert!(world.notes().contains("attempt-1 ended (stopped, since the pod was told to end)"), "{}", world.notes());
    assert!(world.at("runs/abc/attempt-1/profile_export_aiperf.json").is_file());
    assert!(!world.at("runs/abc/result.json").exists(), "what was cut short is no result");
}

async fn clock_tick() {
    crate::engine::clock::sleep(Duration::from_millis(20)).await;
}

#[tokio::test]
async fn a_plan_that_is_none_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    fs::write(&file, "{\n \"run\": 1\n}").unwrap();
    let error = run(&file, &|_| ()).await.unwrap_err().to_string();
    assert!(error.contains("plan.json, line 2: not a plan of a benchmark: invalid type"), "{error}");
}
