//! The six cases, step by step.

use nemo::engine::plan::Verdict;
use nemo::engine::step::StepId;
use nemo::error::Kind;
use serde_json::json;

use crate::common::{Emulator, Writes};
use crate::{ALL, Deployment, FACTOR};

/// What one step is put through.
struct Cases {
    step: StepId,
    /// The call that makes it, as the journal names it, and how often one deployment makes it.
    made_by: (&'static str, &'static str, u64),
    /// A fault's `match` for the one of several such calls that is held.
    held: &'static str,
    /// Changes a setting that the step depends on.
    change: fn(&mut Deployment),
    /// Whether it can follow the change.
    follows: bool,
}

/// Absent → made; ours and same → no write; ours and changed → update or refusal; removed twice → fine.
async fn life(case: &Cases) {
    let emulator = Emulator::start(FACTOR, None).await;
    let mut ours = Deployment::new(&emulator, "nemo").await;
    assert!(matches!(ours.verdict(case.step).await, Verdict::Create { .. }));
    let (facts, _) = ours.up(case.step).await.expect("it is made");
    assert!(!facts.is_empty());
    let made = emulator.writes().await;
    let (service, operation, times) = case.made_by;
    assert_eq!(made.of(&format!("{service}:{operation}")), times, "{made:?}");
    assert!(!ours.existing(&[case.step]).await.is_empty());

    assert_eq!(ours.verdict(case.step).await, Verdict::Keep);
    let (again, _) = ours.up(case.step).await.expect("it is kept");
    assert_eq!(again, without_nodes(&facts), "what is observed says as much as what was applied");
    assert_eq!(emulator.writes().await, made, "nothing is written when all is there");

    (case.change)(&mut ours);
    if case.follows {
        assert!(matches!(ours.verdict(case.step).await, Verdict::Update { .. }));
        ours.up(case.step).await.expect("it follows");
        assert_eq!(ours.verdict(case.step).await, Verdict::Keep);
        assert_eq!(emulator.writes().await.of(&format!("{service}:{operation}")), times, "changed in place, not made twice");
    } else {
        let Verdict::Refuse { kind, hint, .. } = ours.verdict(case.step).await else { panic!("it cannot follow") };
        assert_eq!(kind, Kind::Conflict);
        assert!(hint.contains("nemo cleanup"), "{hint}");
        let failure = ours.up(case.step).await.expect_err("refused");
        assert_eq!((failure.kind, emulator.writes().await), (Kind::Conflict, made), "refused before anything is written");
    }

    assert_none(ours.remove(&ALL).await);
    assert_eq!(ours.existing(&ALL).await, []);
    let removed = emulator.writes().await;
    assert_none(ours.remove(&ALL).await);
    assert_eq!(emulator.writes().await, removed, "what is gone is not deleted again");
    let leftovers = nemo::aws::tagging::leftovers(&nemo::aws::Aws::of(emulator.sdk().await).unwrap(), "nemo").await.unwrap();
    assert_eq!(leftovers, Vec::<String>::new(), "nothing carries our tag any more");
}

/// Killed once the server has accepted the call that makes it: waited for and completed, not made twice.
async fn half_made(case: &Cases) {
    let emulator = Emulator::start(FACTOR, None).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    let (service, operation, times) = case.made_by;
    emulator.fault(json!({"service": service, "operation": operation, "match": case.held, "effect": "hold", "seconds": 600, "times": 1})).await;
    let running = {
        let ours = Deployment::new(&emulator, "nemo").await;
        let step = case.step;
        tokio::spawn(async move { ours.up(step).await.map(drop) })
    };
    let key = format!("{service}:{operation}");
    while emulator.ask(reqwest::Method::GET, "faults", None).await["rules"][0]["fired"].as_u64() != Some(1) {
        assert!(!running.is_finished(), "it ended before {key} was held: {:?}", running.await);
        nemo::engine::clock::sleep(std::time::Duration::from_millis(10)).await;
    }
    running.abort();
    let _ = running.await;
    emulator.no_faults().await;
    let verdict = ours.verdict(case.step).await;
    assert!(matches!(verdict, Verdict::Wait { .. } | Verdict::Keep | Verdict::Create { .. }), "{verdict:?}");
    ours.up(case.step).await.expect("it goes on");
    assert_eq!(emulator.writes().await.of(&key), times, "made once");
    assert_eq!(ours.verdict(case.step).await, Verdict::Keep);
}

/// Something of our name without our mark: refused, and left where it is.
async fn foreign(emulator: &Emulator, step: StepId, before: Writes) {
    let ours = Deployment::new(emulator, "nemo").await;
    let Verdict::Refuse { kind, .. } = ours.verdict(step).await else { panic!("somebody else's is there") };
    assert_eq!(kind, Kind::Conflict);
    assert_eq!(ours.up(step).await.expect_err("refused").kind, Kind::Conflict);
    assert_none(ours.remove(&[step]).await);
    assert_eq!(emulator.writes().await, before, "nothing of it is touched");
    assert_eq!(ours.existing(&[step]).await, []);
}

