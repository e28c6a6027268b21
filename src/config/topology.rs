//! How the work of serving is spread over pods (topology), as which Kubernetes objects it is written (form), and which goes with which.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the work is spread over pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Each replica is one engine on one node.
    Aggregated,
    /// Each replica is one engine whose layers are spread over nodes.
    PipelineParallel,
    /// Each replica is an engine a node; the experts are spread over all of them.
    ExpertParallel,
    /// Prompts are computed by some workers, answers by others.
    Disaggregated,
    /// Pictures are encoded by some workers, everything else is done by others.
    #[serde(rename = "e-pd")]
    EncodeApart,
    /// Encode, prefill and decode each by workers of their own.
    #[serde(rename = "e-p-d")]
    AllApart,
}

/// As which objects it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Plain Deployments and Services.
    Deployments,
    /// A LeaderWorkerSet for each set of workers.
    Lws,
    /// A DynamoGraphDeployment, as operators before 1.4 store it.
    DgdV1alpha1,
    /// A DynamoGraphDeployment.
    DgdV1beta1,
    /// A DynamoGraphDeployment whose pods Grove makes and KAI places, all or none.
    DgdGrove,
}

/// `serve.form`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FormSetting {
    Auto,
    #[serde(untagged)]
    As(Form),
}

/// What the pods of one kind do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Worker,
    Prefill,
    Decode,
    Encode,
}

/// Whose workers encode the pictures of a model apart from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EncodeWorker {
    /// `vllm serve --mm-encoder-only`, beside engines that are `vllm serve` too.
    Vllm,
    /// `dynamo.vllm --disaggregation-mode encode`.
    Dynamo,
}

impl Role {
    /// What a pod that does it is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Prefill => "prefill worker",
            Self::Decode => "decode worker",
            Self::Encode => "encode worker",
        }
    }
}

impl Topology {
    pub const ALL: [Self; 6] = [Self::Aggregated, Self::PipelineParallel, Self::ExpertParallel, Self::Disaggregated, Self::EncodeApart, Self::AllApart];

    /// As the setting has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aggregated => "aggregated",
            Self::PipelineParallel => "pipeline-parallel",
            Self::ExpertParallel => "expert-parallel",
            Self::Disaggregated => "disaggregated",
            Self::EncodeApart => "e-pd",
            Self::AllApart => "e-p-d",
        }
    }

    /// Does one replica take several nodes?
    pub fn many_nodes(self) -> bool {
        matches!(self, Self::PipelineParallel | Self::ExpertParallel)
    }

    /// Are prompts and answers computed by different workers?
    pub fn splits_prefill(self) -> bool {
        matches!(self, Self::Disaggregated | Self::AllApart)
    }

    /// Are pictures encoded by workers of their own?
    pub fn splits_encode(self) -> bool {
        matches!(self, Self::EncodeApart | Self::AllApart)
    }

    /// The forms that it has where pictures are encoded by this one's workers.
    pub fn forms(self, encode_worker: Option<EncodeWorker>) -> Vec<Form> {
        Form::ALL.into_iter().filter(|form| refusal(self, encode_worker, *form).is_none()).collect()
    }

    /// The form of `auto` where there are these controllers, and why.
    pub fn form(self, there: Controllers) -> (Form, &'static str) {
        if !self.many_nodes() {
            (Form::Deployments, "each pod is a whole worker on one node, which needs no controller beyond Kubernetes' own")
        } else if there.lws || Form::DgdGrove.lacks(self, there).is_some() {
            (Form::Lws, "a replica is a group of pods, which a LeaderWorkerSet starts, counts and replaces together")
        } else {
            (Form::DgdGrove, "a replica is a group of pods; there is no LeaderWorkerSet here, and Dynamo's operator has Grove make groups")
        }
    }
}

impl Form {
    pub const ALL: [Self; 5] = [Self::Deployments, Self::Lws, Self::DgdV1alpha1, Self::DgdV1beta1, Self::DgdGrove];

