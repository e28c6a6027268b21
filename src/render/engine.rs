//! The engine's command line, each flag with its reason.

use serde_json::json;

use super::component::{Argument, Because, Rank, Template, because, flag, set};
use super::serving::Facts;
use crate::config::{Flags, Part, Role, Spec, Topology};

/// Where the ranks of an engine that spans nodes meet.
const MASTER_PORT: u16 = 29500;
/// Where the engines of a data-parallel group meet.
const DATA_PARALLEL_PORT: u16 = 13445;
/// Where `vllm serve` listens, behind what sends pictures to the encoders first. An encoder's port on GPU N is this and N.
pub(super) const SERVE_PORT: u16 = 8200;
/// Where engines find what the encoders have left.
pub(super) const ENCODED: &str = "/encoded";
/// Seconds that a prefill worker keeps what it has computed for a decode worker that has not fetched it: vLLM's own 30 are over under load, and
/// expired blocks are then read all the same (vllm issue 52234).
const LEASE_S: u32 = 300;

/// Tokens that an encoder takes in one step: vLLM's examples/disaggregated/disaggregated_encoder/disagg_1e1pd_example.sh, read 2026-12-01.
const ENCODER_TOKENS: u32 = 114_688;
const FETCHES: &str = "Reads what the encoders have left, and encodes itself what it does not find.";

/// The templates of a replica's pods with their arguments. `ranks`: nobody else tells the pods of a group their ranks.
pub(super) fn templates(spec: &Spec, facts: &Facts, part: &Part, ranks: bool) -> Vec<Template> {
    let template = |rank| {
        let mut args = arguments(spec, facts, part);
        if spec.splits_by_vllm() && part.role != Role::Encode {
            args.push(because(
                "For the router beside it, probes and metrics; /health answers once the engine takes requests.",
                [set("--host", "0.0.0.0"), set("--port", SERVE_PORT)],
            ));
        }
        if ranks && part.nodes > 1 {
            args.extend(group(spec, part, rank));
        }
        if !spec.splits_by_vllm() {
            args.extend(planes(spec));
        }
        Template { rank, args }
    };
    // An engine of several nodes has one head; the engines of a data-parallel group are alike.
    if ranks && part.pipeline_parallel_size > 1 { vec![template(Rank::Leader), template(Rank::Follower)] } else { vec![template(Rank::Any)] }
}

fn arguments(spec: &Spec, facts: &Facts, part: &Part) -> Vec<Because<Argument>> {
    let (files, encodes) = (format!("/shared/{}", facts.model_path), part.role == Role::Encode);
    // `vllm serve` takes the model as its first word.
    let model = if spec.splits_by_vllm() { flag(&files) } else { set("--model", files) };
    let mut args = vec![because("The files on the shared volume, under the name that requests give.", [model, set("--served-model-name", &spec.precision.repository)])];
    if encodes && !spec.splits_by_vllm() {
        args.extend(encoder(spec));
        return args;
    }
    if !encodes {
        args.extend(layout(spec, part));
    }
    args.extend(limits(spec, part.role));
    if spec.sees_pictures() {
        args.extend(pictures(spec));
    }
    if encodes {
        args.extend(encoder_alone(spec));
    } else {
        args.extend(hybrid(spec));
        args.extend(parsers(spec));
        args.extend(role(spec, part.role));
        args.extend(encoded_apart(spec, part.role));
    }
    // What the topology needs goes over what the model is better off with.
    let said: Vec<String> = args.iter().flat_map(|because| &because.lines).map(|line| bare(&line.flag)).collect();
    for mut because in own(spec) {
        because.lines.retain(|line| !said.contains(&bare(&line.flag)));
        if !because.lines.is_empty() {
            args.push(because);
        }
    }
    args
}

/// `--no-async-scheduling` and `--async-scheduling` are one flag.
fn bare(flag: &str) -> String {
    flag.trim_start_matches("--").trim_start_matches("no-").to_owned()
}

