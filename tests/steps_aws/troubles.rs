//! What goes wrong: the kind decides the exit code, the words are the service's, and the same command goes on afterwards.

use nemo::engine::step::StepId;
use nemo::error::Kind;
use serde_json::json;

use crate::common::Emulator;
use crate::{ALL, Deployment, FACTOR};

/// A limit is met inside a stack: said in EC2's words; what of it is there is named; afterwards the stack is made anew.
#[tokio::test]
async fn a_stack_that_fails_says_why_and_is_made_anew() {
    let emulator = Emulator::start(FACTOR, None).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    let words = "Performing this operation would exceed the limit of 5 NAT gateways";
    emulator
        .fault(
            json!({"service": "ec2", "operation": "CreateNatGateway", "via": "cloudformation", "effect": "error", "code": "NatGatewayLimitExceeded", "message": words, "times": 1}),
        )
        .await;
    let failure = ours.up(StepId::Network).await.expect_err("the limit is met");
    assert_eq!((failure.kind, failure.step), (Kind::Capacity, Some("network")));
    assert!(failure.message.contains(words) && failure.message.contains("Nat AWS::EC2::NatGateway"), "{}", failure.message);
    assert!(failure.left.iter().any(|resource| resource.id == "nemo-network"), "{:?}", failure.left);
    let (_, said) = ours.up(StepId::Network).await.expect("the limit was raised");
    assert!(said.iter().any(|event| event["text"].as_str().is_some_and(|text| text.contains("made anew"))), "{said:?}");
    assert_eq!(emulator.writes().await.of("cloudformation:DeleteStack"), 1, "only the broken one");
}

/// Roles of a moment ago are refused at first: tried again, and said so.
#[tokio::test]
async fn a_role_that_is_not_yet_known_is_waited_for() {
    let emulator = Emulator::start(FACTOR, None).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    let words = "Role with arn: arn:aws:iam::1:role/x, could not be assumed because it does not exist or the trusted entity is not correct";
    emulator
        .fault(json!({"service": "eks", "operation": "CreateCluster", "effect": "error", "code": "InvalidParameterException", "status": 400, "message": words, "first": 2}))
        .await;
    let (_, said) = ours.up(StepId::Cluster).await.expect("in the end");
    assert_eq!(said.iter().filter(|event| event["kind"] == "retrying").count(), 2);
}

/// No capacity: EKS's own words, exit code 12; the group that failed is replaced by the next attempt.
#[tokio::test]
async fn nodes_that_cannot_be_had_are_a_matter_of_capacity() {
    let emulator = Emulator::start(FACTOR, None).await;
    let mut ours = Deployment::new(&emulator, "nemo").await;
    // The account's quota is one such instance.
    ours.spec.gpu.nodes = 9;
    let failure = ours.up(StepId::GpuNodes).await.expect_err("the quota does not allow it");
    assert_eq!((failure.kind, failure.step), (Kind::Capacity, Some("gpu-nodes")), "{}", failure.message);
    assert!(failure.message.contains("AsgInstanceLaunchFailures") && failure.message.to_lowercase().contains("vcpu"), "{}", failure.message);
    ours.spec.gpu.nodes = 1;
    ours.up(StepId::GpuNodes).await.expect("one there is");
    assert_eq!(emulator.writes().await.of("eks:DeleteNodegroup"), 1);
}

/// A file system that ends as FAILED: FSx's own reason, and another one the next time.
#[tokio::test]
async fn a_file_system_that_fails_is_made_anew() {
    let emulator = Emulator::start(FACTOR, None).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    emulator.fault(json!({"service": "fsx", "operation": "CreateFileSystem", "effect": "failed", "reason": "Amazon FSx is unable to create it", "times": 1})).await;
    let failure = ours.up(StepId::Filesystem).await.expect_err("it fails");
    assert!(failure.message.contains("Amazon FSx is unable to create it"), "{}", failure.message);
    ours.up(StepId::Filesystem).await.expect("the next one works");
    assert_eq!(ours.existing(&[StepId::Filesystem]).await.len(), 1);
}

