//! Every rendered document against the golden folder, and every flag against the list of what the real parsers accept.
//!
//! `NEMO_GOLDEN=write cargo test --test golden` writes the folder anew; the difference is for a reader.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends here")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use nemo::config::{EncodeWorker, Form, Inputs, Role, Topology, load, model, model_names, refusal};
use nemo::k8s::{Document, Owner};
use nemo::lint::{Linter, Severity};
use nemo::render::{Rendered, serving};
use serde_json::Value;

#[path = "golden/documents.rs"]
mod documents;
#[path = "golden/gateway.rs"]
mod gateway;
#[path = "golden/read_rate.rs"]
mod read_rate;
#[path = "golden/stacks.rs"]
mod stacks;

use documents::{ENCODED_BY_DYNAMO, every_form, everything, forms_of, serving_values, spec, values_of};

/// All that helm gets values for.
const CHARTS: [&str; 4] = ["lws", "nvidia-device-plugin", "aws-efa-k8s-device-plugin", "dynamo-platform"];

fn golden(folder: &str, rendered: &Rendered) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let path = folder.join(rendered.file);
    if std::env::var_os("NEMO_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, &rendered.text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(rendered.text, golden, "{} differs; NEMO_GOLDEN=write cargo test --test golden writes it anew", path.display());
}

#[test]
fn documents_are_as_in_the_golden_folder() {
    for rendered in everything().into_iter().chain(CHARTS.map(values_of)).chain(stacks::stacks()) {
        golden("p5en.48xlarge-bf16", &rendered);
    }
}

#[test]
fn every_topology_in_every_form_is_as_in_its_golden_folder() {
    for (name, settings) in every_form() {
        for rendered in serving(&serving_values(&settings)).unwrap() {
            golden(&format!("p5en.48xlarge-bf16-{name}"), &rendered);
        }
    }
}

/// Those who make GPU nodes that `nemo up` does not make.
const OTHER_COMPUTES: [&str; 2] = ["auto-mode", "hyperpod"];

#[test]
fn the_other_makers_of_nodes_have_golden_folders_too() {
    for compute in OTHER_COMPUTES {
        for (topology, form) in [("aggregated", "deployments"), ("pipeline-parallel", "lws"), ("disaggregated", "dgd-v1beta1")] {
            let settings = [("compute", compute), ("serve.topology", topology), ("serve.form", form), ("gpu.nodes", "3")];
            for rendered in serving(&serving_values(&settings)).unwrap() {
                golden(&format!("{compute}-p5en.48xlarge-bf16-{topology}-{form}"), &rendered);
            }
        }
    }
}

/// What pods are on those nodes differs by the nodes' labels alone, in every topology and form.
#[test]
fn who_makes_the_nodes_is_seen_in_their_labels_and_nowhere_else() {
    let of_nodes = |line: &str| {
        ["p5en.48xlarge", "eks.amazonaws.com/compute-type", "sagemaker.amazonaws.com/node-health-status", "[\"auto\"]", "[\"Schedulable\"]", "operator: In"]
            .iter()
            .any(|mark| line.contains(mark))
    };
    let rest = |settings: &[(&str, &str)]| -> Vec<String> {
        let rendered = serving(&serving_values(settings)).unwrap();
        rendered.iter().flat_map(|file| file.text.lines()).filter(|line| !of_nodes(line)).map(str::to_owned).collect()
    };
    let labels = |settings: &[(&str, &str)]| serving(&serving_values(settings)).unwrap().iter().map(|file| file.text.matches("[\"ml.p5en.48xlarge\"]").count()).sum::<usize>();
    for (name, mut settings) in every_form() {
        let managed = rest(&settings);
        assert_eq!(labels(&settings), 0, "{name}");
        for compute in OTHER_COMPUTES {
            settings.push(("compute", compute));
            assert_eq!(rest(&settings), managed, "{name} {compute}");
            assert_eq!(labels(&settings) > 0, compute == "hyperpod", "{name} {compute}");
            assert_eq!(would_not_serve(&settings), Vec::<String>::new(), "{name} {compute}");
            assert_eq!(spec(&settings).charts().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["dynamo-platform", "lws"]);
            settings.pop();
        }
    }
}

