//! Settings as a user writes them: what comes out, and every error in its words.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::error::{Failure, Kind};

fn inputs(file: Option<&str>, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> (tempfile::TempDir, Inputs) {
    let folder = tempfile::tempdir().unwrap();
    if let Some(text) = file {
        std::fs::write(folder.path().join("nemo.toml"), text).unwrap();
    }
    let inputs = Inputs {
        working_folder: folder.path().into(),
        file: None,
        env: environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        flags: flags.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
    };
    (folder, inputs)
}

fn loaded(file: Option<&str>, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> (Spec, Layers) {
    let (_folder, inputs) = inputs(file, environment, flags);
    load(&inputs).unwrap()
}

/// The words of the failure; it is always one of the settings.
fn refused(file: Option<&str>, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
    let (_folder, inputs) = inputs(file, environment, flags);
    let failure = Failure::from(load(&inputs).unwrap_err());
    assert_eq!(failure.kind, Kind::Config, "{failure}");
    assert!(!failure.hints.is_empty(), "{failure}");
    failure.message
}

#[test]
fn without_anything_the_defaults_hold() {
    let (spec, layers) = loaded(None, &[], &[]);
    assert_eq!((spec.name.as_str(), spec.instance.type_name.as_str(), spec.precision_name.as_str()), ("nemo", "p5en.48xlarge", "bf16"));
    assert_eq!(spec.platform_name, "1.6");
    assert_eq!(spec.price_gpu_hour, None);
    assert_eq!(layers.get("gpu.nodes").unwrap().origin, Origin::Default);
    // The instance type's file and the model's are layers of their own.
    assert_eq!(spec.gpu.disk_gib, 500);
    assert_eq!(layers.get("gpu.disk_gib").unwrap().origin.to_string(), "configs/instances/p5en.48xlarge.toml");
    assert_eq!(spec.wait.rollout.limit_s, 7200);
    assert_eq!(layers.get("wait.rollout.limit_s").unwrap().origin.to_string(), "configs/models/nemotron-3.5-super-vl.toml");
}

#[test]
fn what_is_no_settings_file_is_refused_and_not_waited_for() {
    let large = format!("name = \"x\"\n# {}", "x".repeat(1_000_000));
    assert!(refused(Some(&large), &[], &[]).starts_with("nemo.toml: larger than 1000 kB"));
    let (folder, inputs) = inputs(None, &[], &[]);
    // A pipe that nobody writes to: opening it would not end.
    assert!(std::process::Command::new("mkfifo").arg(folder.path().join("nemo.toml")).status().unwrap().success());
    let failure = Failure::from(load(&inputs).unwrap_err());
    assert!(failure.kind == Kind::LocalIo && failure.message.starts_with("reading nemo.toml: a pipe, not a file"), "{failure}");
}

#[test]
fn each_layer_goes_over_the_one_before_and_says_so() {
    let file = "region = \"eu-west-1\"\n[gpu]\nnodes = 2\ndisk_gib = 600\n[bench]\nisl = 100\nosl = 50\n";
    let (spec, layers) =
        loaded(Some(file), &[("NEMO_BENCH_ISL", "200"), ("NEMO_BENCH_OSL", "60"), ("AWS_REGION", "us-east-2"), ("HF_ENDPOINT", "http://hub:1/")], &[("bench.osl", "70")]);
    assert_eq!((spec.gpu.nodes, spec.gpu.disk_gib, spec.bench.isl, spec.bench.osl), (2, 600, 200, 70));
    assert_eq!((spec.region.as_str(), spec.hub.endpoint.as_str()), ("us-east-2", "http://hub:1"));
    let origins: Vec<_> = ["gpu.nodes", "gpu.disk_gib", "bench.isl", "bench.osl", "region", "bench.seed"].map(|key| layers.get(key).unwrap().origin.to_string()).into();
    assert_eq!(origins, ["nemo.toml:3", "nemo.toml:4", "NEMO_BENCH_ISL", "--set bench.osl", "AWS_REGION", "default"]);
}

#[test]
fn ours_goes_over_the_variables_that_others_use() {
    let (spec, _) = loaded(None, &[("NEMO_REGION", "us-west-2"), ("AWS_REGION", "us-east-2"), ("NEMO_NAME", "")], &[]);
    assert_eq!((spec.region.as_str(), spec.name.as_str()), ("us-west-2", "nemo"));
}

#[test]
fn variables_of_other_programs_are_let_be() {
    let (spec, _) = loaded(None, &[("NEMO_BIN", "/bin/nemo"), ("NEMO_HOME", "/x"), ("NEMO_PORT_8000_TCP", "tcp://10.0.0.1:8000"), ("NEMO_CACHE_DIR", "/y")], &[]);
    assert_eq!(spec.name, "nemo");
}

#[test]
fn no_two_settings_share_a_variable() {
    let (_, layers) = loaded(None, &[], &[]);
    let mut variables: Vec<_> = layers.iter().map(|setting| Layers::variable(&setting.key)).collect();
    let all = variables.len();
    variables.sort();
    variables.dedup();
    assert_eq!(variables.len(), all);
    assert!(layers.iter().all(|setting| !setting.description.is_empty()), "every setting has its description");
}

#[test]
fn a_malformed_file_is_told_with_file_line_key_and_value() {
    insta::assert_snapshot!(refused(Some("name = \"a\"\n\n[gpu]\nnodse = 2\n"), &[], &[]), @r#"nemo.toml:4: unknown setting gpu.nodse = 2; did you mean "gpu.nodes"?"#);
    insta::assert_snapshot!(refused(Some("nodes = 2\n"), &[], &[]), @r#"nemo.toml:1: unknown setting nodes = 2; did you mean "gpu.nodes" or "serve.nodes" or "system.nodes"?"#);
    insta::assert_snapshot!(refused(Some("[gpus]\nnodes = 2\n"), &[], &[]), @r#"nemo.toml:1: unknown table [gpus] with nodes; did you mean "gpu"?"#);
    insta::assert_snapshot!(refused(Some("gpu = 2\n"), &[], &[]), @"nemo.toml:1: gpu = 2: must be a table: [gpu] with nodes, zone, disk_gib");
    insta::assert_snapshot!(refused(Some("[gpu]\nnodes = \"two\"\n"), &[], &[]), @r#"nemo.toml:2: gpu.nodes = "two": must be a whole number from 1 to 100"#);
    insta::assert_snapshot!(refused(Some("[gpu]\nnodes = 0\n"), &[], &[]), @"nemo.toml:2: gpu.nodes = 0: must be a whole number from 1 to 100");
    insta::assert_snapshot!(refused(Some("[storage]\nthroughput = 200\n"), &[], &[]), @"nemo.toml:2: storage.throughput = 200: must be one of 125, 250, 500, 1000");
    insta::assert_snapshot!(refused(Some("[gpu]\nzone = \"us-east-2a\"\n"), &[], &[]), @r#"nemo.toml:2: gpu.zone = "us-east-2a": must be a zone id such as use2-az1 (the same zone in every account; us-east-2a is a name, and differs), or nothing"#);
    insta::assert_snapshot!(refused(Some("name = \"a\"\nregion = us-east-2\n"), &[], &[]), @"nemo.toml:2: string values must be quoted, expected literal string: region = us-east-2");
    insta::assert_snapshot!(refused(Some("name = \"a\"\nname = \"b\"\n"), &[], &[]), @r#"nemo.toml:2: duplicate key: name = "b""#);
}

#[test]
fn all_that_is_wrong_is_told_at_once_in_the_order_of_the_file() {
    insta::assert_snapshot!(refused(Some("nmae = \"x\"\n[network]\ncidr = \"10.0.0.0/8\"\n"), &[("NEMO_GPU_NODE", "1")], &[("bench.osl", "many")]), @r#"
    nemo.toml:1: unknown setting nmae = "x"; did you mean "name"?
    nemo.toml:3: network.cidr = "10.0.0.0/8": must be a private IPv4 network of /16 to /20 such as 10.180.0.0/16, outside 172.17.0.0/16 (which nodes use themselves)
    NEMO_GPU_NODE=1: no setting is set by this variable; did you mean NEMO_GPU_NODES?
    --set bench.osl: bench.osl = "many": must be a whole number from 1 to 10000000
    "#);
}

#[test]
fn names_that_are_not_in_the_catalogue_get_the_nearest() {
    insta::assert_snapshot!(refused(None, &[], &[("instance", "p5n.48xlarge")]), @r#"--instance: instance = "p5n.48xlarge": "p5n.48xlarge" is no instance type in configs/instances/; did you mean "p5en.48xlarge" or "p5.48xlarge" or "p5e.48xlarge"?"#);
    insta::assert_snapshot!(refused(Some("model = \"nemotron-3-super-vl\"\n"), &[], &[]), @r#"nemo.toml:1: model = "nemotron-3-super-vl": "nemotron-3-super-vl" is no model in configs/models/; did you mean "nemotron-3.5-super-vl"?"#);
    insta::assert_snapshot!(refused(None, &[("NEMO_PRECISION", "fp16")], &[]), @r#"NEMO_PRECISION: precision = "fp16": "fp16" is no precision in configs/models/nemotron-3.5-super-vl.toml"#);
    insta::assert_snapshot!(refused(None, &[], &[("platform.set", "1.7")]), @r#"--set platform.set: platform.set = "1.7": "1.7" is no set of versions in configs/platform.toml; did you mean "1.4" or "1.6"?"#);
}

#[test]
fn a_name_that_aws_would_refuse() {
    insta::assert_snapshot!(refused(None, &[], &[("name", "My_Cluster")]), @r#"--name: name = "My_Cluster": must be lowercase letters, digits and single dashes, beginning with a letter and ending with a letter or digit, at most 40 characters (EKS clusters, CloudFormation stacks and ECR repositories are called by it)"#);
}

#[test]
fn settings_that_contradict_each_other() {
    insta::assert_snapshot!(refused(None, &[], &[("instance", "m7i.2xlarge")]), @r#"--instance: instance = "m7i.2xlarge": m7i.2xlarge has no GPU"#);
    insta::assert_snapshot!(refused(Some("[serve]\nreplicas = 2\n"), &[], &[]), @"nemo.toml:2: serve.replicas = 2: 2 worker(s) of 1 node(s) take 2 GPU nodes, and there are 1 (default: gpu.nodes = 1); --nodes 2 has as many");
    insta::assert_snapshot!(refused(Some("[serve]\nmax_model_len = 1000000\n"), &[], &[]), @"nemo.toml:2: serve.max_model_len = 1000000: NVIDIA Nemotron 3.5 Super VL 120B-A12B takes at most 262144");
}

#[test]
fn files_that_cannot_be_read() {
    let (folder, mut inputs) = inputs(None, &[], &[]);
    inputs.file = Some(PathBuf::from("other.toml"));
    let failure = Failure::from(load(&inputs).unwrap_err());
    assert_eq!((failure.kind, failure.message.as_str()), (Kind::Config, "other.toml: there is no such file"));
    std::fs::write(folder.path().join("other.toml"), b"name = \"a\"\n\xff\xfe").unwrap();
    assert_eq!(Failure::from(load(&inputs).unwrap_err()).message, "other.toml:2: not UTF-8 text");
    std::fs::create_dir(folder.path().join("nemo.toml")).unwrap();
    inputs.file = None;
    assert_eq!(Failure::from(load(&inputs).unwrap_err()).kind, Kind::LocalIo);
}

#[test]
fn cells_without_a_source_are_listed() {
    let (spec, _) = loaded(None, &[], &[]);
    let cells = unverified(&spec);
    assert!(cells.contains(&"p5en.48xlarge quota (L-417A185B)".to_owned()), "{cells:?}");
    assert!(cells.contains(&"platform 1.6 images helm (docker.io/alpine/helm:3.22.0)".to_owned()), "{cells:?}");
    assert!(!cells.iter().any(|cell| cell.contains("vcpus")), "{cells:?}");
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:?}")),
        "[a-z0-9.-]{0,12}".prop_map(|t| format!("{t:?}"))
    ]
}

proptest! {
    /// Whatever stands in the file, loading never panics, and a refusal names file and line.
    #[test]
    fn any_file_loads_or_is_refused_with_its_place(text in "\\PC{0,60}") {
        let (_folder, inputs) = inputs(Some(&text), &[], &[]);
        if let Err(error) = load(&inputs) {
            prop_assert!(error.to_string().starts_with("nemo.toml:"), "{}", error);
        }
    }

    /// A setting with any value is either taken as it is, or refused with its line, key and value.
    #[test]
    fn any_value_is_taken_or_refused_with_line_key_and_value(which in 0usize..200, value in any_value()) {
        let (_, layers) = loaded(None, &[], &[]);
        let keys: Vec<_> = layers.iter().map(|setting| setting.key.clone()).collect();
        let key = &keys[which % keys.len()];
        let (_folder, inputs) = inputs(Some(&format!("# a comment\n{key} = {value}\n")), &[], &[]);
        match load(&inputs) {
            Ok((_, layers)) => prop_assert_eq!(layers.get(key).unwrap().origin.to_string(), "nemo.toml:2"),
            Err(error) => prop_assert!(error.to_string().starts_with(&format!("nemo.toml:2: {key} = ")), "{}", error),
        }
    }
}