/// Interfaces that nobody holds are taken away; what a load balancer holds is named with its owner, and goes when that is gone.
#[tokio::test]
async fn what_blocks_the_network_is_removed_or_named() {
    let emulator = Emulator::start(FACTOR, None).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    let (facts, _) = ours.up(StepId::Network).await.expect("a network");
    ours.up(StepId::Cluster).await.expect("a cluster");
    let ec2 = aws_sdk_ec2::Client::new(&emulator.sdk().await);
    let subnet = facts["private_subnets"][0]["id"].as_str().unwrap();
    ec2.create_network_interface().subnet_id(subnet).description("aws-K8S-i-0123").send().await.expect("an interface");
    let balancer = emulator.ask(reqwest::Method::POST, "loadbalancer", Some(json!({"cluster": "nemo", "namespace": "default", "service": "web"}))).await;
    let failures = ours.remove(&ALL).await;
    let [failure] = failures.as_slice() else { panic!("{failures:?}") };
    assert_eq!((failure.kind, failure.step), (Kind::Conflict, Some("network")), "{}", failure.message);
    assert!(failure.message.contains("a load balancer"), "{}", failure.message);
    assert!(!failure.message.contains("aws-K8S"), "the free one is gone: {}", failure.message);
    emulator.ask(reqwest::Method::DELETE, &format!("loadbalancer?name={}", balancer["name"].as_str().unwrap()), None).await;
    nemo::engine::clock::sleep(std::time::Duration::from_millis(200)).await;
    let failures = ours.remove(&ALL).await;
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(ours.existing(&ALL).await, []);
}

/// An interface or a security group that somebody made in our VPC stays, and is named with its tags; the rest of the deployment goes.
#[tokio::test]
async fn what_others_made_in_the_network_stays_and_is_named() {
    let emulator = Emulator::start(FACTOR, None).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    let (facts, _) = ours.up(StepId::Network).await.expect("a network");
    ours.up(StepId::Cluster).await.expect("a cluster");
    let ec2 = aws_sdk_ec2::Client::new(&emulator.sdk().await);
    let subnet = facts["private_subnets"][0]["id"].as_str().unwrap();
    let tag = aws_sdk_ec2::types::Tag::builder().key("owner").value("bob").build();
    let tags = |kind| aws_sdk_ec2::types::TagSpecification::builder().resource_type(kind).tags(tag.clone()).build();
    let call = ec2.create_network_interface().subnet_id(subnet).description("for later").tag_specifications(tags(aws_sdk_ec2::types::ResourceType::NetworkInterface));
    let interface = call.send().await.expect("an interface").network_interface.unwrap().network_interface_id.unwrap();
    let call = ec2.create_security_group().group_name("bobs").description("bob's").vpc_id(facts["vpc_id"].as_str().unwrap());
    let group = call.tag_specifications(tags(aws_sdk_ec2::types::ResourceType::SecurityGroup)).send().await.expect("a group").group_id.unwrap();
    let failures = ours.remove(&ALL).await;
    let [failure] = failures.as_slice() else { panic!("{failures:?}") };
    assert_eq!((failure.kind, failure.step), (Kind::Conflict, Some("network")), "{}", failure.message);
    for words in [interface.as_str(), "for later", group.as_str(), "bobs", "owner=bob"] {
        assert!(failure.message.contains(words), "{words}: {}", failure.message);
    }
    assert!(ours.existing(&[StepId::Cluster]).await.is_empty(), "the cleanup went on");
    ec2.delete_network_interface().network_interface_id(&interface).send().await.expect("it is still there");
    let failures = ours.remove(&ALL).await;
    let [failure] = failures.as_slice() else { panic!("{failures:?}") };
    assert!(failure.kind == Kind::Conflict && failure.message.contains(&group) && !failure.message.contains(&interface), "{}", failure.message);
    ec2.delete_security_group().group_id(&group).send().await.expect("it is still there");
    let failures = ours.remove(&ALL).await;
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(ours.existing(&ALL).await, []);
}

/// A rule of a moment ago is not yet seen by FSx: tried again, and said so.
#[tokio::test]
async fn a_security_group_that_is_not_yet_known_is_waited_for() {
    let emulator = Emulator::start(FACTOR, None).await;
    let ours = Deployment::new(&emulator, "nemo").await;
    let words = "The file system cannot be created because the default security group in the subnet provided or the provided security groups do not permit Lustre LNET network traffic on port 988";
    emulator
        .fault(json!({"service": "fsx", "operation": "CreateFileSystem", "effect": "error", "code": "InvalidNetworkSettings", "status": 400, "message": words, "first": 1}))
        .await;
    let (_, said) = ours.up(StepId::Filesystem).await.expect("in the end");
    assert_eq!(said.iter().filter(|event| event["kind"] == "retrying").count(), 1);
    assert_eq!(ours.existing(&[StepId::Filesystem]).await.len(), 1);
}
