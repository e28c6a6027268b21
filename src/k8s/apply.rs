//! Server-side apply of documents in waves, only where they differ; looking at what is there; removal by our labels.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy, ValidationDirective};
use kube::core::metadata::PartialObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use sha2::{Digest, Sha256};

use super::drift::lost;
use super::error::Answer;
use super::offers;
use super::{ANNOTATION_INPUTS, LABEL_DEPLOYMENT, LABEL_KEPT, LABEL_MANAGED_BY, LABEL_REVISION, LABEL_STEP, MANAGER};
use crate::error::ServiceError;

/// Kinds whose objects have pods that stay.
pub const WORKLOADS: [&str; 3] = ["DynamoGraphDeployment", "LeaderWorkerSet", "Deployment"];

/// A manifest with our marks on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    resource: ApiResource,
    object: DynamicObject,
}

/// Whose a document is: labels of every object that a step makes.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    pub deployment: &'a str,
    pub step: &'a str,
}

impl Owner<'_> {
    /// Selects everything that the step of this deployment made.
    pub fn selector(&self) -> String {
        format!("{LABEL_MANAGED_BY}={MANAGER},{LABEL_DEPLOYMENT}={},{LABEL_STEP}={}", self.deployment, self.step)
    }

    fn labels(&self) -> [(&'static str, &str); 3] {
        [(LABEL_MANAGED_BY, MANAGER), (LABEL_DEPLOYMENT, self.deployment), (LABEL_STEP, self.step)]
    }
}

impl Document {
    /// Marks a manifest as ours; the annotation is the digest of the manifest itself. A manifest without kind or name is told as such.
    pub fn new(manifest: serde_json::Value, owner: Owner<'_>) -> Result<Self, String> {
        let digest: String = Sha256::digest(manifest.to_string()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let mut object: DynamicObject = serde_json::from_value(manifest).map_err(|error| format!("no Kubernetes object: {error}"))?;
        let types = object.types.as_ref().ok_or("apiVersion and kind are missing")?;
        if object.metadata.name.is_none() {
            return Err(format!("a {} without a name", types.kind));
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).map_err(|error| error.to_string())?);
        object.labels_mut().extend(owner.labels().map(|(key, value)| (key.to_owned(), value.to_owned())));
        object.annotations_mut().insert(ANNOTATION_INPUTS.to_owned(), digest);
        Ok(Self { resource, object })
    }

    /// Is it the whole cluster's? One that is there serves, whoever made it.
    pub fn is_clusters(&self) -> bool {
        self.resource.kind == "RuntimeClass"
    }

    /// Are there pods behind it that stay?
    pub fn has_pods(&self) -> bool {
        WORKLOADS.contains(&self.resource.kind.as_str())
    }

    /// Is it of this kind, in whatever version?
    pub fn is_a(&self, kind: &KindOf) -> bool {
        self.resource.kind == kind.kind && self.resource.group == kind.group
    }

    /// The same object, in whatever version of its kind.
    fn is(&self, found: &Found) -> bool {
        self.resource.kind == found.kind && self.object.namespace() == found.namespace && self.object.name_any() == found.name
    }

