//! The serving pods: Dynamo's frontend and vLLM workers, in the topology and the form that the settings ask for.

use minijinja::value::Serde;
use serde::Serialize;

use super::component::{Argument, Because, Component, Port, Variable, because, set};
use super::engine;
use super::environment::{Rendered, Templates, Text};
use super::gateway::Gateway;
use super::patch;
use super::variables;
use crate::agent::fetch::ReadRate;
use crate::config::{self, Controllers, Figure, Form, NodeLabel, Overlay, Part, Role, Spec, Topology};

/// Seconds from the last byte read until the engine takes requests: profiling, compilation, CUDA graphs. Assumed; kernels that are
/// compiled for the first time took minutes on the reference's clusters.
const ENGINE_START_S: u64 = 900;
/// Seconds between two startup probes.
const STARTUP_PERIOD_S: u64 = 5;
/// Dynamo's system port.
const SYSTEM: Port = Port { name: "system", number: 9090, live: "/live" };
/// Of vLLM's own server.
const SERVES: Port = Port { name: "serve", number: engine::SERVE_PORT, live: "/health" };
/// Name of Service and Deployment.
const FRONTEND: &str = "frontend";
pub(super) const PORT: u16 = 8000;

/// What only the cloud knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Pinned by digest.
    pub image: String,
    pub claim: String,
    /// Below the volume's root.
    pub model_path: String,
    pub weight_bytes: u64,
    /// What a read of the weights gave.
    pub read: ReadRate,
    pub capacity_gib: u32,
    /// EFA adapters that a GPU node really allocates; the catalogue's figure where nobody has looked.
    pub efa: Option<u32>,
    /// What makes pods of our objects there.
    pub controllers: Controllers,
    /// Where vLLM's own servers encode apart.
    pub routing: Option<Routing>,
}

/// Images of what sends pictures to vLLM's encoders, pinned by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Routing {
    /// nginx: the frontend.
    pub frontend: String,
    /// The sidecar of the engines that answer.
    pub sidecar: String,
}

impl Facts {
    /// What only an account knows stood in for, so that manifests come out whole: nobody takes them for something to apply.
    pub fn stand_in(spec: &Spec) -> anyhow::Result<Self> {
        let weight_bytes = u64::from(spec.precision.weights_gb.value) * 1_000_000_000;
        let image = |name: &str| format!("000000000000.dkr.ecr.us-east-2.amazonaws.com/{}/{name}@sha256:{:064}", spec.name, 0);
        Ok(Self {
            image: image("vllm-runtime"),
            claim: "shared".to_owned(),
            model_path: format!("models/{}/{:040}", spec.precision.repository, 0),
            weight_bytes,
            read: ReadRate::default(),
            capacity_gib: config::capacity_gib(spec.storage.capacity_gib, weight_bytes).map_err(anyhow::Error::msg)?,
            efa: None,
            controllers: spec.controllers(),
            routing: Some(Routing { frontend: image("gateway"), sidecar: image("picture-router") }),
        })
    }
}

/// What the serving manifests are made from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Serving {
    pub namespace: String,
    pub topology: Topology,
    pub form: Form,
    /// Dynamo's operator makes the pods.
    pub by_operator: bool,
    /// Why it is that form.
    pub form_reason: &'static str,
    /// Of a DynamoGraphDeployment.
    pub graph: String,
    /// The Service that requests go to.
    pub service: String,
    pub frontend: &'static str,
    pub frontend_args: Vec<Because<Argument>>,
    pub frontend_env: Vec<Because<Variable>>,
    pub port: u16,
    pub components: Vec<Component>,
    /// Where vLLM's own servers encode apart: what stands in the frontend's place.
    pub routing: Option<Routing>,
    /// The Service that the frontend sends requests to, and that of the workers that only compute prompts, there.
    pub answers: &'static str,
    pub prefills: Option<&'static str>,
    /// Never run on GPUs: `encode_worker` of the model's file says so.
    pub unverified: bool,
    /// Of an engine behind its router, and of the first encoder of a node.
    pub serve_port: u16,
    /// Below the volume's root, and where containers have it.
    pub encoded_folder: String,
    pub encoded: &'static str,
    /// MB that the largest picture leaves in its file.
    pub picture_mb: u64,
    /// Pinned by digest.
    pub image: String,
    /// Of Dynamo, since a digest says none.
    pub runtime_version: String,
    /// As the label of a node has it.
    pub instance_type: String,
    /// What GPU pods ask of a node beside its type.
    pub node_labels: Vec<NodeLabel>,
    pub gpus: u32,
    pub efa: u32,
    /// Where that number is from.
    pub efa_reason: &'static str,
    pub cpu: u32,
    pub memory_gib: u32,
    pub claim: String,
    pub served_model_name: String,
    pub weights_gb: u64,
    /// What the time for loading is computed from.
    pub read_mb_s: u64,
    /// Which rate that is.
    pub read_reason: String,
    /// Workers that read the weights at the same time.
    pub readers: u64,
    pub engine_start_s: u64,
    /// Until the engine must take requests.
    pub startup_s: u64,
    pub startup_failures: u64,
}

