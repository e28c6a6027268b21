//! Questions by table: what the services answer, and the verdict.

use wiremock::matchers::{method, path, path_regex};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::capacity::{self, Seen};
use super::report::{Answered, Verdict};
use super::{artefacts, filesystem, fit, hub, network};
use crate::aws::ec2::{Running, TypeFacts};
use crate::config::{self, ImagePin, Pins, Spec, WeightFile, WeightsPin};
use crate::error::{Kind, ServiceError};
use crate::hub::Hub;
use crate::secret::Secret;

fn spec(flags: &[(&str, &str)]) -> Spec {
    let flags = flags.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    config::load(&config::Inputs { working_folder: "/nowhere".into(), flags, ..config::Inputs::default() }).unwrap().0
}

/// What EC2 says of the two types, when it says what the catalogue says.
fn as_predicted() -> Vec<TypeFacts> {
    vec![
        TypeFacts {
            type_name: "p5en.48xlarge".into(),
            architectures: vec!["x86_64".into()],
            vcpus: 192,
            memory_mib: 2048 * 1024,
            gpus: 8,
            network_cards: 16,
            efa: 16,
            addresses_per_interface: 50,
        },
        TypeFacts {
            type_name: "m7i.2xlarge".into(),
            architectures: vec!["x86_64".into()],
            vcpus: 8,
            memory_mib: 32 * 1024,
            network_cards: 1,
            addresses_per_interface: 15,
            ..TypeFacts::default()
        },
    ]
}

fn denied() -> ServiceError {
    ServiceError { service: "ec2".into(), operation: "X".into(), code: "UnauthorizedOperation".into(), message: "no".into(), request_id: None, status: Some(403) }
}

#[test]
fn a_quota_counts_what_others_run_and_not_what_is_ours() {
    let spec = spec(&[("gpu.nodes", "2")]);
    let running = |deployment: Option<&str>| vec![Running { type_name: "p5.48xlarge".into(), vcpus: 192, deployment: deployment.map(str::to_owned) }];
    let ask = |value: f64, running: Vec<Running>| {
        let described = Ok(None);
        let seen = Seen { region: "us-east-2", running: &Ok(running), described: &described };
        capacity::quota("quota-gpu", &spec.instance, spec.gpu.nodes, Ok(Some(value)), &spec.name, &seen)
    };
    assert_eq!(ask(384.0, vec![]).verdict, Verdict::Ok);
    assert_eq!(ask(384.0, running(Some("nemo"))).verdict, Verdict::Ok);
    let red = ask(384.0, running(Some("other")));
    assert_eq!((red.verdict, red.kind), (Verdict::Red, Some(Kind::Capacity)));
    assert!(red.answer.contains("enough for 1"), "{}", red.answer);
    assert!(red.fix.unwrap().contains("--desired-value 576"));
    assert!(ask(0.0, vec![]).answer.contains("enough for 0"));
}

#[test]
fn a_quota_that_cannot_be_read_is_a_warning() {
    let spec = spec(&[]);
    let (running, described) = (Err(denied()), Ok(None));
    let seen = Seen { region: "us-east-2", running: &running, described: &described };
    for value in [Ok(None), Err(denied())] {
        assert_eq!(capacity::quota("quota-gpu", &spec.instance, 1, value, "nemo", &seen).verdict, Verdict::Warn);
    }
}

#[test]
fn a_type_that_is_not_as_the_catalogue_says_is_red() {
    let spec = spec(&[]);
    let ask = |described: Result<Option<Vec<TypeFacts>>, ServiceError>| capacity::instance_types(&spec, &Seen { region: "us-east-2", running: &Ok(vec![]), described: &described });
    assert_eq!(ask(Ok(Some(as_predicted()))).verdict, Verdict::Ok);
    let mut fewer = as_predicted();
    fewer[0].efa = 8;
    fewer[0].architectures = vec!["arm64".into()];
    let red = ask(Ok(Some(fewer)));
    assert_eq!(red.kind, Some(Kind::Config));
    assert!(red.answer.contains("p5en.48xlarge has 8 EFA adapters, and the catalogue says 16; p5en.48xlarge is arm64"), "{}", red.answer);
    assert_eq!(ask(Ok(None)).kind, Some(Kind::Capacity));
    assert_eq!(ask(Err(denied())).kind, Some(Kind::Credentials));
}