/// Who takes an answer apart: vLLM's own server, or Dynamo beside the engine.
fn parsers(spec: &Spec) -> Option<Because<Argument>> {
    let (model, by_vllm) = (&spec.model, spec.splits_by_vllm());
    let named = [("--reasoning-parser", &model.reasoning_parser), ("--dyn-reasoning-parser", &model.dyn_reasoning_parser), ("--dyn-tool-call-parser", &model.dyn_tool_call_parser)];
    let of_vllm = [("--reasoning-parser", &model.reasoning_parser), ("--tool-call-parser", &model.tool_call_parser)];
    let named = if by_vllm { of_vllm.as_slice() } else { named.as_slice() };
    let mut lines: Vec<_> = named.iter().filter_map(|(flag, figure)| figure.as_ref().map(|figure| set(flag, &figure.value))).collect();
    if by_vllm && model.tool_call_parser.is_some() {
        lines.push(flag("--enable-auto-tool-choice"));
    }
    let reason = if by_vllm {
        "What of the answer is thought and what a call of a tool; vLLM does this itself here."
    } else {
        "For the engine (structured output) and for Dynamo (what the answer shows), which have names of their own."
    };
    (!lines.is_empty()).then_some(Because { reason: reason.to_owned(), lines })
}

/// What this model needs in this precision on this GPU.
fn own(spec: &Spec) -> Vec<Because<Argument>> {
    let of = |flags: &Flags| {
        let mut lines: Vec<Argument> = Vec::new();
        for word in &flags.args {
            match lines.last_mut() {
                Some(last) if !word.starts_with("--") => last.values.push(word.clone()),
                _ => lines.push(flag(word)),
            }
        }
        Because { reason: own_reason(flags), lines }
    };
    own_flags(spec).map(of).collect()
}

/// The catalogue's flags that hold here.
pub(super) fn own_flags(spec: &Spec) -> impl Iterator<Item = &Flags> {
    spec.model.flags_for(&spec.precision_name, spec.instance.gpu.as_deref().unwrap_or_default())
}

/// Where the catalogue has them from.
pub(super) fn own_reason(flags: &Flags) -> String {
    format!("Of this model's own: {}.", flags.source.as_deref().unwrap_or("unverified").trim_end_matches('.').replace('\n', " "))
}

fn layout(spec: &Spec, part: &Part) -> Vec<Because<Argument>> {
    let (gpus, tensor) = (spec.gpus(), part.tensor_parallel_size);
    let reason =
        if tensor == gpus { "One shard of the weights on each GPU of the node.".to_owned() } else { format!("The weights are split over {tensor} of the node's {gpus} GPUs.") };
    let mut args = vec![because(reason, [set("--tensor-parallel-size", tensor)])];
    if part.pipeline_parallel_size > 1 {
        args.push(because(
            format!("The layers are spread over {} nodes: between nodes only activations pass.", part.pipeline_parallel_size),
            [set("--pipeline-parallel-size", part.pipeline_parallel_size)],
        ));
    }
    match (part.data_parallel_size, part.nodes) {
        (1, _) => {}
        (engines, 1) => args.push(because(format!("{engines} engines fill the node, so that no GPU is idle."), [set("--data-parallel-size", engines)])),
        (engines, _) => {
            args.push(because(
                format!("An engine on each of {engines} nodes; the experts are spread over the GPUs of all of them."),
                [set("--data-parallel-size", engines), flag("--enable-expert-parallel")],
            ));
            args.push(because(
                "Needs NCCL and nothing else: DeepEP's kernels drive InfiniBand cards themselves, which EFA has none of.",
                [set("--all2all-backend", "allgather_reducescatter")],
            ));
        }
    }
    args
}

fn limits(spec: &Spec, role: Role) -> Vec<Because<Argument>> {
    let max_model_len = spec.max_model_len();
    let mut args = vec![because("Tokens of prompt and answer together.", [set("--max-model-len", max_model_len)])];
    // An encoder alone has no keys and values, and takes no memory for them.
    let encodes = role == Role::Encode;
    if !encodes {
        args.push(because("The rest is for what the engine does not count: NCCL's buffers, CUDA's own.", [set("--gpu-memory-utilization", spec.serve.gpu_memory_utilization)]));
    }
    args.extend(own_classes(spec));
    if !encodes {
        args.push(because("Of keys and values: auto is the model's own 16 bits.", [set("--kv-cache-dtype", &spec.precision.kv_cache_dtype.value)]));
    }
    args
}