fn assert_none(failures: Vec<nemo::error::Failure>) {
    assert!(failures.is_empty(), "{:?}", failures.iter().map(ToString::to_string).collect::<Vec<_>>());
}

fn without_nodes(facts: &toml::Table) -> toml::Table {
    let mut facts = facts.clone();
    facts.remove("nodes");
    facts
}

const NETWORK: Cases = Cases {
    step: StepId::Network,
    made_by: ("cloudformation", "CreateStack", 3),
    held: "nemo-network",
    change: |ours| ours.spec.network.cidr = "10.99.0.0/16".into(),
    follows: false,
};
const CLUSTER: Cases =
    Cases { step: StepId::Cluster, made_by: ("eks", "CreateCluster", 1), held: "", change: |ours| ours.spec.platform.kubernetes.version = "1.34".into(), follows: false };
const SYSTEM: Cases = Cases { step: StepId::SystemNodes, made_by: ("eks", "CreateNodegroup", 1), held: "system", change: |ours| ours.spec.system.nodes = 3, follows: true };
const GPU: Cases =
    Cases { step: StepId::GpuNodes, made_by: ("eks", "CreateNodegroup", 1), held: "gpu", change: |ours| (ours.spec.gpu.nodes, ours.spec.gpu.disk_gib) = (2, 600), follows: true };
const FILESYSTEM: Cases = Cases { step: StepId::Filesystem, made_by: ("fsx", "CreateFileSystem", 1), held: "", change: |ours| ours.spec.storage.throughput = 500, follows: false };

#[tokio::test]
async fn network_lives() {
    life(&NETWORK).await;
}

#[tokio::test]
async fn network_half_made() {
    half_made(&NETWORK).await;
}

#[tokio::test]
async fn cluster_lives() {
    life(&CLUSTER).await;
}

#[tokio::test]
async fn cluster_half_made() {
    half_made(&CLUSTER).await;
}

#[tokio::test]
async fn system_nodes_live() {
    life(&SYSTEM).await;
}

#[tokio::test]
async fn system_nodes_half_made() {
    half_made(&SYSTEM).await;
}

#[tokio::test]
async fn gpu_nodes_live() {
    life(&GPU).await;
}

#[tokio::test]
async fn gpu_nodes_half_made() {
    half_made(&GPU).await;
}

#[tokio::test]
async fn filesystem_lives() {
    life(&FILESYSTEM).await;
}

#[tokio::test]
async fn filesystem_half_made() {
    half_made(&FILESYSTEM).await;
}

/// What EKS cannot change in place is refused in the plan, with what it is.
#[tokio::test]
async fn another_disk_is_refused_before_anything_is_written() {
    let emulator = Emulator::start(FACTOR, None).await;
    let mut ours = Deployment::new(&emulator, "nemo").await;
    ours.up(StepId::SystemNodes).await.expect("system nodes");
    let before = emulator.writes().await;
    (ours.spec.system.disk_gib, ours.spec.system.nodes) = (777, 3);
    let Verdict::Refuse { kind, why, hint } = ours.verdict(StepId::SystemNodes).await else { panic!("not refused") };
    assert!(kind == Kind::Conflict && why.contains("disk") && why.contains("777") && hint.contains("nemo cleanup --from system-nodes"), "{why} {hint}");
    assert_eq!(ours.up(StepId::SystemNodes).await.expect_err("refused").kind, Kind::Conflict);
    assert_eq!(emulator.writes().await, before);
}

/// Without notes a command that looks does not know what was resolved: that is no change of settings, and no price is nothing.
#[tokio::test]
async fn without_notes_nothing_has_changed_and_nothing_is_free() {
    let emulator = Emulator::start(FACTOR, None).await;
    let mut ours = Deployment::new(&emulator, "nemo").await;
    ours.up(StepId::SystemNodes).await.expect("system nodes");
    ours.pins = nemo::config::Pins::default();
    for step in [StepId::Network, StepId::Cluster, StepId::SystemNodes] {
        assert_eq!(ours.verdict(step).await, Verdict::Keep, "{step}");
    }
    let exists = ours.existing(&ALL).await;
    assert_eq!(nemo::error::Resource::hourly_if_known(&exists), None);
    assert!(nemo::error::Resource::hourly_words(&exists).contains("price unknown"));
}

/// The settings say another number and another type than what there is: what there is bills.
#[tokio::test]
async fn what_exists_is_told_as_it_is_and_not_as_the_settings_say() {
    let emulator = Emulator::start(FACTOR, None).await;
    let mut ours = Deployment::new(&emulator, "nemo").await;
    ours.pins.prices = nemo::config::Prices { gpu_instance_hour: 60.0, source: "Price List API, 2026-11-30; p5en.48xlarge in us-east-2".into(), ..Default::default() };
    ours.up(StepId::GpuNodes).await.expect("GPU nodes");
    ours.spec.gpu.nodes = 2;
    ours.spec.instance.type_name = "p5.48xlarge".into();
    let group = |exists: Vec<nemo::error::Resource>| exists.into_iter().find(|resource| resource.what.starts_with("EKS node group")).map(|group| (group.what, group.usd_per_hour));
    assert_eq!(group(ours.existing(&[StepId::GpuNodes]).await), Some(("EKS node group, 1 × p5en.48xlarge".into(), Some(60.0))));
    ours.pins.prices.source = "Price List API, 2026-11-30; p5.48xlarge in us-east-2".into();
    assert_eq!(group(ours.existing(&[StepId::GpuNodes]).await), Some(("EKS node group, 1 × p5en.48xlarge".into(), None)), "the price is of another type");
}