impl Serving {
    /// From the settings and what only the cloud knows.
    pub fn new(spec: &Spec, facts: Facts) -> Self {
        // The catalogue's figure is the floor: what was counted may be a part.
        let weights_gb = u64::from(spec.precision.weights_gb.value).max(facts.weight_bytes / 1_000_000_000);
        let (read_mb_s, read_reason) = read_rate(u64::from(spec.storage.throughput) * u64::from(facts.capacity_gib) / 1024, &facts.read);
        let parts = spec.parts();
        let readers = parts.iter().map(|part| u64::from(part.replicas * if part.data_parallel_size > 1 { part.nodes } else { 1 })).sum::<u64>().max(1);
        let startup_s = 2 * readers * weights_gb * 1000 / read_mb_s + ENGINE_START_S;
        let (form, form_reason) = spec.form_with(facts.controllers);
        Self {
            namespace: spec.serve.namespace.clone(),
            topology: spec.serve.topology,
            form,
            by_operator: form.by_operator(),
            form_reason,
            graph: spec.name.clone(),
            service: if form.by_operator() { format!("{}-{FRONTEND}", spec.name) } else { FRONTEND.into() },
            frontend: FRONTEND,
            frontend_args: frontend_args(spec),
            frontend_env: variables::frontend(spec, form),
            port: PORT,
            components: parts.iter().map(|part| component(spec, &facts, form, part, startup_s)).collect(),
            answers: name_of(parts.last().map_or(Role::Worker, |part| part.role)),
            prefills: spec.serve.topology.splits_prefill().then(|| name_of(Role::Prefill)),
            unverified: spec.model.encode_worker.as_ref().is_some_and(Figure::unverified),
            serve_port: engine::SERVE_PORT,
            encoded_folder: format!("encoded/{}", spec.name),
            encoded: engine::ENCODED,
            picture_mb: picture_mb(spec),
            routing: facts.routing.filter(|_| spec.splits_by_vllm()),
            image: facts.image,
            runtime_version: spec.platform.dynamo.version.clone(),
            instance_type: format!("{}{}", spec.compute.instance_type_prefix, spec.instance.type_name),
            node_labels: spec.compute.node_labels.clone(),
            gpus: spec.gpus(),
            efa: facts.efa.or(spec.instance.efa.as_ref().map(|efa| efa.value)).unwrap_or(0),
            efa_reason: if facts.efa.is_some() { "as many EFA adapters as the nodes allocate" } else { "as many EFA adapters as the catalogue knows, since no node was seen" },
            // A quarter of the nominal vCPUs and half of the memory: a node allocates as much also without hyper-threading and beside its DaemonSets.
            cpu: (spec.instance.vcpus.value / 4).max(1),
            memory_gib: spec.instance.memory_gib.value * 125 / 256,
            claim: facts.claim,
            served_model_name: spec.precision.repository.clone(),
            weights_gb,
            read_mb_s,
            read_reason,
            readers,
            engine_start_s: ENGINE_START_S,
            startup_s,
            startup_failures: startup_s.div_ceil(STARTUP_PERIOD_S),
        }
    }
}

