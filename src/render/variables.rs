//! The containers' variables, each with its reason.

use super::component::{Because, Variable, field, variable, variables};
use super::engine;
use crate::config::{Flags, Form, Part, Role, Spec};

/// The pod's interface, as the VPC CNI names it.
const INTERFACE: &str = "eth0";

/// Of an engine's container.
pub(super) fn engine(spec: &Spec, form: Form, part: &Part, startup_s: u64) -> Vec<Because<Variable>> {
    if spec.splits_by_vllm() {
        return server(spec, part, startup_s);
    }
    let mut env = Vec::new();
    if form.by_operator() {
        env.push(variables("The pod's address; the operator sets the rest of what the pod knows of itself.", [field("POD_IP", "status.podIP")]));
    } else {
        env.push(identity());
        env.push(variables(
            "By these the frontend finds the workers of this deployment.",
            [variable("DYN_NAMESPACE", &spec.name), variable("DYN_COMPONENT", component(part)), variable("DYN_DISCOVERY_BACKEND", "kubernetes")],
        ));
    }
    env.push(variables("What it tells the others to connect to.", [variable("DYN_TCP_RPC_HOST", "$(POD_IP)"), variable("DYN_EVENT_PLANE_HOST", "$(POD_IP)")]));
    if !form.by_operator() {
        env.push(variables(
            "/live and /health answer 200 only once the engine takes requests.",
            [
                variable("DYN_SYSTEM_ENABLED", "true"),
                variable("DYN_SYSTEM_PORT", "9090"),
                variable("DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", r#"["generate"]"#),
                variable("DYN_HEALTH_CHECK_ENABLED", "false"),
            ],
        ));
    }
    env.push(offline());
    if spec.sees_pictures() {
        env.push(variables(
            "Who may send a picture's address may not make the pod read the node's credentials: no address inside the VPC, no metadata address, and no host that sends it on to one.",
            [variable("DYN_MM_ALLOW_INTERNAL", "0"), variable("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "0")],
        ));
    }
    env.push(timeouts(startup_s));
    env.extend(network(spec, part));
    env.extend(quack(spec));
    env.extend(own(spec));
    env
}

/// Of vLLM's own server, which Dynamo knows nothing of.
fn server(spec: &Spec, part: &Part, startup_s: u64) -> Vec<Because<Variable>> {
    let encodes = part.role == Role::Encode;
    let mut env = Vec::new();
    if !encodes {
        env.push(variables("The pod's address, for what others connect to.", [field("POD_IP", "status.podIP")]));
    }
    env.push(offline());
    env.push(variables("A host that pictures may come from may not send the fetch on to another address.", [variable("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "0")]));
    env.push(timeouts(startup_s));
    // An encoder is one GPU, and what it makes goes through files.
    if !encodes {
        env.extend(network(spec, part));
    }
    env.extend(quack(spec));
    env.extend(own(spec));
    env
}

fn offline() -> Because<Variable> {
    variables("The weights are on the shared volume: a wrong path must fail, not download.", [variable("HF_HUB_OFFLINE", "1")])
}

fn timeouts(startup_s: u64) -> Because<Variable> {
    variables(
        "The first derives from the time that the load may take, as the startup probe does: the shortest of them decides. The second allows for kernels that are compiled in a step.",
        [variable("VLLM_ENGINE_READY_TIMEOUT_S", startup_s), variable("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "1800")],
    )
}

/// Only NVFP4 has the kernels that it patches.
fn quack(spec: &Spec) -> Option<Because<Variable>> {
    let reason = "Images with vllm_omni patch FP8 kernels in workers that may not start processes: a tenth of a token a second, which looks like a hang.";
    (spec.precision_name == "nvfp4").then(|| variables(reason, [variable("VLLM_OMNI_USE_QUACK_FP8", "0")]))
}

fn own(spec: &Spec) -> impl Iterator<Item = Because<Variable>> {
    let of = |flags: &Flags| Because { reason: engine::own_reason(flags), lines: flags.env.iter().map(|(name, value)| variable(name, value)).collect() };
    engine::own_flags(spec).filter(|flags| !flags.env.is_empty()).map(of)
}

/// Of the frontend's container.
pub(super) fn frontend(spec: &Spec, form: Form) -> Vec<Because<Variable>> {
    let offline = variables("Everything is on the shared volume or comes from the worker.", [variable("HF_HUB_OFFLINE", "1")]);
    if form.by_operator() {
        return vec![variables("What it tells the others to connect to.", [field("POD_IP", "status.podIP"), variable("DYN_EVENT_PLANE_HOST", "$(POD_IP)")]), offline];
    }
    vec![
        identity(),
        variables(
            "By these it finds the workers of this deployment.",
            [variable("DYN_NAMESPACE", &spec.name), variable("DYN_COMPONENT", "frontend"), variable("DYN_DISCOVERY_BACKEND", "kubernetes")],
        ),
        variables("What it tells the others to connect to.", [variable("DYN_EVENT_PLANE_HOST", "$(POD_IP)")]),
        offline,
    ]
}

fn identity() -> Because<Variable> {
    variables(
        "Discovery in Kubernetes is by pod: each writes its own record, which goes with it.",
        [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_UID", "metadata.uid"), field("POD_IP", "status.podIP")],
    )
}

/// As dynamo.vllm registers.
fn component(part: &Part) -> &'static str {
    match part.role {
        Role::Prefill => "prefill",
        Role::Encode => "encode",
        Role::Worker | Role::Decode => "backend",
    }
}

fn network(spec: &Spec, part: &Part) -> Vec<Because<Variable>> {
    let mut env = vec![
        variables(
            "EFA by libfabric and NCCL's OFI plugin (reference deployment on p5en; the tuner belongs to the plugin).",
            [
                variable("FI_PROVIDER", "efa"),
                variable("FI_EFA_USE_DEVICE_RDMA", "1"),
                variable("FI_EFA_FORK_SAFE", "1"),
                variable("FI_HMEM_CUDA_USE_DMABUF", "1"),
                variable("NCCL_NET_PLUGIN", "ofi"),
                variable("NCCL_TUNER_PLUGIN", "ofi"),
                variable("NCCL_NVLS_ENABLE", "0"),
                variable("NCCL_CUMEM_ENABLE", "1"),
            ],
        ),
        variables("Not the interface of EKS Pod Identity: NCCL has picked it and failed.", [variable("NCCL_SOCKET_IFNAME", "^lo,docker,veth,eni,pod-id-link0")]),
        variables("Gloo takes one name and no list, and would take loopback: the pod's interface, as the VPC CNI calls it.", [variable("GLOO_SOCKET_IFNAME", INTERFACE)]),
    ];
    if part.nodes > 1 {
        env.push(variables(
            "Between nodes EFA or nothing: when the plugin does not load, NCCL would go over TCP and only be slow. The name is that of aws-ofi-nccl from 1.16 on.",
            [variable("NCCL_NET", "Libfabric")],
        ));
    }
    let moves_keys = matches!(part.role, Role::Prefill | Role::Decode);
    if moves_keys {
        env.push(variables(
            "Where decode workers ask a prefill worker for the place of its blocks: the address of the pod, which loopback is not.",
            [variable("VLLM_NIXL_SIDE_CHANNEL_HOST", "$(POD_IP)")],
        ));
        env.push(variables(
            "NIXL's way over EFA: one rail for each GPU's transfers, and no shortcut through shared memory, which other pods do not have (reference deployment).",
            [variable("FI_EFA_ENABLE_SHM_TRANSFER", "0"), variable("NIXL_LIBFABRIC_MAX_RAILS", "1")],
        ));
    }
    if moves_keys || spec.encoded_by_dynamo() {
        env.push(variables("What UCX still carries goes over the pod's interface; unset, it tries every card of the node.", [variable("UCX_NET_DEVICES", INTERFACE)]));
    }
    if moves_keys && spec.is_hybrid() {
        env.push(variables("The layout of Mamba states that the NIXL connector can move.", [variable("VLLM_SSM_CONV_STATE_LAYOUT", "DS")]));
    }
    env
}