/// A stack, cluster or file system of that name that somebody else made, by the SDK itself.
async fn somebody_elses_stack(emulator: &Emulator, name: &str) {
    let client = aws_sdk_cloudformation::Client::new(&emulator.sdk().await);
    let body = r#"{"Resources": {"Group": {"Type": "AWS::EC2::InternetGateway"}}}"#;
    client.create_stack().stack_name(name).template_body(body).send().await.expect("a stack");
}

#[tokio::test]
async fn stacks_of_others_are_left_alone() {
    let emulator = Emulator::start(FACTOR, None).await;
    somebody_elses_stack(&emulator, "nemo-roles").await;
    foreign(&emulator, StepId::Network, emulator.writes().await).await;
}

#[tokio::test]
async fn a_cluster_of_others_and_its_nodes_are_left_alone() {
    let emulator = Emulator::start(FACTOR, None).await;
    let other = Deployment::new(&emulator, "other").await;
    other.up(StepId::Network).await.expect("a network");
    let (client, facts) = (aws_sdk_eks::Client::new(&emulator.sdk().await), other.up(StepId::Network).await.expect("facts").0);
    let subnets = facts["private_subnets"].as_array().unwrap().iter().map(|subnet| subnet["id"].as_str().unwrap().to_owned()).collect();
    let network = aws_sdk_eks::types::VpcConfigRequest::builder().set_subnet_ids(Some(subnets)).build();
    let role = facts["cluster_role_arn"].as_str().unwrap();
    let made = |name: &str| client.create_cluster().name(name).version("1.35").role_arn(role).resources_vpc_config(network.clone()).send();
    while made("nemo").await.is_err() {
        nemo::engine::clock::sleep(std::time::Duration::from_millis(20)).await;
    }
    foreign(&emulator, StepId::Cluster, emulator.writes().await).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    for step in [StepId::SystemNodes, StepId::GpuNodes] {
        assert_none(ours.remove(&[step]).await);
        assert_eq!(ours.existing(&[step]).await, []);
    }
    assert_eq!(emulator.ask(reqwest::Method::GET, "calls?since=0&via=", None).await["writes_by_operation"]["eks:DeleteCluster"], json!(null));
}

#[tokio::test]
async fn a_node_group_of_others_is_left_alone() {
    let emulator = Emulator::start(FACTOR, None).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    ours.up(StepId::Cluster).await.expect("a cluster");
    let network = ours.up(StepId::Network).await.expect("facts").0;
    let subnet = network["private_subnets"][0]["id"].as_str().unwrap();
    let client = aws_sdk_eks::Client::new(&emulator.sdk().await);
    for name in ["system", "gpu"] {
        let role = network["node_role_arn"].as_str().unwrap();
        let scaling = aws_sdk_eks::types::NodegroupScalingConfig::builder().desired_size(1).min_size(1).max_size(1).build();
        client.create_nodegroup().cluster_name("nemo").nodegroup_name(name).node_role(role).subnets(subnet).scaling_config(scaling).send().await.expect("a node group");
    }
    let before = emulator.writes().await;
    for step in [StepId::SystemNodes, StepId::GpuNodes] {
        foreign(&emulator, step, before.clone()).await;
    }
    let failures = ours.remove(&[StepId::Cluster]).await;
    let [failure] = failures.as_slice() else { panic!("{failures:?}") };
    assert_eq!(failure.kind, Kind::Conflict);
    assert!(failure.message.contains("system"), "the group that stands on the cluster is named: {}", failure.message);
    assert_eq!(emulator.writes().await, before);
}

/// File systems have no name that could be taken: one without our tag is not seen at all.
#[tokio::test]
async fn a_file_system_of_others_is_not_seen() {
    let emulator = Emulator::start(FACTOR, None).await;
    let other = Deployment::new(&emulator, "other").await;
    other.up(StepId::Filesystem).await.expect("another deployment's");
    let ours = Deployment::new(&emulator, "nemo").await;
    assert!(matches!(ours.verdict(StepId::Filesystem).await, Verdict::Create { .. }));
    let before = emulator.writes().await;
    assert_none(ours.remove(&[StepId::Filesystem]).await);
    assert_eq!(emulator.writes().await, before);
    assert_eq!(other.existing(&[StepId::Filesystem]).await.len(), 1);
    let deployments = nemo::aws::tagging::deployments(&nemo::aws::Aws::of(emulator.sdk().await).unwrap()).await.unwrap();
    assert_eq!(deployments.keys().collect::<Vec<_>>(), ["other"], "found again by its tags alone");
}