    /// Is it the same object, in whatever version of its kind?
    pub fn same_object(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.resource.group.clone(), one.resource.kind.clone(), one.object.namespace(), one.object.name_any());
        key(self) == key(other)
    }

    /// What was said of [`Document::elsewhere`], with the name that people know.
    pub(super) fn named(&self, other: &Self, mut error: ServiceError) -> ServiceError {
        let (told, name) = (other.object.name_any(), self.object.name_any());
        (error.operation, error.message) = (error.operation.replace(&told, &name), error.message.replace(&told, &name));
        error
    }

    /// An answer about it; that its version is not served is told with what is.
    pub(super) async fn served<T>(&self, client: &Client, answer: Result<T, ServiceError>) -> Result<T, ServiceError> {
        match answer {
            // Of a path that it does not serve, the API server says this, and in plain text.
            Err(error) if error.status == Some(404) && error.message.trim() == "404 page not found" => {
                let ApiResource { group, version, kind, plural, .. } = &self.resource;
                let served = offers::versions(client, group, plural).await?;
                let why = if served.is_empty() {
                    format!("the cluster serves no {kind} of {group}")
                } else {
                    format!("the cluster serves {kind} of {group} as {} only, and this is {version}", served.join(", "))
                };
                Err(ServiceError { code: "VersionNotServed".into(), message: why, ..error })
            }
            answer => answer,
        }
    }

    /// The same under a name that nothing of ours has, to be tried as something new. It is as long, since names have limits.
    pub(super) fn elsewhere(&self) -> Self {
        let mut other = self.clone();
        let mut name = self.object.name_any();
        let last = if name.pop() == Some('x') { 'y' } else { 'x' };
        name.push(last);
        other.object.metadata.name = Some(name);
        other
    }

    /// `Deployment nemo/vllm-worker`
    pub fn title(&self) -> String {
        match self.object.namespace() {
            Some(namespace) => format!("{} {namespace}/{}", self.resource.kind, self.object.name_any()),
            None => format!("{} {}", self.resource.kind, self.object.name_any()),
        }
    }

    /// `deployments/vllm-worker`
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.resource.plural, self.object.name_any())
    }

    /// The manifest as it is sent.
    pub fn object(&self) -> &DynamicObject {
        &self.object
    }

    pub(super) fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self.object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// What others are made in comes first, then what they refer to.
    fn wave(&self) -> u8 {
        match self.resource.kind.as_str() {
            "Namespace" | "CustomResourceDefinition" | "PersistentVolume" => 0,
            "Deployment" | "DaemonSet" | "Job" | "LeaderWorkerSet" | "DynamoGraphDeployment" => 2,
            _ => 1,
        }
    }
}

/// How a document stands at the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum Live {
    Absent,
    /// It is ours and as the document says.
    Same,
    /// It is ours and was made from another document.
    Differs,
    /// It is ours, and somebody else has changed this of it: `.spec.replicas by kubectl`.
    Changed(String),
    /// It is being deleted.
    Going,
    /// It does not carry our labels.
    Foreign,
}

fn live(document: &Document, there: Option<&PartialObjectMeta<DynamicObject>>) -> Live {
    let Some(there) = there else { return Live::Absent };
    let ours = |key: &str| there.labels().get(key) == document.object.labels().get(key);
    if !ours(LABEL_MANAGED_BY) || !ours(LABEL_DEPLOYMENT) {
        if document.is_clusters() { Live::Same } else { Live::Foreign }
    } else if there.metadata.deletion_timestamp.is_some() {
        Live::Going
    } else if there.annotations().get(ANNOTATION_INPUTS) != document.object.annotations().get(ANNOTATION_INPUTS) {
        Live::Differs
    } else {
        let owners = there.metadata.managed_fields.as_deref().unwrap_or_default();
        lost(&document.object.data, owners).map_or(Live::Same, Live::Changed)
    }
}

/// How every document stands, in their order. Reads only, all at once.
pub async fn look(client: &Client, documents: &[Document]) -> Result<Vec<Live>, ServiceError> {
    try_join_all(documents.iter().map(|document| standing(client, document))).await
}

async fn standing(client: &Client, document: &Document) -> Result<Live, ServiceError> {
    let there = document.api(client).get_metadata_opt(&document.object.name_any()).await.answer(&format!("GET {}", document.path()));
    let there = document.served(client, there).await?;
    Ok(live(document, there.as_ref()))
}

/// What has to come off before the object that is there goes; nothing where none is.
pub async fn finalizers(client: &Client, document: &Document) -> Result<Vec<String>, ServiceError> {
    let there = document.api(client).get_metadata_opt(&document.object.name_any()).await.answer(&format!("GET {}", document.path()))?;
    Ok(there.map(|there| there.finalizers().to_vec()).unwrap_or_default())
}

