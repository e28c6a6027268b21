//! The step `weights` through the engine, against an API server that keeps what it is sent: the cases of "Idempotence is a test".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Deps;
use super::facts::{ClusterFacts, FilesystemFacts, ImagesFacts, StorageFacts, Stored, WeightsFacts};
use super::weights::Weights;
use crate::agent::fetch::{FetchPlan, ReadRate, Said};
use crate::aws::Aws;
use crate::config::{self, Pins, WeightFile, WeightsPin};
use crate::engine::clock;
use crate::engine::event::Events;
use crate::engine::state::{Place, Record, State, Status};
use crate::engine::step::{Cx, Digest, Need, Seen, Step, StepId, table_of};
use crate::engine::walk::Walk;
use crate::error::{Failure, Kind, Resource};
use crate::k8s;
use crate::secret::Secret;

const CORE: &str = "/api/v1/namespaces/nemo";
const JOB: &str = "/apis/batch/v1/namespaces/nemo/jobs/weights";
const NOTE: &str = "/api/v1/namespaces/nemo/configmaps/weights-done";
const TOKEN: &str = "hf_secret_of_the_test";

/// What the Job's pod does as soon as the Job is made.
#[derive(Clone, Copy, PartialEq)]
enum Pod {
    Ends,
    IsRefused,
    /// It has not ended when nemo is told to stop.
    Lasts,
}

fn rate(mb_s: u64) -> ReadRate {
    ReadRate { mb_s, streams: 8, on: "2026-12-01".into() }
}

/// Objects by path, the log of the pod, every write in order.
#[derive(Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    log: String,
    /// MB/s that the pod measures.
    reads: Option<u64>,
    writes: Vec<String>,
}

impl Server {
    fn answer(&mut self, method: &str, path: &str, query: &str, body: &[u8], pod: Pod) -> (u16, Vec<u8>) {
        let found = |value: &Value| (200, value.to_string().into_bytes());
        let missing =
            || (404, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}).to_string().into_bytes());
        if method != "GET" {
            self.writes.push(format!("{method} {}", path.rsplit("/namespaces/nemo/").next().unwrap()));
        }
        match method {
            "GET" if path.ends_with("/log") => (200, self.log.clone().into_bytes()),
            "GET" if path.rsplit('/').next().is_some_and(|last| last.ends_with('s') && last != "weights") => {
                let kind = path.rsplit('/').next().unwrap();
                let selector =
                    query.split('&').find_map(|part| part.strip_prefix("labelSelector=")).unwrap_or_default().replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
                let wanted: Vec<_> = selector.split(',').filter_map(|pair| pair.split_once('=')).collect();
                let of = |at: &str, object: &Value| at.contains(&format!("/{kind}/")) && wanted.iter().all(|(key, value)| object["metadata"]["labels"][key] == *value);
                let items: Vec<&Value> = self.objects.iter().filter(|(at, object)| of(at, object)).map(|(_, object)| object).collect();
                found(&json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
            }
            "GET" => self.objects.get(path).map_or_else(missing, found),
            "PATCH" => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                if path == JOB {
                    self.run(&mut object, pod);
                }
                self.objects.insert(path.to_owned(), object.clone());
                found(&object)
            }
            _ => self.objects.remove(path).as_ref().map_or_else(missing, found),
        }
    }

    /// The Job controller and its one pod.
    fn run(&mut self, job: &mut Value, pod: Pod) {
        job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/job-name": "weights"}});
        let plan: FetchPlan = serde_json::from_str(self.objects[&format!("{CORE}/configmaps/weights")]["data"]["plan.json"].as_str().unwrap()).unwrap();
        let said = match pod {
            Pod::Ends => Said::Done { bytes: plan.files[0].size, files: 1, seconds: 1.0, complete: true },
            Pod::IsRefused => Said::Failed { exit_code: 11, why: "the hub says 403".into(), hints: vec!["ask for access".into()] },
            Pod::Lasts => Said::Progress { done: 1, total: plan.files[0].size, files: 0, of: 1, bytes_per_second: 1 },
        };
        let said = match self.reads {
            Some(mb_s) if pod == Pod::Ends => vec![Said::Read(rate(mb_s)), said],
            _ => vec![said],
        };
        self.log = said.iter().map(|said| serde_json::to_string(said).unwrap() + "\n").collect();
        let condition = match pod {
            Pod::Ends => json!([{"type": "Complete", "status": "True"}]),
            Pod::IsRefused => json!([{"type": "Failed", "status": "True", "message": "pod failure policy"}]),
            Pod::Lasts => json!([]),
        };
        job["status"] = json!({"conditions": condition, "active": 1});
        let labels = json!({"batch.kubernetes.io/job-name": "weights", "batch.kubernetes.io/job-completion-index": "0"});
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "weights-0-x", "labels": labels}, "status": {"phase": "Running"}});
        self.objects.insert(format!("{CORE}/pods/weights-0-x"), object);
    }
}

