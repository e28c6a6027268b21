//! The cases of "Idempotence is a test" for the step `images`, against the emulator's ECR in front of a real registry. The state file is
//! lost each time.

use std::sync::Arc;
use std::time::Duration;

use nemo::aws::Aws;
use nemo::config::{ChartPin, ImagePin, Inputs, Pins, Spec, load};
use nemo::engine::clock;
use nemo::engine::event::{Event, EventKind, Events};
use nemo::engine::plan::Verdict;
use nemo::engine::state::{Place, State};
use nemo::engine::step::StepId;
use nemo::engine::walk::Walk;
use nemo::error::{Failure, Kind, Resource};
use nemo::registry::Upstream;
use nemo::steps::facts::ImagesFacts;
use nemo::steps::{Deps, images::Images};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::common::Emulator;
use crate::registries::Registries;

/// A deployment whose images are those of the registries.
struct World {
    registries: Registries,
    emulator: Emulator,
    archives: MockServer,
    spec: Spec,
    pins: Pins,
}

/// A chart archive; `text` makes its bytes another's.
fn archive(text: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let chart = format!("apiVersion: v2\nname: x\nversion: 1.2.3\ndescription: {text}\n");
    let mut header = tar::Header::new_gnu();
    header.set_size(chart.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "x/Chart.yaml", chart.as_bytes()).unwrap();
    tar.into_inner().unwrap().finish().unwrap()
}

impl World {
    async fn new() -> Self {
        let registries = Registries::start().await;
        let emulator = Emulator::start(2000, Some(&registries.ecr)).await;
        let flags = vec![("region".to_owned(), "us-east-2".to_owned())];
        let (spec, _) = load(&Inputs { working_folder: emulator.folder.path().to_owned(), file: None, env: vec![], flags }).unwrap();
        let mut world = Self { registries, emulator, archives: MockServer::start().await, spec, pins: Pins::default() };
        world.pin_image("helm", "alpine/helm:3.22.0").await;
        world.pin_image("vllm-runtime", "nvidia/ai-dynamo/vllm-runtime:1.6.1-efa").await;
        let lws = format!("oci://{}/lws/charts/lws:0.9.0", world.registries.upstream);
        world.pin_chart("lws", &lws).await;
        world.publish_archive("first").await;
        world
    }

    async fn pin_image(&mut self, name: &str, rest: &str) {
        let reference = self.registries.reference(rest).to_string();
        let found = Upstream::resolve(&reqwest::Client::new(), &reference).await.unwrap();
        self.pins.images.insert(name.into(), ImagePin { reference, digest: found.digest, bytes: found.bytes });
    }

    async fn pin_chart(&mut self, name: &str, reference: &str) {
        let found = Upstream::resolve_chart(&reqwest::Client::new(), reference).await.unwrap();
        self.pins.charts.insert(name.into(), ChartPin { reference: reference.into(), digest: found.digest, version: found.version });
    }

    async fn publish_archive(&mut self, text: &str) {
        self.archives.reset().await;
        Mock::given(path("/x-1.2.3.tgz")).respond_with(ResponseTemplate::new(200).set_body_bytes(archive(text))).mount(&self.archives).await;
        let address = format!("{}/x-1.2.3.tgz", self.archives.uri());
        self.pin_chart("x", &address).await;
    }

    async fn walk(&self) -> (Walk, UnboundedReceiver<Event>) {
        let aws = Aws::of(self.emulator.sdk().await).unwrap();
        let deps = Arc::new(Deps::new(Arc::new(self.spec.clone()), Arc::new(self.pins.clone()), aws, reqwest::Client::new(), None));
        let (events, received) = Events::new();
        let place = Place::new(self.emulator.folder.path(), &self.spec.name);
        let state = State::new(&self.spec.name, "123456789012", "us-east-2");
        (Walk::new(vec![Arc::new(Images { deps })], place, state, events, CancellationToken::new()), received)
    }

    async fn verdict(&self) -> Verdict {
        let (mut walk, _events) = self.walk().await;
        walk.plan(&[StepId::Images].into()).await.unwrap().planned.remove(0).verdict
    }

    async fn up(&self) -> Result<(ImagesFacts, Vec<Event>), Failure> {
        let (mut walk, mut events) = self.walk().await;
        let plan = walk.plan(&[StepId::Images].into()).await?;
        if let Some(refusal) = plan.refusal() {
            return Err(refusal);
        }
        walk.run(plan).await?;
        let mut said = Vec::new();
        while let Ok(event) = events.try_recv() {
            said.push(event);
        }
        Ok((walk.facts.get(StepId::Images).unwrap(), said))
    }

    async fn existing(&self) -> Vec<Resource> {
        self.walk().await.0.existing([StepId::Images].into(), Duration::from_secs(30)).await
    }

    async fn remove(&self) {
        let failures = self.walk().await.0.remove(&[StepId::Images].into()).await;
        assert!(failures.is_empty(), "{:?}", failures.iter().map(ToString::to_string).collect::<Vec<_>>());
    }

    /// Writes at the API and at the data plane.
    async fn written(&self, operation: &str) -> u64 {
        self.emulator.writes().await.of(operation)
    }
}

const PARTS: [&str; 5] = ["agent", "chart-lws", "chart-x", "helm", "vllm-runtime"];

