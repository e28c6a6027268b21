//! The pods that a manifest asks for, whatever kind it is: one shape for every rule to look at.

use std::collections::BTreeMap;

use serde_json::Value;

use super::command::Line;
use super::{path, quantity};

/// The pods of one template.
#[derive(Debug)]
pub struct Pod<'a> {
    /// Of the pod spec.
    pub path: String,
    pub spec: &'a Value,
    /// Of the template, and of the whole object.
    pub labels: Vec<&'a Value>,
    pub annotations: Vec<&'a Value>,
    /// Pods that make one engine or one group together, as the manifest says; 1 where it says nothing.
    pub nodes: u64,
    /// What an operator calls the role, where one does: `frontend`, `decode`.
    pub role: Option<&'a str>,
    pub component: Option<&'a str>,
    /// Of Dynamo's operator, which adds shared memory and probes of its own.
    pub operated: bool,
    /// Size of the shared memory where the kind has a field for it; `0` is none.
    pub shared_memory: Option<String>,
    pub containers: Vec<Container<'a>>,
}

/// A container with what the manifest says about it in several places.
#[derive(Debug)]
pub struct Container<'a> {
    /// Where image, command and probes are.
    pub path: String,
    pub value: &'a Value,
    pub env: BTreeMap<&'a str, Variable<'a>>,
    /// Amount and path by the resource's name; requests over limits.
    pub resources: BTreeMap<&'a str, (String, String)>,
    pub line: Line,
}

/// A variable of the environment.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable<'a> {
    /// Of the value, or of the entry without one.
    pub path: String,
    /// None: taken from a field, a Secret or a ConfigMap.
    pub value: Option<&'a str>,
}

pub const GPU: &str = "nvidia.com/gpu";
pub const EFA: &str = "vpc.amazonaws.com/efa";

impl Container<'_> {
    /// The amount of a countable resource.
    pub fn count(&self, resource: &str) -> u64 {
        self.resources.get(resource).and_then(|(amount, _)| amount.parse().ok()).unwrap_or(0)
    }

    /// Path of a resource's amount, or of the container where it is not asked for.
    pub fn at(&self, resource: &str) -> String {
        self.resources.get(resource).map_or_else(|| self.path.clone(), |(_, path)| path.clone())
    }

    pub fn gpus(&self) -> u64 {
        self.count(GPU)
    }

    pub fn efa(&self) -> u64 {
        self.count(EFA)
    }

    /// The value of a variable, if the manifest itself has it.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.get(name).and_then(|variable| variable.value)
    }

    pub fn image(&self) -> &str {
        self.value["image"].as_str().unwrap_or_default()
    }
}

impl<'a> Pod<'a> {
    pub fn efa(&self) -> u64 {
        sum(self.containers.iter().map(Container::efa))
    }

    pub fn gpus(&self) -> u64 {
        sum(self.containers.iter().map(Container::gpus))
    }

    /// Thousandths of a CPU that all containers ask for.
    pub fn cpu_milli(&self) -> u64 {
        sum(self.containers.iter().filter_map(|container| quantity::milli(&container.resources.get("cpu")?.0)))
    }

    pub fn label(&self, name: &str) -> Option<&'a str> {
        self.labels.iter().find_map(|labels| labels[name].as_str())
    }

    pub fn annotation(&self, name: &str) -> Option<&'a str> {
        self.annotations.iter().find_map(|annotations| annotations[name].as_str())
    }

    /// Does it answer the requests of clients, and compute nothing?
    pub fn frontend(&self) -> bool {
        self.role == Some("frontend") || self.containers.iter().any(|container| container.line.frontend())
    }

    /// The instance types that the pod may run on, where it says so; HyperPod's prefix taken away.
    pub fn instance_types(&self) -> Vec<&'a str> {
        const LABELS: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];
        let selected = LABELS.iter().filter_map(|label| self.spec["nodeSelector"][*label].as_str());
        let terms = &self.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let expressions = list(terms).flat_map(|term| list(&term["matchExpressions"]));
        let expressed =
            expressions.filter(|one| LABELS.iter().any(|label| one["key"] == *label) && one["operator"] == "In").flat_map(|one| list(&one["values"])).filter_map(Value::as_str);
        let mut types: Vec<_> = selected.chain(expressed).map(|name| name.strip_prefix("ml.").unwrap_or(name)).collect();
        types.sort_unstable();
        types.dedup();
        types
    }
}

