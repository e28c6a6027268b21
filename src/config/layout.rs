//! What a topology comes to on these nodes: which workers, how many, on how many GPUs; and what cannot be.

use super::layers::Layers;
use super::model::Modality;
use super::spec::Spec;
use super::topology::{Controllers, EncodeWorker, Form, FormSetting, Role, Topology, refusal};

/// The workers of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub role: Role,
    pub replicas: u32,
    /// Of one replica; each of its pods has a node for itself.
    pub nodes: u32,
    pub tensor_parallel_size: u32,
    pub pipeline_parallel_size: u32,
    pub data_parallel_size: u32,
}

impl Part {
    /// Pods of all replicas, which is nodes too.
    pub fn pods(&self) -> u32 {
        self.replicas * self.nodes
    }
}

impl Spec {
    /// The form where there is what the platform's charts bring, and why it is that one.
    pub fn form(&self) -> (Form, &'static str) {
        self.form_with(self.controllers())
    }

    /// The controllers that the platform's charts bring.
    pub fn controllers(&self) -> Controllers {
        Controllers::of_charts(self.platform.charts.keys().map(String::as_str))
    }

    /// The form where there are these controllers, and why it is that one.
    pub fn form_with(&self, there: Controllers) -> (Form, &'static str) {
        let auto = self.serve.topology.form(there);
        match self.serve.form {
            FormSetting::As(form) if form != auto.0 => (form, "asked for"),
            _ => auto,
        }
    }

    /// The workers of every role, in the order in which a request meets them.
    pub fn parts(&self) -> Vec<Part> {
        let serve = &self.serve;
        let part = |role, replicas| self.part(role, replicas);
        match serve.topology {
            Topology::Aggregated | Topology::PipelineParallel | Topology::ExpertParallel => vec![part(Role::Worker, serve.replicas)],
            Topology::Disaggregated => vec![part(Role::Prefill, serve.prefill), part(Role::Decode, serve.decode)],
            Topology::EncodeApart => vec![part(Role::Encode, serve.encode), part(Role::Worker, serve.replicas)],
            Topology::AllApart => vec![part(Role::Encode, serve.encode), part(Role::Prefill, serve.prefill), part(Role::Decode, serve.decode)],
        }
    }

    fn part(&self, role: Role, replicas: u32) -> Part {
        let (serve, gpus) = (&self.serve, self.gpus());
        let nodes = if serve.topology.many_nodes() { serve.nodes.max(2) } else { 1 };
        // An engine that spans nodes takes whole ones: with a part of its network cards a collective between nodes hangs.
        let tensor = if serve.topology.many_nodes() { gpus } else { self.tensor_parallel_size(role) };
        let (pipeline, data) = match serve.topology {
            Topology::PipelineParallel => (nodes, 1),
            Topology::ExpertParallel => (1, nodes),
            // Dynamo's encode worker takes one GPU whatever it is told, and a pod can register one.
            _ if role == Role::Encode && self.encoded_by_dynamo() => (1, 1),
            // No GPU of a node stays idle: it holds as many engines as fit.
            _ => (1, (gpus / tensor.max(1)).max(1)),
        };
        Part { role, replicas, nodes, tensor_parallel_size: tensor, pipeline_parallel_size: pipeline, data_parallel_size: data }
    }

    fn tensor_parallel_size(&self, role: Role) -> u32 {
        // An encoder alone fits a GPU many times over, and is an engine for itself on each.
        if role == Role::Encode {
            return 1;
        }
        let all = if self.serve.tensor_parallel_size > 0 { self.serve.tensor_parallel_size } else { self.precision.tensor_parallel_size.value };
        if role == Role::Decode && self.serve.decode_tensor_parallel_size > 0 { self.serve.decode_tensor_parallel_size } else { all }
    }

    /// Of one node.
    pub fn gpus(&self) -> u32 {
        self.instance.gpus.as_ref().map_or(0, |gpus| gpus.value)
    }

    /// Does the model see pictures?
    pub fn sees_pictures(&self) -> bool {
        self.model.modality != Modality::Text
    }

    /// Whose workers can encode the model's pictures apart.
    pub fn encode_worker(&self) -> Option<EncodeWorker> {
        self.model.encode_worker.as_ref().map(|figure| figure.value)
    }

    /// Are pictures encoded by Dynamo's encode workers?
    pub fn encoded_by_dynamo(&self) -> bool {
        self.serve.topology.splits_encode() && self.encode_worker() == Some(EncodeWorker::Dynamo)
    }

    /// GPU nodes that all workers together take.
    pub fn nodes_taken(&self) -> u32 {
        self.parts().iter().map(Part::pods).sum()
    }