#[test]
fn every_document_is_an_object_with_a_name_and_carries_our_marks() {
    for rendered in everything() {
        assert!(!rendered.manifests.is_empty(), "{}", rendered.file);
        for manifest in rendered.manifests {
            let document = Document::new(manifest, Owner { deployment: "nemo", step: "serve" }).unwrap();
            let labels = document.object().metadata.labels.clone().unwrap();
            assert_eq!((labels["app.kubernetes.io/managed-by"].as_str(), labels["nemo.dev/deployment"].as_str()), ("nemo", "nemo"));
            assert!(document.object().metadata.annotations.as_ref().unwrap()["nemo.dev/inputs"].len() == 16);
        }
    }
}

/// Flag to its row: takes, choices.
type Flags = BTreeMap<String, (String, Vec<String>)>;

/// Read once: thousands of command lines are put to it.
static FRONTEND: LazyLock<Flags> = LazyLock::new(|| flags(&[("dynamo.frontend", "1.6.1")]));
static ENGINE: LazyLock<Flags> = LazyLock::new(|| flags(&[("dynamo.vllm", "1.6.1"), ("vllm", "0.31.0")]));
static SERVER: LazyLock<Flags> = LazyLock::new(|| flags(&[("vllm", "0.31.0"), ("vllm-serve", "0.31.0")]));

/// What the parsers of these programs take, in the versions of the platform.
fn flags(programs: &[(&str, &str)]) -> Flags {
    let rows = include_str!("../configs/engine-flags.tsv").lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect::<Vec<_>>());
    let rows = rows.filter(|row| programs.iter().any(|(program, version)| row[0] == *program && row[1].split(',').any(|other| other == *version)));
    let choices = |row: &[&str]| row[4].split(',').filter(|choice| !choice.is_empty()).map(str::to_owned).collect();
    rows.flat_map(|row| {
        let entry = (row[3].to_owned(), choices(&row));
        std::iter::once(row[2]).chain(row[5].split(',').filter(|other| !other.is_empty())).map(move |flag| (flag.to_owned(), entry.clone())).collect::<Vec<_>>()
    })
    .collect()
}

/// The manifests of one topology in one form.
fn manifests(settings: &[(&str, &str)]) -> Vec<Value> {
    serving(&serving_values(settings)).unwrap().into_iter().flat_map(|rendered| rendered.manifests).collect()
}

/// `dynamo.vllm`, `dynamo.frontend`, `vllm serve`: what of these a container runs.
fn program(container: &Value) -> Option<&str> {
    let command = container["command"].as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
    match command.as_slice() {
        ["vllm", "serve"] => Some("vllm serve"),
        ["python3", "-m", module] => Some(module),
        _ => None,
    }
}

/// Every container that runs Dynamo or vLLM, wherever it is in the manifests.
fn containers(value: &Value, found: &mut Vec<Value>) {
    if program(value).is_some() {
        found.push(value.clone());
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| containers(item, found)),
        Value::Object(fields) => fields.values().for_each(|item| containers(item, found)),
        _ => {}
    }
}

fn containers_of(settings: &[(&str, &str)]) -> Vec<Value> {
    let mut found = Vec::new();
    manifests(settings).iter().for_each(|manifest| containers(manifest, &mut found));
    found
}

/// What the lint calls an error.
fn would_not_serve(settings: &[(&str, &str)]) -> Vec<String> {
    let mut linter = Linter::new().expect("the lint's figures are whole");
    manifests(settings).into_iter().for_each(|manifest| linter.value("rendered", manifest));
    linter.end().findings.iter().filter(|finding| finding.severity == Severity::Error).map(ToString::to_string).collect()
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(|word| word.as_str().expect("every word is a string")).collect()
}

