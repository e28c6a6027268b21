//! What serves, as it is in the cluster: what `test` and `bench` are results of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::Deps;
use super::facts::{ClusterFacts, ServeFacts};
use crate::bench::plan::{Container, Served};
use crate::endpoint::Endpoint;
use crate::engine::step::{Cx, Digest, StepId};
use crate::error::ServiceError;
use crate::k8s::{self, ANNOTATION_INPUTS, Answer, Forward, Owner, Target};
use crate::render::GATEWAY;

/// The endpoint's pods and the way to them.
pub(super) struct Ground {
    pub(super) client: Client,
    pub(super) serve: ServeFacts,
    pub(super) served: Served,
}

impl Ground {
    /// None when there is nothing that serves: no cluster, no Deployment.
    pub(super) async fn look(deps: &Deps, cx: &Cx) -> anyhow::Result<Option<Self>> {
        if cx.facts.table(StepId::Cluster).is_none() || cx.facts.table(StepId::Serve).is_none() {
            return Ok(None);
        }
        let (cluster, serve): (ClusterFacts, ServeFacts) = (cx.facts_of(StepId::Cluster)?, cx.facts_of(StepId::Serve)?);
        let client = deps.kube_of(&cluster)?;
        Ok(served(&client, &serve.namespace, &deps.spec.name).await?.map(|served| Self { client, serve, served }))
    }
}

/// Workloads beside Deployments: those of the other forms.
const OTHERS: [(&str, &str, &str); 2] = [("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"), ("nvidia.com", "v1beta1", "DynamoGraphDeployment")];

/// The serving workloads, read from the API server; None if there is none. The digest is over their annotation and their pod
/// templates as they are there, so a change by other hands (`kubectl set image`, `rollout restart`) counts, too.
pub(super) async fn served(client: &Client, namespace: &str, deployment: &str) -> Result<Option<Served>, ServiceError> {
    let list = ListParams::default().labels(&Owner { deployment, step: StepId::Serve.as_str() }.selector());
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let mut found = api.list(&list).await.answer("LIST deployments")?.items;
    // Who may come in changes nothing about what answers.
    found.retain(|deployment| deployment.metadata.deletion_timestamp.is_none() && deployment.name_any() != GATEWAY);
    found.sort_by_key(ResourceExt::name_any);
    let mut others = Vec::new();
    for (group, version, kind) in OTHERS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        // A kind that the cluster does not know has no objects.
        others.extend(api.list(&list).await.or_none(&format!("LIST {}", resource.plural))?.map(|list| list.items).unwrap_or_default());
    }
    others.retain(|other| other.metadata.deletion_timestamp.is_none());
    others.sort_by_key(ResourceExt::name_any);
    Ok((!found.is_empty() || !others.is_empty()).then(|| of(&found, &others)))
}

fn of(deployments: &[Deployment], others: &[DynamicObject]) -> Served {
    let mut served = BTreeMap::new();
    let mut parts = Vec::new();
    for deployment in deployments {
        let (name, spec) = (deployment.name_any(), deployment.spec.clone().unwrap_or_default());
        parts.push((name.clone(), deployment.annotations().get(ANNOTATION_INPUTS).cloned(), spec.replicas, spec.template.clone()));
        for container in spec.template.spec.unwrap_or_default().containers {
            let args = container.command.into_iter().flatten().chain(container.args.into_iter().flatten()).collect();
            served.insert(format!("{name}/{}", container.name), Container { image: container.image.unwrap_or_default(), args });
        }
    }
    let others: Vec<_> = others.iter().map(|other| (other.name_any(), other.annotations().get(ANNOTATION_INPUTS).cloned(), &other.data["spec"])).collect();
    for (name, _, spec) in &others {
        containers(name, spec, &mut served);
    }
    Served { digest: Digest::of(&(&parts, &others)).0, containers: served }
}