    /// Are the engines vLLM's own servers, some of which encode pictures alone?
    pub fn splits_by_vllm(&self) -> bool {
        self.serve.topology.splits_encode() && self.encode_worker() == Some(EncodeWorker::Vllm)
    }

    /// Has the model Mamba layers, whose state is moved and cached in another way than keys and values?
    pub fn is_hybrid(&self) -> bool {
        self.model.architecture.layers().mamba > 0
    }
}

/// What of topology, form and layout cannot be, each with what can.
pub(super) fn contradictions(spec: &Spec, layers: &Layers) -> Vec<String> {
    let mut wrong = Vec::new();
    let (serve, gpus, topology) = (&spec.serve, spec.gpus(), spec.serve.topology);
    let (form, _) = spec.form();
    if topology.splits_encode() && !spec.sees_pictures() {
        wrong.push(format!("{}: {} takes no pictures, so there is nothing to encode apart", layers.place("serve.topology"), spec.model.title));
    } else if let Some(why) = refusal(topology, spec.encode_worker(), form) {
        let there: Vec<_> = topology.forms(spec.encode_worker()).into_iter().map(Form::name).collect();
        let (place, there) = if there.is_empty() { ("serve.topology", "no other form".to_owned()) } else { ("serve.form", there.join(", ")) };
        wrong.push(format!("{}: there is no {topology} as {form}: {why}; there is {there}", layers.place(place)));
    }
    if !spec.splits_by_vllm() && !serve.media_domains.is_empty() {
        wrong.push(format!(
            "{}: as {topology} Dynamo's workers fetch the pictures, from every public host over https and from no address inside the VPC: they know no list of hosts (up to 1.6.1). vLLM's own servers do: e-pd and e-p-d of a model whose pictures they encode",
            layers.place("serve.media_domains")
        ));
    }
    if let Some(host) = serve.media_domains.split(',').find(|host| host.rsplit_once('.').is_some_and(|(_, last)| last == serve.namespace)) {
        wrong.push(format!("{}: {host} is a Service of the namespace {} to whoever asks from within it, and no public host", layers.place("serve.media_domains"), serve.namespace));
    }
    if serve.nodes > 1 && !topology.many_nodes() {
        let why = if topology.splits_prefill() {
            "vLLM's NIXL connector refuses pipeline parallelism for models with Mamba layers, and on the receiving side for every model (0.26 to 0.33)"
        } else {
            "each replica is one node; pipeline-parallel and expert-parallel spread a replica over nodes"
        };
        wrong.push(format!("{}: {topology} takes no more than one node a worker: {why}", layers.place("serve.nodes")));
    } else if serve.nodes == 1 && topology.many_nodes() {
        wrong.push(format!("{}: {topology} spreads a replica over 2 nodes or more; aggregated has it on one", layers.place("serve.nodes")));
    }
    if topology.splits_prefill() && serve.replicas > 1 {
        wrong.push(format!("{}: {topology} has no workers that do everything: serve.prefill and serve.decode count its workers", layers.place("serve.replicas")));
    }
    wrong.extend(tensor_parallel(spec, layers, gpus));
    let needed = spec.nodes_taken();
    if wrong.is_empty() && needed > spec.gpu.nodes {
        wrong.push(format!(
            "{}: {} take {needed} GPU nodes, and there are {} ({}); --nodes {needed} has as many",
            layers.place(if topology == Topology::Aggregated { "serve.replicas" } else { "serve.topology" }),
            said(&spec.parts()),
            spec.gpu.nodes,
            layers.place("gpu.nodes")
        ));
    }
    if form.by_operator() {
        wrong.extend(operator_limits(spec, layers));
    }
    wrong
}

fn tensor_parallel(spec: &Spec, layers: &Layers, gpus: u32) -> Vec<String> {
    let mut wrong = Vec::new();
    let topology = spec.serve.topology;
    for (key, set) in [("serve.tensor_parallel_size", spec.serve.tensor_parallel_size), ("serve.decode_tensor_parallel_size", spec.serve.decode_tensor_parallel_size)] {
        if set > 0 && (!set.is_power_of_two() || !gpus.is_multiple_of(set)) {
            let fit: Vec<_> = (0..7).map(|power| 1u32 << power).filter(|size| gpus.is_multiple_of(*size)).map(|size| size.to_string()).collect();
            wrong.push(format!("{}: heads and experts are halved, and {} has {gpus} GPUs: one of {}", layers.place(key), spec.instance.type_name, fit.join(", ")));
        } else if set > 0 && topology.many_nodes() && set != gpus {
            wrong.push(format!("{}: {topology} takes whole nodes, which have {gpus} GPUs", layers.place(key)));
        }
    }
    let (all, decode) = (spec.tensor_parallel_size(Role::Prefill), spec.tensor_parallel_size(Role::Decode));
    if topology.splits_prefill() && all != decode && spec.is_hybrid() {
        wrong.push(format!(
            "{}: prefill on {all} GPUs and decode on {decode}: the NIXL connector can corrupt the Mamba state between unequal sizes (vllm issue 55208, open on 2026-09-04); 0 makes them equal",
            layers.place("serve.decode_tensor_parallel_size")
        ));
    }
    if all > gpus && !topology.many_nodes() {
        wrong.push(format!("{}: {} in {} takes {all} GPUs, and {} has {gpus}", layers.place("instance"), spec.model.title, spec.precision_name, spec.instance.type_name));
    }
    wrong
}