/// Does the parser take it? In its words if not.
fn refused(program: &str, args: &[&str]) -> Option<String> {
    let known = match program {
        "dynamo.frontend" => &*FRONTEND,
        "vllm serve" => &*SERVER,
        _ => &*ENGINE,
    };
    let mut seen = Vec::new();
    // `vllm serve` has the model as its first word.
    let mut args = args.iter().skip(usize::from(program == "vllm serve")).peekable();
    while let Some(flag) = args.next() {
        let Some((takes, choices)) = known.get(*flag) else { return Some(format!("the parser of this version has no {flag}")) };
        let mut values = Vec::new();
        while let Some(value) = args.next_if(|next| !next.starts_with("--")) {
            values.push(*value);
        }
        if seen.contains(flag) {
            return Some(format!("{flag} twice"));
        }
        seen.push(flag);
        match (takes.as_str(), values.as_slice()) {
            ("none", []) | ("many", [_, ..]) => {}
            ("json", [value]) => match serde_json::from_str::<Value>(value) {
                Ok(value) => {
                    let keyed = known.keys().any(|key| key.starts_with(&format!("{flag}.")));
                    let wrong = value.as_object().into_iter().flatten().find(|(key, _)| keyed && !known.contains_key(&format!("{flag}.{key}")));
                    if let Some((key, _)) = wrong {
                        return Some(format!("{flag} knows no key {key}"));
                    }
                }
                Err(error) => return Some(format!("{flag} {value}: {error}")),
            },
            ("one", [value]) if choices.is_empty() || choices.iter().any(|choice| choice == value || choice == "*") => {}
            _ => return Some(format!("{flag} takes {takes} of {choices:?}, and got {values:?}")),
        }
    }
    None
}

#[test]
fn the_real_parsers_accept_every_command_line() {
    for (name, settings) in every_form() {
        let found = containers_of(&settings);
        assert!(found.len() >= 2, "{name}");
        for container in found {
            let program = program(&container).unwrap();
            assert_eq!(refused(program, &words(&container["args"])), None, "{name}: {program}");
        }
    }
}

/// Every model in every precision that fits the nodes, in every topology and form.
#[test]
fn every_model_renders_and_its_command_lines_are_accepted() {
    let folder = std::env::temp_dir().join("nowhere");
    let mut rendered = std::collections::BTreeSet::new();
    for name in model_names() {
        for precision in model(name, "test").unwrap().precisions.into_keys() {
            for (form, mut settings) in forms_of(name) {
                settings.extend([("model", name), ("precision", precision.as_str())]);
                let flags = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
                if let Err(error) = load(&Inputs { working_folder: folder.clone(), file: None, env: Vec::new(), flags }) {
                    let words = error.to_string();
                    assert!(
                        words.contains("takes no pictures") || words.contains("takes 16 GPUs") || words.contains("cannot load below vLLM") || words.contains("does not fit"),
                        "{name} {precision} {form}: {words}"
                    );
                    continue;
                }
                for container in containers_of(&settings) {
                    let program = program(&container).unwrap();
                    assert_eq!(refused(program, &words(&container["args"])), None, "{name} {precision} {form}: {program}");
                }
                assert_eq!(would_not_serve(&settings), Vec::<String>::new(), "{name} {precision} {form}");
                rendered.insert((name, precision.clone()));
            }
        }
    }
    assert!(rendered.len() >= 15, "{rendered:?}");
}

/// The older set of versions: what it can load is rendered so that the lint, which knows its parsers, finds nothing; the rest is refused.
#[test]
fn the_older_set_serves_what_it_can_load() {
    let folder = std::env::temp_dir().join("nowhere");
    let (mut rendered, mut refused) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for name in model_names() {
        for precision in model(name, "test").unwrap().precisions.into_keys() {
            for (form, mut settings) in forms_of(name) {
                settings.extend([("model", name), ("precision", precision.as_str()), ("platform.set", "1.4")]);
                let flags = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
                match load(&Inputs { working_folder: folder.clone(), file: None, env: Vec::new(), flags }) {
                    Ok(_) => {
                        assert_eq!(would_not_serve(&settings), Vec::<String>::new(), "{name} {precision} {form}");
                        rendered.insert(name);
                    }
                    Err(error) if error.to_string().contains("cannot load below vLLM") => drop(refused.insert(name)),
                    Err(error) if error.to_string().contains("takes no pictures") => {}
                    Err(error) => assert!(error.to_string().contains("takes 16 GPUs") || error.to_string().contains("does not fit"), "{name} {precision} {form}: {error}"),
                }
            }
        }
    }
    assert!(rendered.contains("nemotron-3-ultra") && refused.contains("nemotron-3.5-super-vl") && rendered.is_disjoint(&refused), "{rendered:?} {refused:?}");
}

