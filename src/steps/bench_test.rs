//! The step `bench` through the engine, against an API server that keeps what it is sent: the cases of "Idempotence is a test".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Deps;
use super::bench::Bench;
use super::facts::{BenchFacts, ClusterFacts, ImagesFacts, ServeFacts, StorageFacts, Stored, TestFacts, WeightsFacts};
use super::test::Test;
use crate::aws::Aws;
use crate::bench::plan::Plan as BenchPlan;
use crate::bench::result::{Attempt, RunResult};
use crate::bench::said::Said;
use crate::bench::stats::{Distribution, Numbers};
use crate::bench::validity::check;
use crate::config::{self, Pins};
use crate::engine::clock;
use crate::engine::event::Events;
use crate::engine::state::{Place, Record, State, Status};
use crate::engine::step::{Digest, Step, StepId, table_of};
use crate::engine::walk::Walk;
use crate::error::{Failure, Kind};
use crate::k8s;

/// What the Job's pod does as soon as the Job is made.
#[derive(Clone, Copy, PartialEq)]
enum Pod {
    EndsWell,
    EndsNotValid,
    IsGone,
    Fails,
}

/// An API server: objects by path, logs of the pods, every write in order.
#[derive(Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    log: String,
    writes: Vec<String>,
}

const JOBS: &str = "/apis/batch/v1/namespaces/nemo/jobs";
const WORKER: &str = "/apis/apps/v1/namespaces/nemo/deployments/vllm-worker";

impl Server {
    fn answer(&mut self, method: &str, path: &str, query: &str, body: &[u8], pod: Pod) -> (u16, Vec<u8>) {
        let found = |value: &Value| (200, value.to_string().into_bytes());
        if method != "GET" {
            self.writes.push(format!("{method} {path}"));
        }
        match method {
            "GET" if path.ends_with("/log") => (200, self.log.clone().into_bytes()),
            "GET" => match self.objects.get(path) {
                Some(object) => found(object),
                None if path.rsplit('/').next().is_some_and(|last| last.ends_with('s')) => found(&self.list(path, query)),
                None => missing(),
            },
            "PATCH" => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                if path.starts_with(JOBS) {
                    self.run_job(&mut object, pod);
                }
                self.objects.insert(path.to_owned(), object.clone());
                found(&object)
            }
            _ => match self.objects.remove(path) {
                Some(object) => found(&object),
                None => missing(),
            },
        }
    }

    /// Lists of one namespace and of all are the same here: there is one.
    fn list(&self, path: &str, query: &str) -> Value {
        let kind = path.rsplit('/').next().unwrap();
        let selector = query.split('&').find_map(|part| part.strip_prefix("labelSelector=")).unwrap_or_default().replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
        let matches = |object: &Value| {
            selector.split(',').filter(|pair| !pair.is_empty()).all(|pair| {
                let (key, value) = pair.split_once('=').unwrap();
                object["metadata"]["labels"][key] == value
            })
        };
        let items: Vec<&Value> = self.objects.iter().filter(|(at, object)| at.contains(&format!("/{kind}/")) && matches(object)).map(|(_, object)| object).collect();
        json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
    }

    /// The Job controller, the pod and its log in one.
    fn run_job(&mut self, job: &mut Value, pod: Pod) {
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/job-name": name}});
        let condition = if pod == Pod::Fails { "Failed" } else { "Complete" };
        job["status"] = json!({"conditions": [{"type": condition, "status": "True", "message": "backoff limit"}]});
        if matches!(pod, Pod::EndsWell | Pod::EndsNotValid) {
            let plan = &self.objects[&format!("/api/v1/namespaces/nemo/configmaps/{name}")]["data"]["plan.json"];
            let plan: BenchPlan = serde_json::from_str(plan.as_str().unwrap()).unwrap();
            self.log = serde_json::to_string(&Said::Result { result: Box::new(result(&plan, pod == Pod::EndsWell)) }).unwrap();
            let labels = json!({"batch.kubernetes.io/job-name": name});
            let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bench-pod", "labels": labels}, "status": {"phase": "Succeeded"}});
            self.objects.insert("/api/v1/namespaces/nemo/pods/bench-pod".into(), object);
        }
    }
}