/// Brings every document that differs to the API server, in waves; gives the titles of those that were written.
pub async fn apply(client: &Client, documents: &[Document]) -> Result<Vec<String>, ServiceError> {
    let standing = look(client, documents).await?;
    none_foreign(documents, &standing)?;
    let mut waves: BTreeMap<u8, Vec<&Document>> = BTreeMap::new();
    for (document, _) in documents.iter().zip(&standing).filter(|(_, live)| **live != Live::Same) {
        waves.entry(document.wave()).or_default().push(document);
    }
    let mut written = Vec::new();
    for wave in waves.into_values() {
        written.extend(try_join_all(wave.into_iter().map(|document| patch(client, document, false))).await?);
    }
    Ok(written)
}

/// Refuses when one of the documents is there and is somebody else's.
fn none_foreign(documents: &[Document], standing: &[Live]) -> Result<(), ServiceError> {
    let foreign = documents.iter().zip(standing).find(|(_, live)| **live == Live::Foreign);
    foreign.map_or(Ok(()), |(document, _)| Err(not_ours(document)))
}

/// Would [`apply`] bring those of these documents that differ to the API server? Nothing is stored. A RoleBinding is not tried before its Role is there:
/// for who may bind only what they hold, the API server looks it up.
pub async fn check(client: &Client, documents: &[Document]) -> Result<(), ServiceError> {
    let standing = look(client, documents).await?;
    none_foreign(documents, &standing)?;
    let tried = documents.iter().zip(&standing).filter(|(document, live)| **live != Live::Same && document.resource.kind != "RoleBinding");
    try_join_all(tried.map(|(document, _)| patch(client, document, true))).await.map(drop)
}

/// Asks the API server whether it would take the documents, with strict field validation; nothing is stored.
pub async fn dry_run(client: &Client, documents: &[Document]) -> Result<(), ServiceError> {
    for document in documents {
        patch(client, document, true).await?;
    }
    Ok(())
}

pub(super) async fn patch(client: &Client, document: &Document, dry_run: bool) -> Result<String, ServiceError> {
    patched(client, document, dry_run, false).await?;
    Ok(document.title())
}

/// The object as the API server makes it of the document. `force` only together with `dry_run`: what others own is never overwritten.
pub(super) async fn patched(client: &Client, document: &Document, dry_run: bool, force: bool) -> Result<DynamicObject, ServiceError> {
    let params = PatchParams { dry_run, force: force && dry_run, field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply(MANAGER) };
    let patched = document.api(client).patch(&document.object.name_any(), &params, &Patch::Apply(&document.object)).await;
    document.served(client, patched.answer(&format!("PATCH {}", document.path()))).await
}

fn not_ours(document: &Document) -> ServiceError {
    ServiceError {
        service: "kubernetes".into(),
        operation: format!("PATCH {}", document.path()),
        code: "NotOurs".into(),
        message: format!(
            "{} is there and does not carry the label {LABEL_DEPLOYMENT}={}",
            document.title(),
            document.object.labels().get(LABEL_DEPLOYMENT).map_or("", String::as_str)
        ),
        request_id: None,
        status: None,
    }
}

/// A kind of object that steps make, for listing and removal when nothing is known but the labels.
#[derive(Debug, Clone, Copy)]
pub struct KindOf {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

impl KindOf {
    /// A kind of the group (`""`: core) in this version.
    pub const fn new(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        Self { group, version, kind }
    }

    fn api(&self, client: &Client) -> (Api<DynamicObject>, ApiResource) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(self.group, self.version, self.kind));
        (Api::all_with(client.clone(), &resource), resource)
    }
}

/// Something that carries our labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub kind: &'static str,
    pub namespace: Option<String>,
    pub name: String,
    pub uid: Option<String>,
    pub going: bool,
    /// A controller made it from something else, and takes it away with that.
    pub made: bool,
    /// It keeps an earlier set of manifests.
    pub kept: bool,
    /// What has to come off before it goes.
    pub finalizers: Vec<String>,
}

impl Found {
    /// `nemo/vllm-worker`
    pub fn id(&self) -> String {
        self.namespace.as_ref().map_or_else(|| self.name.clone(), |namespace| format!("{namespace}/{}", self.name))
    }

    /// Are there pods behind it that stay?
    pub fn has_pods(&self) -> bool {
        WORKLOADS.contains(&self.kind)
    }