#[test]
fn addresses_are_counted_by_node_and_interface() {
    let ask = |flags: &[(&str, &str)]| network::addresses(&spec(flags), &Seen { region: "r", running: &Ok(vec![]), described: &Ok(Some(as_predicted())) });
    // 1 × 50 × 2 + 2 × 15 × 2 + 32
    assert!(ask(&[]).answer.starts_with("up to 192 needed"), "{}", ask(&[]).answer);
    assert_eq!(ask(&[("network.cidr", "10.0.0.0/20"), ("gpu.nodes", "9")]).verdict, Verdict::Ok);
    assert_eq!(ask(&[("network.cidr", "10.0.0.0/20"), ("gpu.nodes", "10")]).verdict, Verdict::Red);
}

#[test]
fn the_file_system_holds_the_larger_of_catalogue_and_hub() {
    let pin = |gb: u64| WeightsPin { bytes: gb * 1_000_000_000, ..WeightsPin::default() };
    for (gib, gb, verdict, words) in [
        ("0", 1, Verdict::Ok, "1200 GiB"),
        ("0", 1000, Verdict::Ok, "2400 GiB"),
        ("1200", 1000, Verdict::Warn, "little room"),
        ("1200", 2000, Verdict::Red, "do not hold"),
        ("4800", 2000, Verdict::Ok, "4800 GiB"),
    ] {
        let answered = filesystem::size(&spec(&[("storage.capacity_gib", gib)]), Some(&pin(gb)));
        assert_eq!(answered.verdict, verdict, "{gib} {gb}: {}", answered.answer);
        assert!(answered.answer.contains(words), "{}", answered.answer);
    }
}

#[test]
fn what_cannot_fit_is_refused_with_what_would() {
    let ok = fit::fit(&spec(&[]));
    assert_eq!(ok.verdict, Verdict::Ok, "{}", ok.answer);
    let red = fit::fit(&spec(&[("model", "nemotron-3-ultra")]));
    assert_eq!((red.verdict, red.kind), (Verdict::Red, Some(Kind::Config)), "{}", red.answer);
    assert!(red.answer.contains("nemotron-3-ultra in bf16 with TP 8 on p5en.48xlarge does not fit"), "{}", red.answer);
    let fix = red.fix.unwrap();
    assert!(fix.contains("TP 8 × PP 2 on 2 nodes of p5en.48xlarge") && fix.contains("--instance p6-b200.48xlarge") && !fix.contains("--instance p5.48xlarge"), "{fix}");
    assert_eq!(fit::fit(&spec(&[("model", "nemotron-3-ultra"), ("precision", "nvfp4")])).verdict, Verdict::Ok);
}

#[tokio::test]
async fn what_is_pinned_is_kept_and_no_registry_is_asked() {
    let spec = spec(&[]);
    let images = spec.images().map(|(name, source)| (name.clone(), ImagePin { reference: source.reference.clone(), digest: "sha256:0".into(), bytes: 1 })).collect();
    let pins = Pins { images, ..Pins::default() };
    // No server answers here: any request would be a red answer.
    let http = reqwest::Client::builder().proxy(reqwest::Proxy::all("http://127.0.0.1:9").unwrap()).build().unwrap();
    let (answers, kept) = artefacts::images(&http, &spec, Some(&pins)).await;
    assert!(answers.iter().all(|answered| answered.verdict == Verdict::Ok), "{answers:?}");
    assert_eq!(kept, pins.images);
}