fn missing() -> (u16, Vec<u8>) {
    (404, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}).to_string().into_bytes())
}

fn result(plan: &BenchPlan, valid: bool) -> RunResult {
    let some = || Distribution::of([1.5, 2.5]);
    let numbers = Numbers {
        answered: u64::from(plan.load.requests),
        failed: 0,
        cancelled: 0,
        short: 0,
        streamed: true,
        ttft_ms: some(),
        ttft_ms_after_first_wave: None,
        first_answer_ms: None,
        itl_ms: some(),
        latency_ms: None,
        input_tokens: None,
        output_tokens: None,
        client_delay_ms: None,
        in_flight: 8,
        seconds: 1.0,
        output_tokens_per_second: 100.0,
        requests_per_second: 10.0,
        stalled: None,
    };
    let checks = vec![check("errors", valid, "9 of 80 requests failed")];
    let attempt = Attempt {
        folder: "attempt-1".into(),
        started: clock::now(),
        ended: clock::now(),
        end: "exit code 0".into(),
        aiperf_version: "0.13.0".into(),
        numbers: Some(numbers),
        checks,
    };
    RunResult { run: plan.run.clone(), folder: format!("runs/{}", plan.run), load: plan.load, served: plan.served.clone(), attempts: vec![attempt] }
}

/// A deployment whose endpoint serves, and its notes.
struct World {
    server: Arc<Mutex<Server>>,
    folder: tempfile::TempDir,
    state: State,
    requests: u32,
}

impl World {
    fn new() -> Self {
        let worker = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "vllm-worker", "namespace": "nemo", "annotations": {"nemo.dev/inputs": "a"},
                "labels": {"app.kubernetes.io/managed-by": "nemo", "nemo.dev/deployment": "nemo", "nemo.dev/step": "serve"}},
            "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [{"name": "worker", "image": "i@sha256:1", "args": ["--model", "m"]}]}}}});
        let server = Server { objects: BTreeMap::from([(WORKER.to_owned(), worker)]), ..Server::default() };
        let mut state = State::new("nemo", "123456789012", "us-east-2");
        let stored = |part: &str| (part.to_owned(), Stored { uri: format!("e/{part}"), tag: "t".into(), digest: "sha256:1".into() });
        let notes = [
            (StepId::Cluster, table_of(&cluster()).unwrap()),
            (StepId::Images, table_of(&ImagesFacts { stored: BTreeMap::from([stored("agent"), stored("vllm-runtime")]) }).unwrap()),
            (StepId::Storage, table_of(&StorageFacts { namespace: "nemo".into(), claim: "shared".into(), volume: "v".into() }).unwrap()),
            (
                StepId::Weights,
                table_of(&WeightsFacts { path: "models/m/1".into(), revision: "1".into(), files: 1, bytes: 1, read: crate::agent::fetch::ReadRate::default() }).unwrap(),
            ),
            (StepId::Serve, table_of(&ServeFacts { namespace: "nemo".into(), service: "frontend".into(), port: 8000, model: "m".into(), exposed: Vec::new() }).unwrap()),
            (StepId::Test, toml::Table::new()),
        ];
        for (step, facts) in notes {
            let record = Record { status: Status::Done, inputs: Digest("x".into()), started: clock::now(), finished: None, parts: vec![], facts };
            state.steps.insert(step, record);
        }
        Self { server: Arc::new(Mutex::new(server)), folder: tempfile::tempdir().unwrap(), state, requests: 80 }
    }

    fn deps(&self, pod: Pod) -> Arc<Deps> {
        let inputs = config::Inputs {
            working_folder: self.folder.path().to_owned(),
            file: None,
            env: vec![],
            flags: [("region", "us-east-2".to_owned()), ("bench.requests", self.requests.to_string()), ("wait.job.every_ms", "10".into()), ("wait.rollout.every_ms", "10".into())]
                .map(|(key, value)| (key.to_owned(), value))
                .to_vec(),
        };
        let spec = config::load(&inputs).unwrap().0;
        let aws = Aws { region: "us-east-2".into(), config: aws_config::SdkConfig::builder().build() };
        let deps = Deps::new(Arc::new(spec), Arc::new(Pins::default()), aws, reqwest::Client::new(), None);
        let server = self.server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let (status, answer) = server.lock().unwrap().answer(parts.method.as_str(), parts.uri.path(), parts.uri.query().unwrap_or_default(), &body, pod);
                Ok::<_, std::convert::Infallible>(Response::builder().status(status).body(Body::from(answer)).unwrap())
            }
        });
        let endpoint = k8s::Endpoint { url: cluster().endpoint, certificate_authority: cluster().certificate_authority };
        deps.kube_clients.get_or_make(&endpoint, "nemo", || Ok(kube::Client::new(service, "default"))).unwrap();
        Arc::new(deps)
    }

    /// Plans and walks over `bench` alone; the verdict, and how it ended.
    async fn walk(&mut self, pod: Pod) -> (String, Result<(), Failure>) {
        let (events, _listening) = Events::new();
        let mut walk = Walk::new(steps(self.deps(pod)), Place::new(self.folder.path(), "nemo"), self.state.clone(), events, CancellationToken::new());
        let plan = walk.plan(&BTreeSet::from([StepId::Bench])).await.unwrap();
        let verdict = plan.planned[0].verdict.clone();
        if let Some(refusal) = plan.refusal() {
            return (verdict.word().into(), Err(refusal));
        }
        let ended = walk.run(plan).await.map(|_| ());
        self.state = walk.state.clone();
        (verdict.word().into(), ended)
    }

    fn facts(&self) -> BenchFacts {
        toml::Value::Table(self.state.steps[&StepId::Bench].facts.clone()).try_into().unwrap()
    }

    /// What was written since the last time that it was asked.
    fn writes(&self) -> Vec<String> {
        let writes = std::mem::take(&mut self.server.lock().unwrap().writes);
        writes.iter().map(|write| write.split('-').next().unwrap().replace("/api/v1/namespaces/nemo", "").replace("/apis/batch/v1/namespaces/nemo", "")).collect()
    }

    fn job(&self) -> Option<String> {
        self.server.lock().unwrap().objects.keys().find(|path| path.starts_with(JOBS)).cloned()
    }
}