#[test]
fn a_wrong_flag_is_seen() {
    for (args, why) in [
        (vec!["--tensor-parallel", "8"], "the parser of this version has no --tensor-parallel"),
        (vec!["--headless", "1"], "--headless takes none of [], and got [\"1\"]"),
        (vec!["--mamba-cache-mode", "aligned"], "--mamba-cache-mode takes one of [\"align\", \"all\", \"none\"], and got [\"aligned\"]"),
        (vec!["--kv-transfer-config", r#"{"backends": ["LIBFABRIC"]}"#], "--kv-transfer-config knows no key backends"),
        (vec!["--nnodes", "2", "--nnodes", "2"], "--nnodes twice"),
    ] {
        assert_eq!(refused("dynamo.vllm", &args).as_deref(), Some(why));
    }
    assert!(refused("dynamo.frontend", &["--tensor-parallel-size", "8"]).is_some());
}

#[test]
fn every_line_has_its_reason() {
    for (name, settings) in every_form() {
        let values = serving_values(&settings);
        let args = values.components.iter().flat_map(|component| component.templates.iter().flat_map(|template| &template.args)).chain(&values.frontend_args);
        let env = values.components.iter().flat_map(|component| &component.env).chain(&values.frontend_env);
        let reasons = args.map(|because| &because.reason).chain(env.map(|because| &because.reason));
        for reason in reasons {
            assert!(reason.len() > 20 && reason.ends_with('.') && !reason.contains('\n'), "{name}: {reason:?}");
        }
    }
}

/// README.md shows the table of the code.
#[test]
fn the_readme_says_which_topology_is_in_which_form() {
    let readme = include_str!("../README.md");
    let header = format!("| topology | {} |", Form::ALL.map(Form::name).join(" | "));
    assert!(readme.contains(&header), "{header}");
    let apart = [(EncodeWorker::Vllm, "vLLM"), (EncodeWorker::Dynamo, "Dynamo")].map(|(worker, whose)| (Some(worker), format!(" by {whose}'s encode workers")));
    let together = [(None, String::new())];
    for topology in Topology::ALL {
        let rows = if topology.splits_encode() { apart.as_slice() } else { together.as_slice() };
        for (encode_worker, whose) in rows {
            let cells = Form::ALL.map(|form| if refusal(topology, *encode_worker, form).is_none() { "yes" } else { "–" });
            let row = format!("| {topology}{whose} | {} |", cells.join(" | "));
            assert!(readme.contains(&row), "{row}");
        }
    }
}

fn env<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    container["env"].as_array()?.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

/// Pictures to vLLM's encoders first: who fetches what from whom, and what of a node each takes.
#[test]
fn engines_of_vllm_find_what_its_encoders_leave() {
    for (topology, roles) in [("e-pd", vec!["ec_producer", "ec_consumer"]), ("e-p-d", vec!["ec_producer", "ec_consumer", ""])] {
        let settings = [("serve.topology", topology), ("gpu.nodes", "3")];
        let rendered = serving(&serving_values(&settings)).unwrap();
        let files: Vec<_> = rendered.iter().map(|file| file.file).collect();
        let expected = if topology == "e-pd" { vec!["frontend.yaml", "encode.yaml", "worker.yaml"] } else { vec!["frontend.yaml", "encode.yaml", "prefill.yaml", "decode.yaml"] };
        assert_eq!(files, expected);
        assert!(rendered.iter().all(|file| file.text.contains("UNVERIFIED")), "{topology}: it was never run on GPUs");
        let deployments = rendered.iter().flat_map(|file| &file.manifests).filter(|manifest| manifest["kind"] == "Deployment");
        let pods: Vec<_> = deployments.map(|one| &one["spec"]["template"]["spec"]).collect();
        for (pod, role) in pods[1..].iter().zip(roles) {
            let engines = pod["containers"].as_array().unwrap();
            // Every GPU of the node: by one engine, or one each.
            assert_eq!(engines.len(), if role == "ec_producer" { 8 } else { 1 }, "{topology} {role}");
            for engine in engines {
                let args = words(&engine["args"]);
                let transfer = args.iter().position(|word| *word == "--ec-transfer-config").map(|at| serde_json::from_str::<Value>(args[at + 1]).unwrap());
                assert_eq!(transfer.as_ref().map_or("", |transfer| transfer["ec_role"].as_str().unwrap()), role, "{topology}");
                assert_eq!(args.contains(&"--mm-encoder-only"), role == "ec_producer");
                assert!(args.windows(2).any(|pair| pair == ["--allowed-media-domains", "nothing.invalid"]), "{topology}: no host is named");
                let mounted = engine["volumeMounts"].as_array().unwrap().iter().any(|mount| mount["mountPath"] == "/encoded" && mount["subPath"] == "encoded/nemo");
                assert_eq!(mounted, transfer.is_some_and(|transfer| transfer["ec_connector_extra_config"]["shared_storage_path"] == "/encoded"));
            }
            let routed = pod["initContainers"].as_array().into_iter().flatten().any(|one| one["name"] == "router" && one["restartPolicy"] == "Always");
            assert_eq!(routed, role.is_empty() || (topology == "e-pd" && role == "ec_consumer"), "{topology} {role}: beside the engines that answer");
        }
        let config = rendered[0].manifests[0]["data"]["nginx.conf"].as_str().unwrap();
        assert!(config.contains("    * \"vllm-encode.nemo.svc.cluster.local:8207,vllm-encode.nemo.svc.cluster.local:8200,"), "{config}");
        let prefiller = if topology == "e-p-d" { "x-prefiller-host-port \"vllm-prefill.nemo.svc.cluster.local:8000\"" } else { "x-prefiller-host-port \"\"" };
        assert!(config.contains(prefiller), "what a client names is not heard: {config}");
    }
}

/// What a variable must be, where: topologies by their names.
#[test]
fn variables_are_those_of_the_topology() {
    for (name, settings) in every_form() {
        for container in containers_of(&settings).iter().filter(|container| program(container) == Some("dynamo.vllm")) {
            let many = name.contains("-parallel-");
            let moves_keys = words(&container["args"]).contains(&"--kv-transfer-config");
            let by_dynamo = name.starts_with("dynamo-");
            for (variable, value) in [
                ("FI_PROVIDER", Some("efa")),
                ("NCCL_NET_PLUGIN", Some("ofi")),
                ("GLOO_SOCKET_IFNAME", Some("eth0")),
                ("NCCL_NET", many.then_some("Libfabric")),
                ("VLLM_NIXL_SIDE_CHANNEL_HOST", moves_keys.then_some("$(POD_IP)")),
                ("VLLM_SSM_CONV_STATE_LAYOUT", (moves_keys && !by_dynamo).then_some("DS")),
                ("UCX_NET_DEVICES", (moves_keys || by_dynamo).then_some("eth0")),
                ("DYN_MM_ALLOW_INTERNAL", Some("0")),
                ("DYN_NAMESPACE", (!name.contains("dgd")).then_some("nemo")),
            ] {
                assert_eq!(env(container, variable), value, "{name}: {variable}");
            }
            let names: Vec<_> = container["env"].as_array().unwrap().iter().map(|variable| variable["name"].as_str().unwrap()).collect();
            let address = names.iter().position(|name| *name == "POD_IP").unwrap();
            assert!(names.iter().position(|name| *name == "DYN_TCP_RPC_HOST").unwrap() > address, "{name}: a variable is expanded only behind what it names");
        }
    }
}

/// Who sends pictures to Dynamo's encode workers takes what comes back, in the same way.
#[test]
fn dynamos_encode_workers_are_asked_and_understood() {
    for (name, settings) in every_form().into_iter().filter(|(name, _)| name.starts_with("dynamo-")) {
        let mut roles = Vec::new();
        let found = containers_of(&settings);
        for container in found.iter().filter(|container| words(&container["command"])[2] == "dynamo.vllm") {
            let args = words(&container["args"]);
            let value = |flag: &str| args.iter().position(|word| *word == flag).map(|at| args[at + 1]);
            let has = |flag: &str| args.contains(&flag);
            let role = value("--disaggregation-mode").unwrap_or("worker");
            roles.push(role);
            let asks = matches!(role, "worker" | "prefill");
            assert_eq!((has("--route-to-encoder"), has("--enable-mm-embeds"), has("--enable-multimodal")), (asks, role != "encode", true), "{name} {role}");
            assert_eq!(value("--embedding-transfer-mode"), (role != "decode").then_some("nixl-write"), "{name} {role}");
            assert!(!has("--trust-remote-code") && (role != "encode" || !has("--tensor-parallel-size")), "{name} {role}");
            if !name.contains("dgd") {
                assert_eq!(env(container, "DYN_COMPONENT"), Some(if role == "worker" || role == "decode" { "backend" } else { role }), "{name}");
            }
        }
        assert_eq!(roles, if name.contains("e-pd") { vec!["encode", "worker"] } else { vec!["encode", "prefill", "decode"] }, "{name}");
    }
}

/// A list of hosts that nobody would heed is refused, and not rendered.
#[test]
fn dynamos_workers_know_no_list_of_hosts() {
    let inputs = |flags: &[(&str, &str)]| Inputs {
        working_folder: std::env::temp_dir().join("nowhere"),
        file: None,
        env: Vec::new(),
        flags: flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    };
    let encode = [("model", ENCODED_BY_DYNAMO), ("serve.topology", "e-pd"), ("gpu.nodes", "2")];
    for flags in [&encode[..], &[("serve.topology", "aggregated")], &[("serve.topology", "disaggregated"), ("gpu.nodes", "2")]] {
        let error = load(&inputs(&[flags, &[("serve.media_domains", "a.example.com")]].concat())).unwrap_err().to_string();
        assert!(error.contains("serve.media_domains") && error.contains("they know no list of hosts"), "{error}");
        assert!(load(&inputs(flags)).is_ok());
    }
}

#[test]
fn nemotron_is_not_for_dynamos_encode_worker() {
    for form in ["dgd-v1alpha1", "dgd-v1beta1", "dgd-grove"] {
        for topology in ["e-pd", "e-p-d"] {
            let flags = [("serve.topology", topology), ("serve.form", form), ("gpu.nodes", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
            let error = load(&Inputs { working_folder: std::env::temp_dir().join("nowhere"), file: None, env: Vec::new(), flags: flags.into() }).unwrap_err().to_string();
            assert!(
                error.contains(&format!("there is no {topology} as {form}")) && error.contains("Dynamo's own encode worker") && error.contains("knows no Nemotron model"),
                "{error}"
            );
        }
    }
}

/// The engine's shape, the pods' and the nodes' agree.
#[test]
fn ranks_pods_and_gpus_agree() {
    for (name, settings) in every_form() {
        for part in spec(&settings).parts() {
            let ranks = part.tensor_parallel_size * part.pipeline_parallel_size * part.data_parallel_size;
            let one = part.role == Role::Encode && name.starts_with("dynamo-");
            assert!(ranks == if one { 1 } else { part.nodes * 8 }, "{name}: {part:?}");
        }
        for container in containers_of(&settings).iter().filter(|container| program(container) == Some("dynamo.vllm") && !container["resources"].is_null()) {
            assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "8", "{name}");
            assert_eq!(container["resources"]["limits"]["vpc.amazonaws.com/efa"], "16", "{name}");
            assert_eq!(container["resources"]["limits"].get("memory"), None, "{name}");
        }
    }
}

#[test]
fn half_the_gpus_an_engine_makes_two_engines_a_node() {
    let settings = [("serve.tensor_parallel_size", "4")];
    let args = containers_of(&settings).pop().unwrap()["args"].clone();
    let args = words(&args);
    let of = |flag: &str| args[args.iter().position(|arg| *arg == flag).unwrap() + 1];
    assert_eq!((of("--tensor-parallel-size"), of("--data-parallel-size")), ("4", "2"));
}

#[test]
fn pictures_from_named_hosts_only() {
    let settings = [("serve.topology", "e-pd"), ("gpu.nodes", "2"), ("serve.media_domains", "a.example.com,b.example.com")];
    let servers: Vec<Value> = containers_of(&settings).into_iter().filter(|container| words(&container["args"]).contains(&"--allowed-media-domains")).collect();
    assert!(servers.len() > 1, "the encoders fetch, and the engine that answers fetches what it encodes itself");
    for server in servers {
        let args = words(&server["args"]);
        let at = args.iter().position(|arg| *arg == "--allowed-media-domains").unwrap();
        assert_eq!(args[at + 1..at + 3], ["a.example.com", "b.example.com"]);
    }
}

/// The pods of a group, as LeaderWorkerSet makes them.
#[test]
fn only_the_first_of_an_engine_registers() {
    let group = |topology| {
        let found = manifests(&[("serve.topology", topology), ("gpu.nodes", "2")]);
        let of = |kind: &str, name: &str| found.iter().find(|manifest| manifest["kind"] == kind && manifest["metadata"]["name"] == name).cloned().unwrap();
        (of("LeaderWorkerSet", "vllm-worker")["spec"]["leaderWorkerTemplate"].clone(), of("Service", "vllm-worker-system")["spec"]["selector"].clone())
    };
    let (pods, selector) = group("pipeline-parallel");
    let follower = &pods["workerTemplate"]["spec"];
    assert_eq!((&pods["size"], &selector["app.kubernetes.io/component"]), (&2.into(), &"leader".into()));
    assert!(words(&follower["containers"][0]["args"]).contains(&"--headless"));
    assert!(!words(&pods["leaderTemplate"]["spec"]["containers"][0]["args"]).contains(&"--headless"));
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert!(follower["containers"][0].get(probe).is_none() && pods["leaderTemplate"]["spec"]["containers"][0].get(probe).is_some(), "{probe}");
    }
    assert_eq!(follower["automountServiceAccountToken"], false);
    let (pods, selector) = group("expert-parallel");
    assert_eq!((pods.get("leaderTemplate"), selector.get("app.kubernetes.io/component")), (None, None));
}

/// What scheduling and the engine need to agree on.
#[test]
fn the_worker_asks_for_what_its_ranks_use() {
    let worker = everything()
        .into_iter()
        .flat_map(|rendered| rendered.manifests)
        .find(|manifest| manifest["metadata"]["name"] == "vllm-worker" && manifest["kind"] == "Deployment")
        .unwrap();
    let pod = &worker["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for resource in ["nvidia.com/gpu", "vpc.amazonaws.com/efa", "hugepages-2Mi"] {
        assert_eq!(container["resources"]["requests"][resource], container["resources"]["limits"][resource], "{resource}: extended resources are not overcommitted");
    }
    let args = container["args"].as_array().unwrap();
    let size = args.iter().position(|arg| arg == "--tensor-parallel-size").map(|at| &args[at + 1]).unwrap();
    assert_eq!(&container["resources"]["limits"]["nvidia.com/gpu"], size);
    assert!(pod["volumes"].as_array().unwrap().iter().all(|volume| volume.get("hostPath").is_none()), "nothing of the host is mounted");
    let budget = container["startupProbe"]["failureThreshold"].as_u64().unwrap() * container["startupProbe"]["periodSeconds"].as_u64().unwrap();
    assert!(budget >= 2454, "the probe allows for the whole load");
}
