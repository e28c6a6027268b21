//! A small API server in memory: it keeps what is applied, does at once what controllers would do, and counts writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

/// What is stored, by path, and what was written.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<String, Value>,
    /// `PATCH deployments/vllm-worker`
    pub(crate) writes: Vec<String>,
    /// Controllers do nothing: what is applied never becomes ready.
    pub(crate) idle: bool,
    uid: u64,
}

/// The server; clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Api(pub(crate) Arc<Mutex<Store>>);

/// A path taken apart: `apis/apps/v1`, namespace, plural, name.
struct Path<'a> {
    group: String,
    namespace: Option<&'a str>,
    plural: &'a str,
    name: Option<&'a str>,
}

impl<'a> Path<'a> {
    fn of(path: &'a str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = parts.split_at(if parts[0] == "api" { 2 } else { 3 });
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        Self { group: group.join("/"), namespace, plural: rest[0], name: rest.get(1).copied() }
    }

    fn title(&self) -> String {
        format!("{}/{}", self.plural, self.name.unwrap_or("*"))
    }

    /// Is the other path an object of this list?
    fn holds(&self, other: &Path<'_>) -> bool {
        self.group == other.group && self.plural == other.plural && (self.namespace.is_none() || self.namespace == other.namespace)
    }
}

impl Api {
    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        self.0.lock().unwrap().writes.clone()
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap().objects.insert(path.to_owned(), object);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }

    pub(crate) fn take(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.remove(path)
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let query: BTreeMap<String, String> = url_query(uri.query().unwrap_or_default());
        let (status, value) = self.0.lock().unwrap().handle(&method, uri.path(), &query, &body);
        Response::builder().status(status).body(Body::from(serde_json::to_vec(&value).unwrap())).unwrap()
    }
}

fn url_query(query: &str) -> BTreeMap<String, String> {
    let unescaped = |text: &str| text.replace('+', " ").replace("%3D", "=").replace("%2C", ",").replace("%2F", "/").replace("%28", "(").replace("%29", ")").replace("%20", " ");
    query.split('&').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.to_owned(), unescaped(value))).collect()
}

/// `a=b,c in (d,e)`
fn selects(selector: &str, labels: &Value) -> bool {
    let (mut terms, mut depth, mut term) = (Vec::new(), 0, String::new());
    for letter in selector.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(std::mem::take(&mut term));
                continue;
            }
            _ => {}
        }
        term.push(letter);
    }
    terms.push(term);
    terms.iter().filter(|term| !term.is_empty()).all(|term| match term.split_once(" in ") {
        Some((key, values)) => labels[key].as_str().is_some_and(|label| values.trim_matches(['(', ')']).split(',').any(|value| value == label)),
        None => term.split_once('=').map_or_else(|| !labels[term.as_str()].is_null(), |(key, value)| labels[key] == value),
    })
}

/// `metadata.name=a,type=b`
fn of_fields(selector: &str, object: &Value) -> bool {
    let value = |path: &str| object.pointer(&format!("/{}", path.replace('.', "/"))).cloned().unwrap_or_default();
    selector.split(',').filter_map(|term| term.split_once('=')).all(|(path, wanted)| value(path) == wanted)
}