/// Of numbers that people wrote: they can be of any size.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The items of a list; nothing where there is none.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A pod template (`metadata` and `spec`) somewhere in a document.
struct Template<'a> {
    path: String,
    value: &'a Value,
    nodes: u64,
}

/// Every pod of the document.
pub fn pods(document: &Value) -> Vec<Pod<'_>> {
    let spec = &document["spec"];
    let at = |path: &str, value, nodes| Template { path: path.to_owned(), value, nodes };
    let templates = match document["kind"].as_str().unwrap_or_default() {
        "Pod" => vec![at("", document, 1)],
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" | "ReplicationController" => vec![at("spec.template", &spec["template"], 1)],
        "CronJob" => vec![at("spec.jobTemplate.spec.template", &spec["jobTemplate"]["spec"]["template"], 1)],
        "LeaderWorkerSet" => {
            let inner = &spec["leaderWorkerTemplate"];
            let nodes = inner["size"].as_u64().unwrap_or(1);
            let both = ["leaderTemplate", "workerTemplate"].map(|name| at(&format!("spec.leaderWorkerTemplate.{name}"), &inner[name], nodes));
            both.into_iter().filter(|template| template.value.is_object()).collect()
        }
        "PodCliqueSet" => return cliques(document),
        "PodClique" => return vec![clique(document, spec, "spec", 1)],
        "DynamoGraphDeployment" if spec["services"].is_object() => return entries(&spec["services"]).map(|(name, service)| service_pod(document, name, service)).collect(),
        "DynamoGraphDeployment" => return list(&spec["components"]).enumerate().map(|(index, component)| component_pod(document, index, component)).collect(),
        _ => return Vec::new(),
    };
    templates.into_iter().map(|template| plain(document, &template)).collect()
}

fn plain<'a>(document: &'a Value, template: &Template<'a>) -> Pod<'a> {
    let path = path::field(&template.path, "spec");
    let spec = &template.value["spec"];
    Pod {
        containers: containers(spec, &path, &[]),
        labels: vec![&template.value["metadata"]["labels"], &document["metadata"]["labels"]],
        annotations: vec![&template.value["metadata"]["annotations"], &document["metadata"]["annotations"]],
        nodes: template.nodes,
        role: None,
        component: None,
        operated: false,
        shared_memory: None,
        spec,
        path,
    }
}

/// Cliques of one scaling group make one engine: a leader and its workers.
fn cliques(document: &Value) -> Vec<Pod<'_>> {
    let template = &document["spec"]["template"];
    let size = |name: &str| {
        let of = |clique: &str| list(&template["cliques"]).find(|one| one["name"] == clique).and_then(|one| one["spec"]["replicas"].as_u64()).unwrap_or(1);
        let group = list(&template["podCliqueScalingGroups"]).find(|group| list(&group["cliqueNames"]).any(|one| one == name));
        group.map_or(1, |group| sum(list(&group["cliqueNames"]).filter_map(Value::as_str).map(of)))
    };
    let at = |index, one: &Value| (format!("spec.template.cliques[{index}].spec"), size(one["name"].as_str().unwrap_or_default()));
    list(&template["cliques"]).enumerate().map(|(index, one)| (at(index, one), one)).map(|((path, nodes), one)| clique(document, &one["spec"], &path, nodes)).collect()
}

fn clique<'a>(document: &'a Value, spec: &'a Value, at: &str, nodes: u64) -> Pod<'a> {
    let path = path::field(at, "podSpec");
    let pod = &spec["podSpec"];
    Pod {
        containers: containers(pod, &path, &[]),
        labels: vec![&document["metadata"]["labels"]],
        annotations: vec![&document["metadata"]["annotations"]],
        nodes,
        role: spec["roleName"].as_str(),
        component: None,
        operated: false,
        shared_memory: None,
        spec: pod,
        path,
    }
}