/// The step, and the one that it needs and that is noted as done.
fn steps(deps: Arc<Deps>) -> Vec<Arc<dyn Step>> {
    vec![Arc::new(Test { deps: deps.clone() }), Arc::new(Bench { deps })]
}

fn cluster() -> ClusterFacts {
    ClusterFacts {
        name: "nemo".into(),
        arn: String::new(),
        endpoint: "https://127.0.0.1:1".into(),
        certificate_authority: String::new(),
        version: "1.35".into(),
        security_group: String::new(),
    }
}

const MADE: [&str; 2] = ["PATCH /configmaps/bench", "PATCH /jobs/bench"];

#[tokio::test]
async fn made_once_then_kept_without_a_write() {
    let mut world = World::new();
    let (verdict, ended) = world.walk(Pod::EndsWell).await;
    ended.unwrap();
    assert_eq!((verdict.as_str(), world.writes()), ("create", MADE.map(str::to_owned).to_vec()));
    let facts = world.facts();
    assert_eq!((facts.requests, facts.ttft_ms_p50, facts.folder), (80, 2.0, format!("runs/{}/attempt-1", facts.of)));
    assert_eq!(world.job().unwrap(), format!("{JOBS}/bench-{}", facts.of));

    assert_eq!(world.walk(Pod::EndsWell).await.0, "keep");
    // The notes are lost: the Job says it all.
    world.state.steps.remove(&StepId::Bench);
    assert_eq!(world.walk(Pod::EndsWell).await.0, "keep");
    assert_eq!((world.facts().of, world.writes()), (facts.of, vec![]));
}

#[tokio::test]
async fn another_load_or_another_image_is_measured_anew() {
    let mut world = World::new();
    world.walk(Pod::EndsWell).await.1.unwrap();
    let (first, _) = (world.facts(), world.writes());
    world.requests = 160;
    let (verdict, ended) = world.walk(Pod::EndsWell).await;
    ended.unwrap();
    assert_eq!((verdict.as_str(), world.facts().requests), ("update", 160));
    assert_ne!(world.facts().of, first.of);
    assert_eq!(world.writes(), ["DELETE /jobs/bench", "DELETE /configmaps/bench", MADE[0], MADE[1]], "two loads at once would measure neither");
    let second = world.facts();
    world.server.lock().unwrap().objects.get_mut(WORKER).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"] = json!("i@sha256:2");
    assert_eq!(world.walk(Pod::EndsWell).await.0, "update");
    assert_ne!(world.facts().of, second.of);
}