/// A step that the walk needs and that is noted as done.
struct Done(StepId);

#[async_trait]
impl Step for Done {
    fn id(&self) -> StepId {
        self.0
    }

    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    fn inputs(&self) -> Digest {
        Digest("x".into())
    }

    fn makes(&self) -> Vec<Resource> {
        Vec::new()
    }

    async fn observe(&self, cx: &Cx) -> anyhow::Result<Seen> {
        Ok(Seen::Ready { inputs: None, facts: cx.facts.table(self.0).unwrap_or_default() })
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        Ok(cx.facts.table(self.0).unwrap_or_default())
    }

    async fn remove(&self, _cx: &Cx) -> anyhow::Result<()> {
        Ok(())
    }

    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        Ok(Vec::new())
    }
}

/// A deployment with a shared volume, and nothing noted about weights.
struct World {
    server: Arc<Mutex<Server>>,
    folder: tempfile::TempDir,
    revision: &'static str,
    filesystem: &'static str,
    stop: CancellationToken,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { server: Arc::default(), folder, revision: "a", filesystem: "fs-1", stop: CancellationToken::new() }
    }

    fn deps(&self, pod: Pod) -> Arc<Deps> {
        let flags = [("region", "us-east-2"), ("wait.job.every_ms", "10"), ("wait.rollout.every_ms", "10")].map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let spec = config::load(&config::Inputs { working_folder: self.folder.path().to_owned(), file: None, env: vec![], flags }).unwrap().0;
        let file = WeightFile { path: "model.safetensors".into(), size: 7, sha256: Some("ab".into()), git_blob: None };
        let weights = WeightsPin { repository: "nvidia/x".into(), revision: self.revision.into(), bytes: 7, files: vec![file] };
        let aws = Aws { region: "us-east-2".into(), config: aws_config::SdkConfig::builder().build() };
        let pins = Pins { weights, ..Pins::default() };
        let deps = Deps::new(Arc::new(spec), Arc::new(pins), aws, reqwest::Client::new(), Some(Secret::new(TOKEN)));
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

    /// A walk that knows what the step stands on, and nothing of the step.
    fn walk(&self, pod: Pod) -> Walk {
        let (events, _listening) = Events::new();
        let mut state = State::new("nemo", "123456789012", "us-east-2");
        let agent = Stored { uri: "e/agent".into(), tag: "t".into(), digest: "sha256:1".into() };
        let filesystem = FilesystemFacts { id: self.filesystem.into(), dns_name: "d".into(), mount_name: "m".into(), capacity_gib: 1200 };
        for (step, facts) in [
            (StepId::Cluster, table_of(&cluster())),
            (StepId::Images, table_of(&ImagesFacts { stored: BTreeMap::from([("agent".to_owned(), agent)]) })),
            (StepId::Filesystem, table_of(&filesystem)),
            (StepId::Storage, table_of(&StorageFacts { namespace: "nemo".into(), claim: "shared".into(), volume: "v".into() })),
        ] {
            let record = Record { status: Status::Done, inputs: Digest("x".into()), started: clock::now(), finished: None, parts: vec![], facts: facts.unwrap() };
            state.steps.insert(step, record);
        }
        let steps: Vec<Arc<dyn Step>> = vec![Arc::new(Done(StepId::Images)), Arc::new(Done(StepId::Storage)), Arc::new(Weights { deps: self.deps(pod) })];
        Walk::new(steps, Place::new(self.folder.path(), "nemo"), state, events, self.stop.clone())
    }

    /// The verdict, what came of it, and what was written.
    async fn up(&self, pod: Pod) -> (String, Result<WeightsFacts, Failure>, Vec<String>) {
        let mut walk = self.walk(pod);
        let plan = walk.plan(&BTreeSet::from([StepId::Weights])).await.unwrap();
        let verdict = plan.planned[0].verdict.word().to_owned();
        let ended = match plan.refusal() {
            Some(refusal) => Err(refusal),
            None => walk.run(plan).await.map(|_| walk.facts.get(StepId::Weights).unwrap()),
        };
        (verdict, ended, std::mem::take(&mut self.server.lock().unwrap().writes))
    }
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

#[tokio::test]
async fn made_once_and_the_token_is_there_only_as_long_as_it_is_needed() {
    let world = World::new();
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    assert_eq!(ended.unwrap(), WeightsFacts { path: "models/nvidia/x/a".into(), revision: "a".into(), files: 1, bytes: 7, read: ReadRate::default() });
    assert_eq!(verdict, "create");
    assert_eq!(writes, ["PATCH secrets/hub-token", "PATCH configmaps/weights", "PATCH jobs/weights", "PATCH configmaps/weights-done", "DELETE secrets/hub-token"]);
    let shown = world.server.lock().unwrap().objects.values().map(Value::to_string).collect::<String>();
    assert!(!shown.contains(TOKEN), "the token is in no object any more, nor ever in the pod's");
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    assert_eq!((verdict.as_str(), ended.unwrap().bytes, writes.len()), ("keep", 7, 0));
}

#[tokio::test]
async fn what_was_measured_is_noted_once_and_a_log_of_later_changes_nothing() {
    let world = World::new();
    world.server.lock().unwrap().reads = Some(180);
    assert_eq!(world.up(Pod::Ends).await.1.unwrap().read, rate(180));
    let note = world.server.lock().unwrap().objects[NOTE]["data"].clone();
    assert_eq!((&note["read_mb_s"], &note["read_streams"], &note["read_on"]), (&json!("180"), &json!("8"), &json!("2026-12-01")));
    world.server.lock().unwrap().log = serde_json::to_string(&Said::Read(rate(90))).unwrap();
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    assert_eq!((verdict.as_str(), ended.unwrap().read, writes.len()), ("keep", rate(180), 0));
    // A note from before anything was measured.
    world.server.lock().unwrap().objects.get_mut(NOTE).unwrap()["data"].as_object_mut().unwrap().retain(|key, _| !key.starts_with("read_"));
    assert_eq!(world.up(Pod::Ends).await.1.unwrap().read, ReadRate::default());
}

#[tokio::test]
async fn a_token_that_a_kill_left_behind_is_seen_and_taken_away() {
    let world = World::new();
    world.up(Pod::Ends).await.1.unwrap();
    let labels = json!({"app.kubernetes.io/managed-by": "nemo", "nemo.dev/deployment": "nemo", "nemo.dev/step": "weights"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub-token", "namespace": "nemo", "labels": labels}});
    world.server.lock().unwrap().objects.insert(format!("{CORE}/secrets/hub-token"), secret);
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    assert_eq!((verdict.as_str(), ended.unwrap().bytes), ("wait", 7));
    assert_eq!(writes, ["DELETE secrets/hub-token"]);
    assert_eq!(world.up(Pod::Ends).await.0, "keep");
}

#[tokio::test]
async fn another_revision_is_fetched_by_another_job_and_a_new_file_system_is_empty() {
    let mut world = World::new();
    world.up(Pod::Ends).await.1.unwrap();
    world.revision = "b";
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    assert_eq!((verdict.as_str(), ended.unwrap().path.as_str()), ("update", "models/nvidia/x/b"));
    assert_eq!(writes[0], "DELETE jobs/weights", "a Job cannot be changed");
    world.filesystem = "fs-2";
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    ended.unwrap();
    assert_eq!((verdict.as_str(), writes[0].as_str()), ("wait", "DELETE jobs/weights"), "what that Job fetched is elsewhere");
    assert_eq!(world.up(Pod::Ends).await.0, "keep");
}

#[tokio::test]
async fn a_refusal_keeps_its_kind_and_hint_and_is_tried_anew() {
    let world = World::new();
    let failure = world.up(Pod::IsRefused).await.1.unwrap_err();
    assert_eq!((failure.kind, failure.step, failure.hints), (Kind::Credentials, Some("weights"), vec!["ask for access".to_owned()]));
    assert!(failure.message.contains("the hub says 403"), "{}", failure.message);
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    ended.unwrap();
    assert_eq!((verdict.as_str(), writes[0].as_str()), ("update", "DELETE jobs/weights"));
}

#[tokio::test]
async fn stopped_while_the_job_is_at_work_it_waits_for_the_same_job() {
    let mut world = World::new();
    let stop = world.stop.clone();
    let stopping = async {
        let made = async {
            while !world.server.lock().unwrap().objects.contains_key(JOB) {
                clock::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), made).await.unwrap();
        stop.cancel();
    };
    let ((_, ended, _), ()) = tokio::join!(world.up(Pod::Lasts), stopping);
    assert_eq!(ended.unwrap_err().kind, Kind::Interrupted);
    world.stop = CancellationToken::new();
    world.server.lock().unwrap().objects.get_mut(JOB).unwrap()["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    ended.unwrap();
    assert_eq!(verdict, "wait");
    assert_eq!(writes, ["PATCH configmaps/weights-done", "DELETE secrets/hub-token"], "nothing is made twice");
}

#[tokio::test]
async fn somebody_elses_note_is_refused_and_removed_twice_is_fine() {
    let world = World::new();
    world.up(Pod::Ends).await.1.unwrap();
    world.server.lock().unwrap().objects.get_mut(NOTE).unwrap()["metadata"]["labels"]["nemo.dev/deployment"] = json!("other");
    let (verdict, ended, writes) = world.up(Pod::Ends).await;
    assert_eq!((verdict.as_str(), ended.unwrap_err().kind, writes.len()), ("refuse", Kind::Conflict, 0));
    for deletions in [2, 0] {
        let failures = world.walk(Pod::Ends).remove(&BTreeSet::from([StepId::Weights])).await;
        assert!(failures.is_empty(), "{:?}", failures.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(std::mem::take(&mut world.server.lock().unwrap().writes).len(), deletions);
    }
}