/// Names that Dynamo's operator and Grove make longer names from.
fn operator_limits(spec: &Spec, layers: &Layers) -> Vec<String> {
    let mut wrong = Vec::new();
    let form = spec.form().0;
    if spec.name.len() > NAME_LONGEST {
        wrong.push(format!("{}: as {form} it may have {NAME_LONGEST} characters: the operator and Grove make longer names from it, of at most 45", layers.place("name")));
    }
    if spec.serve.namespace.len() > NAMESPACE_LONGEST {
        wrong.push(format!("{}: as {form} it may have {NAMESPACE_LONGEST} characters: together with the name it is a label of at most 63", layers.place("serve.namespace")));
    }
    if spec.serve.namespace.contains("ephemeral") {
        wrong.push(format!("{}: Dynamo's operator ignores a namespace with \"ephemeral\" in its name without a word", layers.place("serve.namespace")));
    }
    wrong
}

const NAME_LONGEST: usize = 17;
const NAMESPACE_LONGEST: usize = 45;

/// `2 worker(s) of 2 nodes`
fn said(parts: &[Part]) -> String {
    let one = |part: &Part| format!("{} {}(s) of {} node(s)", part.replicas, part.role.title(), part.nodes);
    parts.iter().map(one).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use crate::config::{Inputs, Role, load};
    use crate::error::{Failure, Kind};

    fn refused(flags: &[(&str, &str)]) -> String {
        let flags = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let folder = tempfile::tempdir().unwrap();
        let failure = Failure::from(load(&Inputs { working_folder: folder.path().into(), file: None, env: Vec::new(), flags }).unwrap_err());
        assert_eq!(failure.kind, Kind::Config);
        failure.message
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        insta::assert_snapshot!(refused(&[("serve.topology", "pipeline-parallel"), ("serve.form", "deployments"), ("gpu.nodes", "2")]), @r#"--as: serve.form = "deployments": there is no pipeline-parallel as deployments: a Deployment's pods are all alike: none knows its rank in a group or the address of the first; there is lws, dgd-v1alpha1, dgd-v1beta1, dgd-grove"#);
        insta::assert_snapshot!(refused(&[("serve.form", "lws")]), @r#"--as: serve.form = "lws": there is no aggregated as lws: each worker is one pod: a group of one pod needs no LeaderWorkerSet, and would restart for nothing; there is deployments, dgd-v1alpha1, dgd-v1beta1, dgd-grove"#);
        insta::assert_snapshot!(refused(&[("serve.topology", "e-pd"), ("serve.form", "dgd-v1beta1"), ("gpu.nodes", "2")]), @r#"--as: serve.form = "dgd-v1beta1": there is no e-pd as dgd-v1beta1: in a graph of Dynamo's operator Dynamo's own encode worker would have to do it, which knows no Nemotron model (up to 1.6.1: Qwen-VL and LLaVA-1.5 only); there is deployments"#);
        insta::assert_snapshot!(refused(&[("model", "nemotron-3-super"), ("serve.topology", "e-p-d"), ("gpu.nodes", "3")]), @r#"--topology: serve.topology = "e-p-d": NVIDIA Nemotron 3 Super 120B-A12B takes no pictures, so there is nothing to encode apart"#);
        insta::assert_snapshot!(refused(&[("serve.topology", "pipeline-parallel")]), @r#"--topology: serve.topology = "pipeline-parallel": 1 worker(s) of 2 node(s) take 2 GPU nodes, and there are 1 (default: gpu.nodes = 1); --nodes 2 has as many"#);
        insta::assert_snapshot!(refused(&[("serve.topology", "disaggregated"), ("serve.prefill", "2"), ("gpu.nodes", "2")]), @r#"--topology: serve.topology = "disaggregated": 2 prefill worker(s) of 1 node(s) and 1 decode worker(s) of 1 node(s) take 3 GPU nodes, and there are 2 (--nodes: gpu.nodes = 2); --nodes 3 has as many"#);
        insta::assert_snapshot!(refused(&[("serve.topology", "disaggregated"), ("serve.nodes", "2"), ("gpu.nodes", "4")]), @"--set serve.nodes: serve.nodes = 2: disaggregated takes no more than one node a worker: vLLM's NIXL connector refuses pipeline parallelism for models with Mamba layers, and on the receiving side for every model (0.26 to 0.33)");
        insta::assert_snapshot!(refused(&[("serve.nodes", "2"), ("gpu.nodes", "2")]), @"--set serve.nodes: serve.nodes = 2: aggregated takes no more than one node a worker: each replica is one node; pipeline-parallel and expert-parallel spread a replica over nodes");
        insta::assert_snapshot!(refused(&[("serve.topology", "expert-parallel"), ("serve.nodes", "1"), ("gpu.nodes", "2")]), @"--set serve.nodes: serve.nodes = 1: expert-parallel spreads a replica over 2 nodes or more; aggregated has it on one");
        insta::assert_snapshot!(refused(&[("serve.topology", "disaggregated"), ("serve.replicas", "2"), ("gpu.nodes", "2")]), @"--set serve.replicas: serve.replicas = 2: disaggregated has no workers that do everything: serve.prefill and serve.decode count its workers");
    }

    #[test]
    fn an_encoder_is_an_engine_for_itself_on_each_gpu() {
        let flags = [("model", "nemotron-3.5-super-vl"), ("serve.topology", "e-p-d"), ("serve.encode", "2"), ("gpu.nodes", "4")];
        let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let spec = load(&Inputs { working_folder: std::env::temp_dir().join("nowhere"), file: None, env: Vec::new(), flags }).unwrap().0;
        let parts: Vec<_> = spec.parts().iter().map(|part| (part.role, part.pods(), part.tensor_parallel_size, part.data_parallel_size)).collect();
        assert_eq!(parts, [(Role::Encode, 2, 1, 8), (Role::Prefill, 1, 8, 1), (Role::Decode, 1, 8, 1)]);
        assert!(spec.splits_by_vllm());
        let images: Vec<_> = spec.images().map(|(name, _)| name.as_str()).collect();
        assert!(images.contains(&"gateway") && images.contains(&"picture-router"), "{images:?}");
    }

    #[test]
    fn sizes_of_engines() {
        insta::assert_snapshot!(refused(&[("serve.tensor_parallel_size", "3")]), @"--set serve.tensor_parallel_size: serve.tensor_parallel_size = 3: heads and experts are halved, and p5en.48xlarge has 8 GPUs: one of 1, 2, 4, 8");
        insta::assert_snapshot!(refused(&[("serve.topology", "pipeline-parallel"), ("serve.tensor_parallel_size", "4"), ("gpu.nodes", "2")]), @"--set serve.tensor_parallel_size: serve.tensor_parallel_size = 4: pipeline-parallel takes whole nodes, which have 8 GPUs");
        insta::assert_snapshot!(refused(&[("serve.topology", "disaggregated"), ("serve.decode_tensor_parallel_size", "4"), ("gpu.nodes", "2")]), @"--set serve.decode_tensor_parallel_size: serve.decode_tensor_parallel_size = 4: prefill on 8 GPUs and decode on 4: the NIXL connector can corrupt the Mamba state between unequal sizes (vllm issue 55208, open on 2026-09-04); 0 makes them equal");
    }

    #[test]
    fn a_service_of_our_namespace_is_no_public_host() {
        let said = refused(&[("serve.namespace", "nemotron"), ("serve.media_domains", "images.example.com,frontend.nemotron")]);
        assert!(said.contains("frontend.nemotron is a Service of the namespace nemotron"), "{said}");
    }

    #[test]
    fn names_that_the_operator_makes_longer() {
        insta::assert_snapshot!(refused(&[("serve.form", "dgd-grove"), ("name", "a-name-of-18-chars")]), @r#"--name: name = "a-name-of-18-chars": as dgd-grove it may have 17 characters: the operator and Grove make longer names from it, of at most 45"#);
        let long = "n".repeat(46);
        insta::assert_snapshot!(refused(&[("serve.form", "dgd-v1beta1"), ("serve.namespace", &long)]), @r#"--set serve.namespace: serve.namespace = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn": as dgd-v1beta1 it may have 45 characters: together with the name it is a label of at most 63"#);
        insta::assert_snapshot!(refused(&[("serve.form", "dgd-v1beta1"), ("serve.namespace", "my-ephemeral")]), @r#"--set serve.namespace: serve.namespace = "my-ephemeral": Dynamo's operator ignores a namespace with "ephemeral" in its name without a word"#);
    }
}