/// The MB/s that are counted on, and why these: the slower of what the file system is provisioned for and what was measured. More than
/// provisioned is a burst or a server's cache, which a later start may not have. A slow read, as from a system node's smaller network, only
/// makes the probe more patient.
fn read_rate(provisioned: u64, measured: &ReadRate) -> (u64, String) {
    let (provisioned, ReadRate { mb_s, streams, on }) = (provisioned.max(1), measured);
    match *mb_s {
        0 => (provisioned, "what the file system is provisioned for, since nothing was measured".into()),
        slower if slower < provisioned => (slower, format!("measured on {on} with {streams} streams, of {provisioned} MB/s provisioned")),
        faster => (provisioned, format!("what the file system is provisioned for; the {faster} MB/s measured on {on} are burst or cache")),
    }
}

/// Of the tokens of all its tiles, in 16 bits each.
fn picture_mb(spec: &Spec) -> u64 {
    let vision = spec.model.architecture.vision.as_ref();
    let tokens = vision.map_or(0, |vision| u64::from(vision.tokens_per_tile.unwrap_or(0)) * u64::from(vision.tiles.as_ref().map_or(1, |tiles| tiles.value)));
    (tokens * u64::from(spec.model.architecture.hidden_size) * 2).div_ceil(1_000_000)
}

fn frontend_args(spec: &Spec) -> Vec<Because<Argument>> {
    let mut args = vec![because("Where requests come in.", [set("--http-port", PORT)])];
    if spec.serve.topology.splits_prefill() {
        args.push(because(
            "Without a prefill worker a request fails: the decode worker would else compute the prompt itself, and nobody would notice.",
            [super::component::flag("--enforce-disagg")],
        ));
    }
    args.extend(engine::planes(spec));
    args
}

fn component(spec: &Spec, facts: &Facts, form: Form, part: &Part, startup_s: u64) -> Component {
    let (short, dynamo_type) = match part.role {
        Role::Worker => ("worker", "worker"),
        Role::Prefill => ("prefill", "prefill"),
        Role::Decode => ("decode", "decode"),
        Role::Encode => ("encode", "worker"),
    };
    Component {
        role: part.role,
        name: if form.by_operator() { short } else { name_of(part.role) },
        dynamo_type,
        command: if spec.splits_by_vllm() { vec!["vllm", "serve"] } else { vec!["python3", "-m", "dynamo.vllm"] },
        port: if spec.splits_by_vllm() { SERVES } else { SYSTEM },
        encoded: spec.splits_by_vllm() && part.role != Role::Decode,
        routed: spec.splits_by_vllm() && matches!(part.role, Role::Worker | Role::Decode),
        replicas: part.replicas,
        nodes: part.nodes,
        pods: part.pods(),
        templates: engine::templates(spec, facts, part, form == Form::Lws),
        env: variables::engine(spec, form, part, startup_s),
        one_registers: part.pipeline_parallel_size > 1,
    }
}

/// The name of a role's workload, where we make it ourselves.
pub fn name_of(role: Role) -> &'static str {
    match role {
        Role::Worker => "vllm-worker",
        Role::Prefill => "vllm-prefill",
        Role::Decode => "vllm-decode",
        Role::Encode => "vllm-encode",
    }
}

/// The file of a component's objects.
fn file(role: Role) -> &'static str {
    match role {
        Role::Worker => "worker.yaml",
        Role::Prefill => "prefill.yaml",
        Role::Decode => "decode.yaml",
        Role::Encode => "encode.yaml",
    }
}

/// Access, frontend and workers; or the graph that Dynamo's operator makes them from.
pub fn serving(values: &Serving) -> anyhow::Result<Vec<Rendered>> {
    overlaid(values, None, &Overlay::default())
}

/// The same, with the gateway if there is one, and with what users lay over it: templates in the place of ours, then patches over what comes out.
pub fn overlaid(values: &Serving, gateway: Option<&Gateway>, overlay: &Overlay) -> anyhow::Result<Vec<Rendered>> {
    let mut files = files(values, gateway, overlay)?.into_iter().map(Text::parsed).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(patches) = &overlay.patches {
        patch::apply(patches, &mut files)?;
    }
    Ok(files)
}