#[tokio::test]
async fn a_run_that_is_not_valid_fails_the_step_and_is_made_again() {
    let mut world = World::new();
    let failure = world.walk(Pod::EndsNotValid).await.1.unwrap_err();
    assert_eq!((failure.kind, failure.step), (Kind::Verification, Some("bench")));
    assert!(failure.message.contains("errors: 9 of 80 requests failed"), "{}", failure.message);
    world.writes();
    let (verdict, ended) = world.walk(Pod::EndsWell).await;
    ended.unwrap();
    assert_eq!((verdict.as_str(), world.writes().len()), ("update", 4));
}

#[tokio::test]
async fn a_failed_job_is_told_and_a_lost_log_is_read_anew() {
    let mut world = World::new();
    let failure = world.walk(Pod::Fails).await.1.unwrap_err();
    assert!(failure.kind == Kind::Remote && failure.message.contains("backoff limit"), "{}", failure.message);
    let failure = world.walk(Pod::IsGone).await.1.unwrap_err();
    assert!(failure.message.contains("log cannot be read"), "{}", failure.message);
    let (verdict, ended) = world.walk(Pod::EndsWell).await;
    ended.unwrap();
    assert_eq!(verdict, "wait");
}

#[tokio::test]
async fn somebody_elses_job_is_refused() {
    let mut world = World::new();
    world.walk(Pod::EndsWell).await.1.unwrap();
    let (job, _) = (world.job().unwrap(), world.writes());
    world.state.steps.remove(&StepId::Bench);
    world.server.lock().unwrap().objects.get_mut(&job).unwrap()["metadata"]["labels"]["nemo.dev/deployment"] = json!("other");
    let (verdict, ended) = world.walk(Pod::EndsWell).await;
    assert_eq!((verdict.as_str(), ended.unwrap_err().kind, world.writes()), ("refuse", Kind::Conflict, vec![]));
}

#[tokio::test]
async fn removed_twice_is_fine_and_without_a_cluster_there_is_nothing() {
    let mut world = World::new();
    world.walk(Pod::EndsWell).await.1.unwrap();
    world.writes();
    for removed in [2, 0] {
        let (events, _listening) = Events::new();
        let mut walk = Walk::new(steps(world.deps(Pod::EndsWell)), Place::new(world.folder.path(), "nemo"), world.state.clone(), events, CancellationToken::new());
        assert_eq!(walk.existing(BTreeSet::from([StepId::Bench]), std::time::Duration::from_secs(5)).await.len(), removed);
        assert!(walk.remove(&BTreeSet::from([StepId::Bench])).await.is_empty());
        assert_eq!(world.writes().len(), removed);
    }
    world.state.steps.remove(&StepId::Cluster);
    assert_eq!(world.walk(Pod::EndsWell).await.0, "create");
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn the_step_test_asks_again_when_what_serves_has_changed() {
    let mut world = World::new();
    let noted = |of: &str| table_of(&TestFacts { passed: vec!["chat".into()], of: of.into() }).unwrap();
    for (noted, serves, verdict, why) in [
        (None, true, "create", "it was made before and is gone"),
        (Some(noted("other")), true, "update", "what serves has changed since it was tested"),
        (Some(noted("other")), false, "create", "what it lives in is not there yet"),
    ] {
        world.state.steps.get_mut(&StepId::Test).unwrap().facts = noted.unwrap_or_default();
        if !serves {
            world.server.lock().unwrap().objects.remove(WORKER);
        }
        let (events, _listening) = Events::new();
        let mut walk = Walk::new(steps(world.deps(Pod::EndsWell)), Place::new(world.folder.path(), "nemo"), world.state.clone(), events, CancellationToken::new());
        let plan = walk.plan(&BTreeSet::from([StepId::Test])).await.unwrap();
        assert_eq!((plan.planned[0].verdict.word(), plan.planned[0].verdict.why()), (verdict, why));
    }
    assert_eq!(world.writes(), Vec::<String>::new());
}