/// A service of DynamoGraphDeployment v1alpha1: the container's parts are spread over the service.
fn service_pod<'a>(document: &'a Value, name: &'a str, service: &'a Value) -> Pod<'a> {
    let at = path::field("spec.services", name);
    let path = path::field(&at, "extraPodSpec");
    let spec = &service["extraPodSpec"];
    let outer = [(&document["spec"]["envs"], "spec.envs".to_owned()), (&service["envs"], path::field(&at, "envs"))];
    let main_path = path::field(&path, "mainContainer");
    let mut main = container(&spec["mainContainer"], &main_path, &outer);
    for (part, amounts) in ["limits", "requests"].map(|part| (part, &service["resources"][part])) {
        let here = path::field(&path::field(&at, "resources"), part);
        for (key, amount) in entries(amounts).chain(entries(&amounts["custom"])).filter(|(_, amount)| !amount.is_object()) {
            let inner = if amounts.get(key.as_str()).is_some() { here.clone() } else { path::field(&here, "custom") };
            let resource = if key == "gpu" { GPU } else { key.as_str() };
            main.resources.insert(resource, (amount_text(amount), path::field(&inner, key)));
        }
    }
    let mut all = vec![main];
    all.extend(containers(spec, &path, &outer[..1]));
    let shared = &service["sharedMemory"];
    Pod {
        containers: all,
        labels: vec![&service["extraPodMetadata"]["labels"], &service["labels"], &document["metadata"]["labels"]],
        annotations: vec![&service["extraPodMetadata"]["annotations"], &service["annotations"], &document["metadata"]["annotations"]],
        nodes: service["multinode"]["nodeCount"].as_u64().unwrap_or(1),
        role: service["subComponentType"].as_str().or(service["componentType"].as_str()),
        component: Some(name),
        operated: true,
        shared_memory: if shared["disabled"] == true { Some("0".into()) } else { shared["size"].as_str().map(str::to_owned) },
        spec,
        path,
    }
}

/// A component of DynamoGraphDeployment v1beta1.
fn component_pod<'a>(document: &'a Value, index: usize, component: &'a Value) -> Pod<'a> {
    let at = path::item("spec.components", index);
    let path = path::field(&path::field(&at, "podTemplate"), "spec");
    let template = &component["podTemplate"];
    let outer = [(&document["spec"]["env"], "spec.env".to_owned())];
    Pod {
        containers: containers(&template["spec"], &path, &outer),
        labels: vec![&template["metadata"]["labels"], &document["metadata"]["labels"]],
        annotations: vec![&template["metadata"]["annotations"], &document["metadata"]["annotations"]],
        nodes: component["multinode"]["nodeCount"].as_u64().unwrap_or(1),
        role: component["type"].as_str(),
        component: component["name"].as_str(),
        operated: true,
        shared_memory: component.get("sharedMemorySize").map(amount_text),
        spec: &template["spec"],
        path,
    }
}

fn containers<'a>(spec: &'a Value, path: &str, outer: &[(&'a Value, String)]) -> Vec<Container<'a>> {
    let at = path::field(path, "containers");
    list(&spec["containers"]).enumerate().map(|(index, value)| container(value, &path::item(&at, index), outer)).collect()
}

fn container<'a>(value: &'a Value, path: &str, outer: &[(&'a Value, String)]) -> Container<'a> {
    let own = (&value["env"], path::field(path, "env"));
    let mut env = BTreeMap::new();
    for (variables, at) in outer.iter().chain([&own]) {
        for (index, variable) in list(variables).enumerate() {
            let at = path::item(at, index);
            let path = if variable.get("value").is_some() { path::field(&at, "value") } else { at };
            if let Some(name) = variable["name"].as_str() {
                env.insert(name, Variable { path, value: variable["value"].as_str() });
            }
        }
    }
    let mut resources = BTreeMap::new();
    for part in ["limits", "requests"] {
        let at = path::field(&path::field(path, "resources"), part);
        resources.extend(entries(&value["resources"][part]).map(|(name, amount)| (name.as_str(), (amount_text(amount), path::field(&at, name)))));
    }
    let line = Line::of(value, path, &env);
    Container { path: path.to_owned(), value, env, resources, line }
}

fn amount_text(amount: &Value) -> String {
    amount.as_str().map_or_else(|| amount.to_string(), str::to_owned)
}