/// The same as text; parsed on the way only where a user has a part in it.
pub fn texts(values: &Serving, gateway: Option<&Gateway>, overlay: &Overlay) -> anyhow::Result<Vec<Text>> {
    if overlay.is_empty() { files(values, gateway, overlay) } else { Ok(overlaid(values, gateway, overlay)?.into_iter().map(Text::from).collect()) }
}

fn files(values: &Serving, gateway: Option<&Gateway>, overlay: &Overlay) -> anyhow::Result<Vec<Text>> {
    let templates = Templates::with(overlay)?;
    let mut files = workloads(&templates, values)?;
    if let Some(gateway) = gateway {
        files.push(gateway.text(&templates)?);
    }
    Ok(files)
}

/// vLLM's own servers, each role with a Service, and what sends pictures to the encoders first.
fn routed(templates: &Templates, values: &Serving, all: &minijinja::Value) -> anyhow::Result<Vec<Text>> {
    #[derive(Serialize)]
    struct Order {
        /// Of all requests.
        share: String,
        encoders: Vec<u32>,
    }
    // One order for each encoder, which begins with it: the router takes them in their order for the pictures of one request.
    let encoders = values.gpus;
    let port = |at: u32| u32::from(values.serve_port) + at % encoders;
    let share = |first: u32| if first + 1 == encoders { "*".to_owned() } else { format!("{:.2}%", 100.0 / f64::from(encoders)) };
    let orders: Vec<Order> = (0..encoders).map(|first| Order { share: share(first), encoders: (first..first + encoders).map(port).collect() }).collect();
    let with = minijinja::context! { orders => Serde(&orders), ..all.clone() };
    let (config, users) = templates.text("router.conf", &with)?;
    let config_digest = super::gateway::digest(&config);
    let mut frontend = templates.render("router.yaml", &minijinja::context! { config, config_digest, ..with.clone() })?;
    frontend.file = "frontend.yaml";
    frontend.overlays.extend(users);
    let mut files = vec![frontend];
    for component in &values.components {
        let template = if component.role == Role::Encode { "encode.yaml" } else { "worker.yaml" };
        let one = minijinja::context! { component => Serde(component), ..with.clone() };
        files.push(Text { file: file(component.role), ..templates.render(template, &one)? });
    }
    Ok(files)
}

fn workloads(templates: &Templates, values: &Serving) -> anyhow::Result<Vec<Text>> {
    // Made into the templates' kind of values once, for all files.
    let all = minijinja::Value::from(Serde(values));
    if values.routing.is_some() {
        return routed(templates, values, &all);
    }
    let template = match values.form {
        Form::Deployments => "worker.yaml",
        Form::Lws => "lws.yaml",
        Form::DgdV1alpha1 => return Ok(vec![templates.render("dgd-v1alpha1.yaml", &all)?]),
        Form::DgdV1beta1 => return Ok(vec![templates.render("dgd.yaml", &all)?]),
        Form::DgdGrove => return Ok(vec![templates.render("runtime-class.yaml", &all)?, templates.render("dgd.yaml", &all)?]),
    };
    let mut files = vec![templates.render("access.yaml", &all)?, templates.render("frontend.yaml", &all)?];
    for component in &values.components {
        let one = minijinja::context! { component => Serde(component), ..all.clone() };
        files.push(Text { file: file(component.role), ..templates.render(template, &one)? });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_rate_counts_and_what_is_more_than_provisioned_does_not() {
        for (provisioned, measured, counts, reason) in [
            (292, 0, 292, "nothing was measured"),
            (292, 180, 180, "measured on 2026-12-01 with 8 streams, of 292 MB/s provisioned"),
            (292, 292, 292, "the 292 MB/s measured on 2026-12-01 are burst or cache"),
            (292, 5200, 292, "the 5200 MB/s measured on 2026-12-01 are burst or cache"),
            (0, 0, 1, "provisioned"),
        ] {
            let (rate, why) = read_rate(provisioned, &ReadRate { mb_s: measured, streams: 8, on: "2026-12-01".into() });
            assert!(rate == counts && why.contains(reason), "{provisioned}, {measured}: {rate}, {why}");
        }
    }
}