#[tokio::test]
async fn made_once_kept_followed_and_removed() {
    let mut world = World::new().await;
    assert!(matches!(world.verdict().await, Verdict::Create { .. }));
    let (facts, events) = world.up().await.expect("made");
    assert_eq!(facts.stored.keys().collect::<Vec<_>>(), PARTS);
    let reached: Vec<_> = events.iter().filter_map(|event| if let EventKind::Reached { part } = &event.kind { Some(part.as_str()) } else { None }).collect();
    assert_eq!(reached.len(), PARTS.len(), "{reached:?}");
    assert_eq!(facts.stored["chart-lws"].digest, world.pins.charts["lws"].digest, "a chart keeps its digest");
    assert_eq!((facts.stored["chart-x"].tag.as_str(), world.existing().await.len()), ("1.2.3", PARTS.len()));

    let made = world.emulator.writes().await;
    assert_eq!(made.of("ecr:CreateRepository"), PARTS.len() as u64, "{made:?}");
    assert_eq!(world.verdict().await, Verdict::Keep);
    assert_eq!(world.up().await.expect("kept").0, facts);
    assert_eq!(world.emulator.writes().await, made, "nothing is written when all is there");

    // Another image under the same name, and a chart whose bytes changed under its version: both are followed.
    world.pin_image("helm", "lws/lws:v0.9.0").await;
    world.publish_archive("second").await;
    assert!(matches!(world.verdict().await, Verdict::Wait { .. }), "some parts are there");
    let (followed, _) = world.up().await.expect("followed");
    assert_ne!(followed.stored["helm"].digest, facts.stored["helm"].digest);
    assert_ne!(followed.stored["chart-x"].digest, facts.stored["chart-x"].digest);
    assert_eq!(followed.stored["vllm-runtime"], facts.stored["vllm-runtime"]);
    assert_eq!(world.verdict().await, Verdict::Keep);

    world.remove().await;
    assert_eq!(world.existing().await, []);
    let removed = world.emulator.writes().await;
    world.remove().await;
    assert_eq!(world.emulator.writes().await, removed, "what is gone is not deleted again");
}

#[tokio::test]
async fn somebody_elses_repository_is_refused_and_left_alone() {
    let world = World::new().await;
    let ecr = aws_sdk_ecr::Client::new(&world.emulator.sdk().await);
    ecr.create_repository().repository_name("nemo/helm").send().await.unwrap();
    let before = world.emulator.writes().await;
    assert!(matches!(world.verdict().await, Verdict::Refuse { kind: Kind::Conflict, .. }));
    assert_eq!(world.up().await.expect_err("refused").kind, Kind::Conflict);
    world.remove().await;
    assert_eq!((world.existing().await, world.emulator.writes().await), (vec![], before));
}

#[tokio::test]
async fn killed_while_a_blob_is_on_its_way_it_goes_on_and_sends_nothing_twice() {
    let world = World::new().await;
    // The registry has taken the manifest, and nobody was told.
    let held = json!({"service": "registry", "operation": "PUT manifests", "match": "vllm-runtime", "effect": "hold", "seconds": 600, "times": 1});
    world.emulator.fault(held).await;
    let (mut walk, mut events) = world.walk().await;
    let plan = walk.plan(&[StepId::Images].into()).await.unwrap();
    let running = tokio::spawn(async move { walk.run(plan).await.map(drop) });
    while world.emulator.ask(reqwest::Method::GET, "faults", None).await["rules"][0]["fired"].as_u64() != Some(1) {
        assert!(!running.is_finished(), "it ended before the call was held: {:?}", running.await);
        clock::sleep(Duration::from_millis(10)).await;
    }
    // None of the small ones waits behind the large one, which is held.
    let mut reached = std::collections::BTreeSet::new();
    while reached.len() < PARTS.len() - 1 {
        if let EventKind::Reached { part } = events.recv().await.expect("the walk goes on").kind {
            assert_ne!(part, "vllm-runtime");
            reached.insert(part);
        }
    }
    running.abort();
    let _ = running.await;
    world.emulator.no_faults().await;
    let sent = world.written("registry:PUT blobs").await;
    assert!(sent > 0);
    let (facts, _) = world.up().await.expect("it goes on");
    assert_eq!(facts.stored.len(), PARTS.len());
    assert_eq!(world.written("ecr:CreateRepository").await, PARTS.len() as u64);
    assert_eq!(world.written("registry:PUT blobs").await, sent, "no blob is sent again");
    assert_eq!(world.verdict().await, Verdict::Keep);
}

#[tokio::test]
async fn a_busy_or_forgetful_registry_is_asked_again() {
    let world = World::new().await;
    for (operation, effect) in [("PUT blobs", "unavailable"), ("PUT manifests", "throttle"), ("HEAD blobs", "expired"), ("POST blobs", "server-error")] {
        world.emulator.fault(json!({"service": "registry", "operation": operation, "effect": effect, "times": 1})).await;
    }
    let (facts, events) = world.up().await.expect("made all the same");
    assert_eq!(facts.stored.len(), PARTS.len());
    let retried = events.iter().filter(|event| matches!(event.kind, EventKind::Retrying { .. })).count();
    assert!(retried >= 3, "{retried} retries were told");
}

#[tokio::test]
async fn one_that_cannot_be_copied_is_named_and_the_others_are_kept() {
    let mut world = World::new().await;
    let pin = world.pins.images.get_mut("helm").unwrap();
    pin.digest = format!("sha256:{}", "0".repeat(64));
    let failure = world.up().await.expect_err("it is not there");
    assert_eq!(failure.kind, Kind::Remote, "{failure}");
    assert!(failure.message.contains("copying helm") && failure.message.contains("there is no"), "{failure}");
    assert!(matches!(world.verdict().await, Verdict::Wait { .. }), "the others are there");
}