    pub(super) fn api(&self, client: &Client, kinds: &[KindOf]) -> Option<(Api<DynamicObject>, ApiResource)> {
        let kind = kinds.iter().find(|kind| kind.kind == self.kind)?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group, kind.version, kind.kind));
        let api = match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        Some((api, resource))
    }

    /// `Deployment nemo/vllm-worker`
    pub fn title(&self) -> String {
        format!("{} {}", self.kind, self.id())
    }
}

/// Everything of these kinds that the step of this deployment made. A kind that the API server does not know has no objects.
pub async fn list(client: &Client, kinds: &[KindOf], owner: Owner<'_>) -> Result<Vec<Found>, ServiceError> {
    let selector = owner.selector();
    let lists = try_join_all(kinds.iter().map(|kind| list_kind(client, *kind, &selector))).await?;
    Ok(lists.concat())
}

async fn list_kind(client: &Client, kind: KindOf, selector: &str) -> Result<Vec<Found>, ServiceError> {
    let (api, resource) = kind.api(client);
    let listed = api.list_metadata(&ListParams::default().labels(selector)).await.or_none(&format!("LIST {}", resource.plural))?;
    let found = |item: PartialObjectMeta<DynamicObject>| Found {
        kind: kind.kind,
        namespace: item.namespace(),
        name: item.name_any(),
        uid: item.uid(),
        going: item.metadata.deletion_timestamp.is_some(),
        made: item.owner_references().iter().any(|owner| owner.controller == Some(true)),
        kept: [LABEL_REVISION, LABEL_KEPT].iter().any(|label| item.labels().contains_key(*label)),
        finalizers: item.finalizers().to_vec(),
    };
    Ok(listed.map(|list| list.items.into_iter().map(found).collect()).unwrap_or_default())
}

/// What was found and is none of the documents: made from earlier settings, and wanted no more.
pub fn stale(found: Vec<Found>, documents: &[Document]) -> Vec<Found> {
    found.into_iter().filter(|found| !found.made && !found.kept && !documents.iter().any(|document| document.is(found))).collect()
}