/// Containers by the place where they are: `vllm-worker/leaderWorkerTemplate/workerTemplate/worker`.
fn containers(path: &str, value: &Value, found: &mut BTreeMap<String, Container>) {
    let words = |value: &Value| value.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect::<Vec<_>>();
    if let (Some(image), Some(name)) = (value["image"].as_str(), value["name"].as_str()) {
        let args = [words(&value["command"]), words(&value["args"])].concat();
        found.insert(format!("{path}/{name}"), Container { image: image.to_owned(), args });
    }
    match value {
        // A part of a list is known by its name where it has one.
        Value::Array(items) => items.iter().for_each(|item| containers(path, item, found)),
        Value::Object(fields) => {
            let path = match value["name"].as_str() {
                Some(name) if value.get("image").is_none() => format!("{path}/{name}"),
                _ => path.to_owned(),
            };
            for (key, field) in fields.iter().filter(|(_, field)| field.is_object() || field.is_array()) {
                let key = if key.ends_with("Template") && key != "podTemplate" { format!("{path}/{key}") } else { path.clone() };
                containers(&key, field, found);
            }
        }
        _ => {}
    }
}

/// The endpoint through a port-forward, for as long as this lives.
pub(super) struct Way {
    pub(super) endpoint: Endpoint,
    _forward: Forward,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Way {
    /// To the frontend's Service.
    pub(super) async fn to(client: &Client, serve: &ServeFacts) -> Result<Self, ServiceError> {
        let trouble: Arc<Mutex<Option<String>>> = Arc::default();
        let noted = trouble.clone();
        let tell: k8s::Tell = Arc::new(move |text| *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(text));
        let target = Target { namespace: serve.namespace.clone(), service: serve.service.clone(), port: serve.port };
        let forward = k8s::forward(client.clone(), target, 0, tell).await?;
        Ok(Self { endpoint: Endpoint::new(format!("http://{}", forward.address()))?, _forward: forward, trouble })
    }

    /// Why the last connection went nowhere, in the API server's words; the caller only saw it close.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Is the model listed? One call.
    pub(super) async fn lists(&self, model: &str) -> Result<bool, String> {
        match self.endpoint.models().await {
            Ok(models) => Ok(models.iter().any(|name| name == model)),
            Err(error) => Err(self.trouble().unwrap_or_else(|| error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(image: &str, annotation: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "annotations": {ANNOTATION_INPUTS: annotation}, "resourceVersion": "7"},
            "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": image, "command": ["python3"], "args": ["-m", "x"]}]}}},
            "status": {"readyReplicas": 1}})
    }

    fn parsed(value: Value) -> Served {
        of(&[serde_json::from_value(value).unwrap()], &[])
    }

    #[test]
    fn the_digest_changes_with_what_serves_and_with_nothing_else() {
        let served = parsed(deployment("i@sha256:1", "a"));
        assert_eq!(served.containers["w/c"], Container { image: "i@sha256:1".into(), args: ["python3", "-m", "x"].map(str::to_owned).to_vec() });
        let mut later = deployment("i@sha256:1", "a");
        later["metadata"]["resourceVersion"] = json!("8");
        later["status"]["readyReplicas"] = json!(0);
        assert_eq!(parsed(later).digest, served.digest);
        for other in [deployment("i@sha256:2", "a"), deployment("i@sha256:1", "b")] {
            assert_ne!(parsed(other).digest, served.digest);
        }
        let mut restarted = deployment("i@sha256:1", "a");
        restarted["spec"]["template"]["metadata"] = json!({"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}});
        assert_ne!(parsed(restarted).digest, served.digest);
    }

    #[test]
    fn groups_and_graphs_count_too() {
        let group = |image: &str| {
            let pods = json!({"spec": {"containers": [{"name": "worker", "image": image, "command": ["python3"], "args": ["-m", "x"]}]}});
            let object = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "w"},
                "spec": {"leaderWorkerTemplate": {"size": 2, "leaderTemplate": pods, "workerTemplate": pods}}});
            of(&[], &[serde_json::from_value(object).unwrap()])
        };
        let names: Vec<_> = group("i@sha256:1").containers.into_keys().collect();
        assert_eq!(names, ["w/leaderWorkerTemplate/leaderTemplate/worker", "w/leaderWorkerTemplate/workerTemplate/worker"]);
        assert_ne!(group("i@sha256:1").digest, group("i@sha256:2").digest);
        let graph = json!({"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "nemo"},
            "spec": {"components": [{"name": "decode", "podTemplate": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}]}});
        assert_eq!(of(&[], &[serde_json::from_value(graph).unwrap()]).containers.into_keys().collect::<Vec<_>>(), ["nemo/decode/main"]);
    }
}