/// `hub-access` of a hub that lists the repository to everybody and answers this to whoever wants the file.
async fn access(file: ResponseTemplate, token: Option<&str>) -> (Answered, Option<WeightsPin>) {
    let server = MockServer::start().await;
    let json = |value| ResponseTemplate::new(200).set_body_json::<serde_json::Value>(value);
    server
        .register(Mock::given(method("GET")).and(path_regex("/api/models/.*/revision/main")).respond_with(json(serde_json::json!({"sha": "a".repeat(40), "gated": "auto"}))))
        .await;
    let files =
        serde_json::json!([{"type": "file", "path": "big", "size": 9, "oid": "1", "lfs": {"oid": "s", "size": 9}}, {"type": "file", "path": "small", "size": 1, "oid": "2"}]);
    server.register(Mock::given(method("GET")).and(path_regex("/api/models/.*/tree/a+")).respond_with(json(files))).await;
    server.register(Mock::given(method("HEAD")).and(path_regex(".*/resolve/a+/small")).respond_with(file)).await;
    let hub = Hub::new(reqwest::Client::new(), &server.uri(), token.map(Secret::new));
    let spec = spec(&[("hub.endpoint", &server.uri())]);
    hub::access(&hub, &spec, None, token.is_some()).await
}

#[tokio::test]
async fn the_file_tells_who_may_read_and_the_pins_have_its_checksums() {
    let (answered, weights) = access(ResponseTemplate::new(200), Some("t")).await;
    assert_eq!(answered.verdict, Verdict::Ok, "{}", answered.answer);
    let weights = weights.unwrap();
    assert_eq!((weights.revision.as_str(), weights.bytes), ("a".repeat(40).as_str(), 10));
    assert_eq!(weights.files[0], WeightFile { path: "big".into(), size: 9, sha256: Some("s".into()), git_blob: None });
    for (status, code, token, kind, words) in [
        (401, "GatedRepo", None, Kind::Credentials, "only with a token"),
        (401, "", Some("t"), Kind::Credentials, "does not know this token"),
        (403, "GatedRepo", Some("t"), Kind::Credentials, "may not read it"),
        (404, "RepoNotFound", Some("t"), Kind::Config, "not found"),
        (404, "", Some("t"), Kind::Remote, "404"),
        (503, "", Some("t"), Kind::Remote, "503"),
    ] {
        let mut answer = ResponseTemplate::new(status);
        if !code.is_empty() {
            answer = answer.insert_header("x-error-code", code);
        }
        let (answered, weights) = access(answer, token).await;
        assert_eq!((answered.verdict, answered.kind), (Verdict::Red, Some(kind)), "{status} {code}");
        assert!(answered.answer.contains(words), "{status} {code}: {}", answered.answer);
        assert!(weights.is_none());
    }
}

#[test]
fn nodes_that_nemo_does_not_make_are_refused_with_what_can_be_done() {
    let asked = |name| super::compute::compute(&spec(&[("compute", name)]));
    assert_eq!(asked("managed-node-groups").verdict, Verdict::Ok);
    let refused = asked("hyperpod");
    assert_eq!((refused.verdict, refused.kind), (Verdict::Red, Some(Kind::Config)));
    assert!(refused.answer.starts_with("SageMaker HyperPod with EKS: its manifests are rendered"), "{}", refused.answer);
}

#[tokio::test]
async fn a_pinned_commit_is_read_at_and_not_looked_up_again() {
    let server = MockServer::start().await;
    server.register(Mock::given(method("HEAD")).and(path("/nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16/resolve/old/f")).respond_with(ResponseTemplate::new(200))).await;
    let spec = spec(&[("hub.endpoint", &server.uri())]);
    let file = WeightFile { path: "f".into(), size: 1, sha256: None, git_blob: None };
    let pins = Pins { weights: WeightsPin { repository: spec.precision.repository.clone(), revision: "old".into(), bytes: 1, files: vec![file] }, ..Pins::default() };
    let hub = Hub::new(reqwest::Client::new(), &server.uri(), None);
    let (answered, weights) = hub::access(&hub, &spec, Some(&pins), false).await;
    assert_eq!(answered.verdict, Verdict::Ok, "{}", answered.answer);
    assert_eq!(weights.unwrap(), pins.weights);
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
}