fn own_classes(spec: &Spec) -> Option<Because<Argument>> {
    spec.model.own_classes.then(|| because("The repository's config.json names classes of its own (auto_map).", [flag("--trust-remote-code")]))
}

/// Dynamo's encode worker: of the engine's flags it heeds the model and whether to trust its classes.
fn encoder(spec: &Spec) -> Vec<Because<Argument>> {
    let mut args = vec![
        because("Without it Dynamo serves text only.", [flag("--enable-multimodal")]),
        because(
            "Encodes pictures for the other workers: on one GPU, and the others of the node stay idle. Unverified: it was never run on GPUs.",
            [set("--disaggregation-mode", "encode")],
        ),
    ];
    args.extend(own_classes(spec));
    args.push(embeddings());
    args
}

fn embeddings() -> Because<Argument> {
    because(
        "Embeddings go from memory to memory; both ends have to say the same. Dynamo names NIXL no backend for them, so they go by UCX over TCP and not over EFA.",
        [set("--embedding-transfer-mode", "nixl-write")],
    )
}

/// What a worker has to do with pictures that others encode.
fn encoded_apart(spec: &Spec, role: Role) -> Vec<Because<Argument>> {
    if !spec.encoded_by_dynamo() {
        return Vec::new();
    }
    let embeds = because("The engine refuses a picture that comes as embeddings, unless told.", [flag("--enable-mm-embeds")]);
    match role {
        // It gets the prompt's keys and values, and still says of each picture where it stands: by embeddings of nothing.
        Role::Decode => vec![embeds],
        Role::Worker | Role::Prefill => {
            vec![because("Has pictures encoded by the encode workers, and waits for the first one before it registers.", [flag("--route-to-encoder")]), embeds, embeddings()]
        }
        Role::Encode => Vec::new(),
    }
}

fn pictures(spec: &Spec) -> Vec<Because<Argument>> {
    let model = &spec.model;
    let named = [("image", &model.image_limit), ("video", &model.video_limit), ("audio", &model.audio_limit)];
    let limits: serde_json::Map<_, _> = named.into_iter().filter_map(|(what, limit)| limit.as_ref().map(|limit| (what.to_owned(), limit.value.into()))).collect();
    let mut args = vec![because("Unset, the engine plans the encoder's memory for 999 pictures a request.", [set("--limit-mm-per-prompt", serde_json::Value::Object(limits))])];
    if !spec.splits_by_vllm() {
        args.insert(0, because("Pictures, documents and video; without it Dynamo serves text only.", [flag("--enable-multimodal")]));
    } else if spec.serve.media_domains.is_empty() {
        args.push(because(
            "No host is named (serve.media_domains), so pictures come within the request: vLLM's own server would fetch from any address, inside the VPC too. No host has this name (RFC 2606).",
            [set("--allowed-media-domains", "nothing.invalid")],
        ));
    } else {
        let values = spec.serve.media_domains.split(',').map(str::to_owned).collect();
        args.push(because("Pictures are fetched from these hosts only (serve.media_domains).", [Argument { flag: "--allowed-media-domains".to_owned(), values }]));
    }
    args
}

fn hybrid(spec: &Spec) -> Vec<Because<Argument>> {
    let mut args = Vec::new();
    if let Some(dtype) = &spec.model.mamba_ssm_cache_dtype {
        args.push(because("The state of the Mamba layers loses accuracy in the model's own 16 bits.", [set("--mamba-ssm-cache-dtype", &dtype.value)]));
    }
    let reason = if spec.is_hybrid() {
        "The default for hybrid models has changed with nearly every release of vLLM: said, not assumed."
    } else {
        "The default of vLLM: said, not assumed."
    };
    args.push(because(reason, [flag("--enable-prefix-caching")]));
    args
}

/// An engine of the encoders alone: vLLM's own.
fn encoder_alone(spec: &Spec) -> Vec<Because<Argument>> {
    vec![
        because("The language model is neither loaded nor run, and has no keys and values to keep.", [flag("--mm-encoder-only"), flag("--no-enable-prefix-caching")]),
        because("There is no decoding that CUDA graphs would speed up.", [flag("--enforce-eager")]),
        because("A picture or a video is encoded in one step, however many tokens it is (vLLM's own example).", [set("--max-num-batched-tokens", ENCODER_TOKENS)]),
        encoded(spec, "ec_producer", "Leaves each picture that it has encoded in a file under the hash of what was sent."),
    ]
}