impl Store {
    fn handle(&mut self, method: &Method, path: &str, query: &BTreeMap<String, String>, body: &[u8]) -> (u16, Value) {
        if path.ends_with("/proxy/v1/models") {
            return (200, json!({"data": [{"id": "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16"}]}));
        }
        if let Some(served) = discovered(path) {
            return (200, served);
        }
        let parts = Path::of(path);
        match (method.as_str(), parts.name) {
            ("GET", Some(_)) => self.objects.get(path).map_or_else(|| missing(&parts.title()), |object| (200, object.clone())),
            ("GET", None) => {
                let of = |what: &str| query.get(what).map_or("", String::as_str);
                let (selector, fields) = (of("labelSelector"), of("fieldSelector"));
                let items: Vec<_> = self
                    .objects
                    .iter()
                    .filter(|(key, object)| parts.holds(&Path::of(key)) && selects(selector, &object["metadata"]["labels"]) && of_fields(fields, object))
                    .map(|(_, object)| object.clone())
                    .collect();
                (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
            }
            ("PATCH", Some(_)) if query.contains_key("dryRun") => (200, serde_json::from_slice(body).unwrap()),
            ("PATCH", Some(name)) => {
                self.writes.push(format!("PATCH {}", parts.title()));
                let mut object: Value = serde_json::from_slice(body).unwrap();
                assert_eq!(query.get("fieldManager").map(String::as_str), Some("nemo"));
                self.uid += 1;
                object["metadata"]["uid"] = self.objects.get(path).map_or_else(|| json!(format!("uid-{}", self.uid)), |old| old["metadata"]["uid"].clone());
                assert_eq!(object["metadata"]["name"], name);
                self.control(&parts, &mut object);
                self.objects.insert(path.to_owned(), object.clone());
                (200, object)
            }
            ("DELETE", Some(_)) => {
                self.writes.push(format!("DELETE {}", parts.title()));
                match self.objects.remove(path) {
                    Some(_) => (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
                    None => missing(&parts.title()),
                }
            }
            ("DELETE", None) => {
                self.writes.push(format!("DELETE {}", parts.title()));
                (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            _ => panic!("{method} {path} is not what a step should ask"),
        }
    }

    /// What controllers, kubelets and helm would make of it.
    fn control(&mut self, path: &Path<'_>, object: &mut Value) {
        if self.idle {
            return;
        }
        match path.plural {
            "persistentvolumeclaims" => {
                // A volume whose claim is gone takes no other, not even one of the same name.
                let volume = format!("/api/v1/persistentvolumes/{}", object["spec"]["volumeName"].as_str().unwrap());
                let released = self.objects.get(&volume).is_some_and(|volume| volume["status"]["phase"] == "Released");
                object["status"] = json!({"phase": if released { "Pending" } else { "Bound" }});
            }
            "deployments" => {
                object["metadata"]["generation"] = json!(1);
                let replicas = object["spec"]["replicas"].clone();
                object["status"] = json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas});
            }
            "leaderworkersets" => {
                let replicas = object["spec"]["replicas"].clone();
                let available = json!([{"type": "Available", "status": "True"}]);
                object["status"] = json!({"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "conditions": available});
            }
            "dynamographdeployments" => {
                object["metadata"]["generation"] = json!(1);
                object["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]});
            }
            "services" if object["spec"]["type"] == "LoadBalancer" => {
                object["status"] = json!({"loadBalancer": {"ingress": [{"hostname": "a.elb.us-east-2.amazonaws.com"}]}});
            }
            "jobs" => {
                object["status"] = json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-30T12:00:00Z"}], "succeeded": 1});
                let args = object["spec"]["template"]["spec"]["containers"][0]["args"].clone();
                self.helm(&args.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>());
            }
            _ => {}
        }
    }

    fn helm(&mut self, args: &[&str]) {
        let after = |flag: &str| args.iter().position(|arg| *arg == flag).map(|at| args[at + 1]).unwrap();
        let namespace = after("--namespace");
        let release = if args[0] == "upgrade" { args[2] } else { args[1] };
        let secret = |revision: u32| format!("/api/v1/namespaces/{namespace}/secrets/sh.helm.release.v1.{release}.v{revision}");
        let pending = self.objects.values().any(|object| object["metadata"]["labels"]["name"] == release && object["metadata"]["labels"]["status"] == "pending-install");
        assert!(!pending, "helm: another operation (install/upgrade/rollback) is in progress");
        let workload = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{release}-manager");
        let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/dynamoworkermetadatas.nvidia.com";
        if args[0] == "uninstall" {
            self.objects.retain(|_, object| object["metadata"]["labels"]["owner"] != "helm" || object["metadata"]["labels"]["name"] != release);
            self.objects.remove(&workload);
            return;
        }
        let mut labels = json!({"owner": "helm", "name": release, "version": "1", "status": "deployed"});
        for (key, value) in after("--labels").split(',').filter_map(|pair| pair.split_once('=')) {
            labels[key] = json!(value);
        }
        self.objects.insert(
            secret(1),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("sh.helm.release.v1.{release}.v1"), "namespace": namespace, "labels": labels}}),
        );
        let ready = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1, "selector": {"matchLabels": {}}, "template": {}},
            "metadata": {"name": format!("{release}-manager"), "namespace": namespace, "generation": 1, "labels": {"app.kubernetes.io/instance": release}},
            "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}});
        self.objects.insert(workload, ready);
        if release == "dynamo-platform" {
            let names = json!({"kind": "DynamoWorkerMetadata", "plural": "dynamoworkermetadatas"});
            let established = json!([{"type": "Established", "status": "True"}]);
            self.objects.insert(
                crd.to_owned(),
                json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "dynamoworkermetadatas.nvidia.com"},
                    "spec": {"group": "nvidia.com", "scope": "Namespaced", "names": names, "versions": [{"name": "v1alpha1", "served": true, "storage": true}]},
                    "status": {"conditions": established, "acceptedNames": names, "storedVersions": ["v1alpha1"]}}),
            );
        }
    }
}

/// What is served, as far as steps ask for it: the kinds of LeaderWorkerSet and of Dynamo.
fn discovered(path: &str) -> Option<Value> {
    let plural = match path {
        "/apis" => return Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        "/apis/leaderworkerset.x-k8s.io/v1" => "leaderworkersets",
        "/apis/nvidia.com/v1alpha1" | "/apis/nvidia.com/v1beta1" => "dynamographdeployments",
        _ => return None,
    };
    let resource = json!({"name": plural, "singularName": "", "namespaced": true, "kind": "K", "verbs": ["get"]});
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": &path[6..], "resources": [resource]}))
}

fn missing(what: &str) -> (u16, Value) {
    (404, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": format!("{what} not found"), "code": 404}))
}