/// Begins to delete these objects, each only if it is still the one that was found; the order is theirs. Pods of a workload go first.
pub async fn delete(client: &Client, found: &[Found], kinds: &[KindOf]) -> Result<(), ServiceError> {
    for item in found.iter().filter(|item| !item.going) {
        let Some((api, resource)) = item.api(client, kinds) else { continue };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions { uid: item.uid.clone(), resource_version: None }),
            ..DeleteParams::default()
        };
        api.delete(&item.name, &params).await.or_none(&format!("DELETE {}/{}", resource.plural, item.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower_test::mock;

    use super::*;

    const OWNER: Owner<'_> = Owner { deployment: "nemo", step: "serve" };

    fn document(kind: &str, api_version: &str) -> Document {
        Document::new(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "n"}}), OWNER).unwrap()
    }

    /// A client over a function from request (method, path with query) to status and JSON; notes what was asked.
    fn server(answer: impl Fn(&str, &str) -> (u16, Value) + Send + 'static) -> (Client, tokio::task::JoinHandle<Vec<String>>) {
        let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            while let Some((request, send)) = handle.next_request().await {
                let (method, path) = (request.method().to_string(), request.uri().to_string());
                let (status, body) = answer(&method, &path);
                asked.push(format!("{method} {path}"));
                send.send_response(Response::builder().status(status).body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap());
            }
            asked
        });
        (Client::new(service, "default"), asked)
    }

    fn meta(document: &Document, annotation: &str) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "a", "labels": document.object.labels(), "annotations": {ANNOTATION_INPUTS: annotation}}})
    }

    fn not_found() -> (u16, Value) {
        (404, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}))
    }

    #[tokio::test]
    async fn writes_what_is_absent_in_waves_and_nothing_twice() {
        let documents = vec![document("Deployment", "apps/v1"), document("Service", "v1"), document("Namespace", "v1")];
        let same = documents[1].clone();
        let digest = same.object.annotations()[ANNOTATION_INPUTS].clone();
        let (client, asked) = server(move |method, path| match (method, path.contains("/services/")) {
            ("GET", true) => (200, meta(&same, &digest)),
            ("GET", false) => not_found(),
            _ => (200, json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}})),
        });
        let written = apply(&client, &documents).await.unwrap();
        drop(client);
        assert_eq!(written, ["Namespace n/a", "Deployment n/a"]);
        let writes: Vec<_> = asked.await.unwrap().into_iter().filter(|call| !call.starts_with("GET")).collect();
        assert_eq!(writes.len(), 2);
        assert!(
            writes[0].starts_with("PATCH") && writes[0].contains("fieldManager=nemo") && writes[0].contains("fieldValidation=Strict") && !writes[0].contains("force"),
            "{writes:?}"
        );
    }

    #[tokio::test]
    async fn leaves_alone_what_is_not_ours() {
        let documents = vec![document("Service", "v1")];
        let (client, asked) = server(|_, _| (200, json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a"}})));
        let error = apply(&client, &documents).await.unwrap_err();
        drop(client);
        assert_eq!((error.code.as_str(), error.kind()), ("NotOurs", crate::error::Kind::Conflict));
        assert_eq!(asked.await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_conflict_names_the_other_manager() {
        let documents = vec![document("Service", "v1")];
        let (client, _asked) = server(|method, _| match method {
            "GET" => not_found(),
            _ => (
                409,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409, "message": "Apply failed with 1 conflict",
                    "details": {"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"kubectl-edit\" using apps/v1", "field": ".spec.replicas"}]}}),
            ),
        });
        let error = apply(&client, &documents).await.unwrap_err();
        assert_eq!(error.operation, "PATCH services/a");
        assert!(error.message.contains(".spec.replicas") && error.message.contains("kubectl-edit"), "{error}");
        assert_eq!(error.kind(), crate::error::Kind::Conflict);
    }

    #[test]
    fn what_no_document_is_any_more_is_stale_but_not_what_a_controller_made() {
        let documents = [document("Service", "v1"), document("DynamoGraphDeployment", "nvidia.com/v1alpha1")];
        let found = |kind: &'static str, name: &str, made: bool| Found {
            kind,
            namespace: Some("n".into()),
            name: name.into(),
            uid: None,
            going: false,
            made,
            kept: false,
            finalizers: Vec::new(),
        };
        let all = vec![
            found("Service", "a", false),
            found("Service", "b", false),
            found("Service", "c", true),
            found("Deployment", "a", false),
            found("DynamoGraphDeployment", "a", false),
            Found { namespace: Some("m".into()), ..found("Service", "a", false) },
            Found { kept: true, ..found("Secret", "serve-1", false) },
        ];
        let titles: Vec<_> = stale(all, &documents).iter().map(Found::title).collect();
        assert_eq!(titles, ["Service n/b", "Deployment n/a", "Service m/a"]);
    }

    #[test]
    fn what_is_the_whole_clusters_may_be_anybodys() {
        let theirs = || serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        let document = |kind: &str, group: &str| Document::new(json!({"apiVersion": group, "kind": kind, "metadata": {"name": "a"}}), OWNER).unwrap();
        assert_eq!(live(&document("RuntimeClass", "node.k8s.io/v1"), Some(&theirs())), Live::Same);
        assert_eq!(live(&document("Namespace", "v1"), Some(&theirs())), Live::Foreign);
        assert_eq!(live(&document("RuntimeClass", "node.k8s.io/v1"), None), Live::Absent);
    }

    #[test]
    fn a_changed_document_differs_and_a_deleted_one_is_going() {
        let document = document("Service", "v1");
        let there = |value: Value| serde_json::from_value::<PartialObjectMeta<DynamicObject>>(value).unwrap();
        assert_eq!(live(&document, Some(&there(meta(&document, "other")))), Live::Differs);
        let mut going = meta(&document, "other");
        going["metadata"]["deletionTimestamp"] = json!("2026-11-30T12:00:00Z");
        assert_eq!(live(&document, Some(&there(going))), Live::Going);
        assert_eq!(live(&document, None), Live::Absent);
    }
}