    /// As the setting has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployments => "deployments",
            Self::Lws => "lws",
            Self::DgdV1alpha1 => "dgd-v1alpha1",
            Self::DgdV1beta1 => "dgd-v1beta1",
            Self::DgdGrove => "dgd-grove",
        }
    }

    /// Does Dynamo's operator make the pods?
    pub fn by_operator(self) -> bool {
        matches!(self, Self::DgdV1alpha1 | Self::DgdV1beta1 | Self::DgdGrove)
    }

    /// What of these controllers is missing to make the topology in this form.
    pub fn lacks(self, topology: Topology, there: Controllers) -> Option<&'static str> {
        let (missing, what) = match self {
            Self::Deployments => return None,
            Self::Lws => (!there.lws, "LeaderWorkerSet (leaderworkerset.x-k8s.io/v1)"),
            Self::DgdV1alpha1 if !there.dgd_v1alpha1 => (true, "DynamoGraphDeployment in nvidia.com/v1alpha1"),
            Self::DgdV1beta1 | Self::DgdGrove if !there.dgd_v1beta1 => (true, "DynamoGraphDeployment in nvidia.com/v1beta1"),
            Self::DgdGrove => (!(there.grove && there.kai), "Grove (grove.io) and KAI (scheduling.run.ai)"),
            Self::DgdV1alpha1 | Self::DgdV1beta1 => (
                topology.many_nodes() && !(there.lws && there.volcano),
                "LeaderWorkerSet with Volcano's API (scheduling.volcano.sh), without which Dynamo's operator makes no groups",
            ),
        };
        missing.then_some(what)
    }
}

/// Controllers of a cluster that make pods of our objects, known by the kinds that it serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Controllers {
    pub lws: bool,
    pub dgd_v1alpha1: bool,
    pub dgd_v1beta1: bool,
    pub grove: bool,
    pub kai: bool,
    pub volcano: bool,
}