/// How encoded pictures come from one engine to the other.
fn encoded(spec: &Spec, role: &str, reason: &str) -> Because<Argument> {
    let connector = &spec.platform.ec_connector;
    let transfer = json!({"ec_connector": connector.value, "ec_role": role, "ec_connector_extra_config": {"shared_storage_path": ENCODED}});
    let source = connector.source.as_deref().unwrap_or("unverified");
    because(format!("{reason} By files on the shared volume: {source}."), [set("--ec-transfer-config", transfer)])
}

/// What the worker does of a request.
fn role(spec: &Spec, role: Role) -> Vec<Because<Argument>> {
    let (mode, kv_role, reason) = match role {
        Role::Prefill => ("prefill", "kv_producer", "Computes prompts; decode workers fetch the keys, values and states from its GPUs."),
        Role::Decode => ("decode", "kv_consumer", "Computes answers from what it fetches from a prefill worker."),
        Role::Worker if spec.splits_by_vllm() => return vec![encoded(spec, "ec_consumer", FETCHES)],
        Role::Worker | Role::Encode => return Vec::new(),
    };
    // `fail`: tokens that are computed from blocks which did not arrive would be wrong, and look right.
    let transfer = json!({
        "kv_connector": "NixlConnector",
        "kv_role": kv_role,
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {"backends": ["LIBFABRIC"], "kv_lease_duration": LEASE_S},
    });
    let over_efa = format!(
        "NIXL over EFA: unsaid, the connector takes UCX, which goes over TCP here and is 100 times slower. {LEASE_S} s instead of 30 until blocks that nobody fetched are given away."
    );
    let mut args = if spec.splits_by_vllm() {
        vec![because(format!("{reason} {over_efa}"), [set("--kv-transfer-config", transfer)])]
    } else {
        vec![because(reason, [set("--disaggregation-mode", mode)]), because(over_efa, [set("--kv-transfer-config", transfer)])]
    };
    // Who decodes gets keys and values that were made from pictures, and no pictures.
    if spec.splits_by_vllm() && role == Role::Prefill {
        args.push(encoded(spec, "ec_consumer", FETCHES));
    }
    if spec.is_hybrid() {
        args.push(because("A state is handed over only where a block of keys and values ends.", [set("--mamba-cache-mode", "align")]));
        args.push(because(
            "A step that is scheduled ahead has overwritten states that were just fetched (vllm issue 37285): wrong answers under load.",
            [flag("--no-async-scheduling")],
        ));
    }
    args
}

/// What a pod must know of the group that it is in.
fn group(spec: &Spec, part: &Part, rank: Rank) -> Vec<Because<Argument>> {
    if spec.serve.topology == Topology::ExpertParallel {
        return vec![because(
            "Each pod is one engine of the group, by its place in it; they meet at the first one.",
            [set("--data-parallel-rank", "$(LWS_WORKER_INDEX)"), set("--data-parallel-address", "$(LWS_LEADER_ADDRESS)"), set("--data-parallel-rpc-port", DATA_PARALLEL_PORT)],
        )];
    }
    let mut args = vec![because(
        "The node's place in the engine; the ranks meet at the first node. Without a number of nodes the engine refuses more GPUs than it sees.",
        [
            set("--distributed-executor-backend", "mp"),
            set("--nnodes", part.nodes),
            set("--node-rank", "$(LWS_WORKER_INDEX)"),
            set("--master-addr", "$(LWS_LEADER_ADDRESS)"),
            set("--master-port", MASTER_PORT),
        ],
    )];
    if rank == Rank::Follower {
        args.push(because("Runs its shards and serves nobody.", [flag("--headless")]));
    }
    args
}

/// How the parts of Dynamo find and reach each other.
pub(super) fn planes(spec: &Spec) -> Vec<Because<Argument>> {
    let reason = if spec.sees_pictures() { "NATS would limit a request to 1 MB: less than a picture." } else { "Straight to the worker: NATS would be one more thing to run." };
    vec![because("The programs' own default is etcd.", [set("--discovery-backend", "kubernetes")]), because(reason, [set("--request-plane", "tcp"), set("--event-plane", "zmq")])]
}