impl Controllers {
    /// What a platform's charts bring.
    pub fn of_charts<'a>(charts: impl Iterator<Item = &'a str>) -> Self {
        charts.fold(Self::default(), |there, chart| match chart {
            "lws" => Self { lws: true, ..there },
            "dynamo-platform" => Self { dgd_v1alpha1: true, dgd_v1beta1: true, ..there },
            _ => there,
        })
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            lws: self.lws || other.lws,
            dgd_v1alpha1: self.dgd_v1alpha1 || other.dgd_v1alpha1,
            dgd_v1beta1: self.dgd_v1beta1 || other.dgd_v1beta1,
            grove: self.grove || other.grove,
            kai: self.kai || other.kai,
            volcano: self.volcano || other.volcano,
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const NO_RANKS: &str = "a Deployment's pods are all alike: none knows its rank in a group or the address of the first";
const NO_GROUP: &str = "each worker is one pod: a group of one pod needs no LeaderWorkerSet, and would restart for nothing";
const NO_GRAPH: &str = "in a graph of Dynamo's operator Dynamo's own encode worker would have to do it, which knows no Nemotron model (up to 1.6.1: Qwen-VL and LLaVA-1.5 only)";

/// **The table**: which topology is written in which form; where pictures are encoded apart, by whose workers. An empty cell is one that exists; the
/// others say why not. README.md shows it; a test holds the two equal.
const TABLE: [(Topology, Option<EncodeWorker>, [&str; 5]); 8] = [
    //                                                                     deployments  lws       dgd-v1alpha1  dgd-v1beta1  dgd-grove
    (Topology::Aggregated, /*      */ None, /*                      */ ["", /*   */ NO_GROUP, "", /*     */ "", /*     */ ""]),
    (Topology::PipelineParallel, /**/ None, /*                      */ [NO_RANKS, "", /*   */ "", /*     */ "", /*     */ ""]),
    (Topology::ExpertParallel, /*  */ None, /*                      */ [NO_RANKS, "", /*   */ "", /*     */ "", /*     */ ""]),
    (Topology::Disaggregated, /*   */ None, /*                      */ ["", /*   */ NO_GROUP, "", /*     */ "", /*     */ ""]),
    (Topology::EncodeApart, /*     */ Some(EncodeWorker::Vllm), /*  */ ["", /*   */ NO_GROUP, NO_GRAPH, NO_GRAPH, NO_GRAPH]),
    (Topology::EncodeApart, /*     */ Some(EncodeWorker::Dynamo), /**/ ["", /*   */ NO_GROUP, "", /*     */ "", /*     */ ""]),
    (Topology::AllApart, /*        */ Some(EncodeWorker::Vllm), /*  */ ["", /*   */ NO_GROUP, NO_GRAPH, NO_GRAPH, NO_GRAPH]),
    (Topology::AllApart, /*        */ Some(EncodeWorker::Dynamo), /**/ ["", /*   */ NO_GROUP, "", /*     */ "", /*     */ ""]),
];
const NO_WORKER: &str = "the model's file names nobody who could encode its pictures apart (encode_worker)";

/// Why there is no such form of the topology where pictures are encoded by this one's workers; `None`: there is one.
pub fn refusal(topology: Topology, encode_worker: Option<EncodeWorker>, form: Form) -> Option<&'static str> {
    let encode_worker = encode_worker.filter(|_| topology.splits_encode());
    let row = TABLE.iter().find(|(row, worker, _)| *row == topology && *worker == encode_worker);
    let column = Form::ALL.iter().position(|column| *column == form);
    row.zip(column).map_or(Some(NO_WORKER), |((_, _, cells), column)| Some(cells[column])).filter(|why| !why.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_settings_have() {
        for topology in Topology::ALL {
            assert_eq!(serde_json::to_value(topology).unwrap(), topology.name());
        }
        for form in Form::ALL {
            assert_eq!(serde_json::to_value(FormSetting::As(form)).unwrap(), form.name());
            assert_eq!(serde_json::from_value::<FormSetting>(form.name().into()).unwrap(), FormSetting::As(form));
        }
        assert_eq!(serde_json::from_value::<FormSetting>("auto".into()).unwrap(), FormSetting::Auto);
    }

    const OURS: Controllers = Controllers { lws: true, dgd_v1alpha1: true, dgd_v1beta1: true, grove: false, kai: false, volcano: false };
    const GROVE: Controllers = Controllers { lws: false, grove: true, kai: true, ..OURS };

    #[test]
    fn the_form_of_auto_exists() {
        for topology in Topology::ALL.into_iter().filter(|topology| !topology.forms(None).is_empty()) {
            for there in [OURS, GROVE, Controllers::default()] {
                assert_eq!(refusal(topology, None, topology.form(there).0), None, "{topology}");
            }
        }
        assert_eq!(Controllers::of_charts(["lws", "dynamo-platform", "nvidia-device-plugin"].into_iter()), OURS);
    }

    #[test]
    fn pictures_are_encoded_apart_by_those_who_can() {
        for topology in Topology::ALL {
            let by = |encode_worker| topology.forms(encode_worker);
            if topology.splits_encode() {
                assert_eq!(by(None), [], "{topology}");
                assert_eq!(refusal(topology, None, Form::Deployments), Some(NO_WORKER));
            } else {
                assert!(by(None) == by(Some(EncodeWorker::Vllm)) && by(None) == by(Some(EncodeWorker::Dynamo)), "{topology}: no other topology asks");
            }
        }
    }

    #[test]
    fn the_form_follows_what_the_cluster_has() {
        use Topology::{Aggregated, PipelineParallel};
        for (topology, there, form) in [
            (Aggregated, Controllers::default(), Form::Deployments),
            (PipelineParallel, OURS, Form::Lws),
            (PipelineParallel, Controllers { lws: true, ..GROVE }, Form::Lws),
            (PipelineParallel, GROVE, Form::DgdGrove),
            (PipelineParallel, Controllers { kai: false, ..GROVE }, Form::Lws),
        ] {
            assert_eq!(topology.form(there).0, form, "{topology} {there:?}");
        }
        for (form, topology, there, missing) in [
            (Form::Lws, PipelineParallel, GROVE, "LeaderWorkerSet"),
            (Form::DgdV1beta1, PipelineParallel, OURS, "Volcano"),
            (Form::DgdV1beta1, PipelineParallel, Controllers { volcano: true, ..OURS }, ""),
            (Form::DgdV1beta1, Aggregated, OURS, ""),
            (Form::DgdV1beta1, Aggregated, Controllers { dgd_v1beta1: false, ..OURS }, "v1beta1"),
            (Form::DgdV1alpha1, Aggregated, Controllers { dgd_v1beta1: false, ..OURS }, ""),
            (Form::DgdGrove, Aggregated, OURS, "Grove"),
            (Form::DgdGrove, PipelineParallel, GROVE, ""),
        ] {
            let lacks = form.lacks(topology, there);
            assert!(lacks.map_or(missing.is_empty(), |lacks| !missing.is_empty() && lacks.contains(missing)), "{topology} as {form} {there:?}: {lacks:?}");
        }
    }
}
