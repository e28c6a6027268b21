//! Sets of serving manifests that have served: each is kept as a Secret in their namespace, so that any machine can go back to one.
//!
//! A Secret and no local note, since whoever goes back is often not who applied; and no ConfigMap, since manifests may hold what only those
//! who may read Secrets should see. It carries the mark of the step, and goes with it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::config::{Form, Spec};
use crate::engine::clock;
use crate::engine::step::{Digest, StepId};
use crate::error::ServiceError;
use crate::k8s::apply::{self, Found, KindOf};
use crate::k8s::{Answer, Document, LABEL_REVISION, Owner};
use crate::render::{Manifest, Rendered};

/// So many are kept, as of a Deployment's own revisions.
const KEPT: usize = 10;
const SECRET: KindOf = KindOf::new("", "v1", "Secret");
const ENTRY: &str = "revision.json";
/// When it served first.
const SERVED: &str = "nemo.dev/served";
/// Numbers that it had before: one that is gone back to becomes the newest.
const WAS: &str = "nemo.dev/was";
/// Digest of the set that was rolled back from.
const INSTEAD_OF: &str = "nemo.dev/instead-of";

/// A set of manifests that has served.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    pub number: u32,
    /// Numbers that it had before, the oldest first.
    pub was: Vec<u32>,
    pub digest: String,
    /// When it served first.
    pub served: String,
    /// The settings that shaped it.
    pub settings: BTreeMap<String, String>,
    pub manifests: Vec<Manifest>,
    /// As it is kept, byte for byte: a Secret that is immutable takes nothing else.
    content: String,
}

/// The newest revision, by its metadata alone.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Newest {
    pub(super) number: u32,
    pub(super) digest: String,
    /// Somebody rolled back to it from the set of this digest.
    pub(super) instead_of: Option<String>,
}

impl Revision {
    /// Is this its number, or one that it had before? A number is never another's.
    pub fn is(&self, number: u32) -> bool {
        self.number == number || self.was.contains(&number)
    }

    /// Its numbers so far, as those before of one that becomes this.
    fn numbers_before(&self, number: u32) -> Vec<u32> {
        self.was.iter().copied().chain((self.number != number).then_some(self.number)).collect()
    }

    #[cfg(test)]
    pub(super) fn of(settings: BTreeMap<String, String>, manifests: Vec<Manifest>) -> Self {
        Self { number: 1, was: Vec::new(), digest: String::new(), served: String::new(), settings, manifests, content: String::new() }
    }

    /// As if it had just been rendered. It has no text: it is not linted again, since it has served.
    pub(super) fn rendered(&self) -> Vec<Rendered> {
        vec![Rendered { file: "revision", text: String::new(), manifests: self.manifests.clone(), overlays: vec![format!("revision {}", self.number)] }]
    }
}

#[derive(Serialize, Deserialize)]
struct Content {
    settings: BTreeMap<String, String>,
    manifests: Vec<Manifest>,
}

/// What tells one set from another.
pub(super) fn digest(rendered: &[Rendered]) -> String {
    Digest::of(&rendered.iter().flat_map(|file| &file.manifests).collect::<Vec<_>>()).0
}

fn owner(spec: &Spec) -> Owner<'_> {
    Owner { deployment: &spec.name, step: StepId::Serve.as_str() }
}

fn of(spec: &Spec) -> ListParams {
    ListParams::default().labels(&format!("{},{LABEL_REVISION}", owner(spec).selector()))
}

fn name(digest: &str) -> String {
    format!("serve-{digest}")
}

fn number(secret: &impl ResourceExt) -> u32 {
    secret.labels().get(LABEL_REVISION).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Every revision that is kept, the newest first. One that this version cannot read is left out.
pub async fn list(client: &Client, spec: &Spec) -> Result<Vec<Revision>, ServiceError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &spec.serve.namespace);
    let mut revisions: Vec<_> = api.list(&of(spec)).await.answer("LIST secrets")?.items.iter().filter_map(read).collect();
    revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
    Ok(revisions)
}

fn read(secret: &Secret) -> Option<Revision> {
    let bytes = &secret.data.as_ref()?.get(ENTRY)?.0;
    let Content { settings, manifests } = serde_json::from_slice(bytes).ok()?;
    let served = secret.annotations().get(SERVED).cloned().unwrap_or_default();
    let digest = secret.name_any().strip_prefix("serve-")?.to_owned();
    let was = secret.annotations().get(WAS).map_or_else(Vec::new, |was| was.split(',').filter_map(|number| number.parse().ok()).collect());
    Some(Revision { number: number(secret), was, digest, served, settings, manifests, content: STANDARD.encode(bytes) })
}

/// The newest one, without reading what is in it.
pub(super) async fn newest(client: &Client, spec: &Spec) -> Result<Option<Newest>, ServiceError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &spec.serve.namespace);
    let found = api.list_metadata(&of(spec)).await.answer("LIST secrets")?.items;
    let newest = found.iter().max_by_key(|secret| number(*secret));
    Ok(newest.and_then(|secret| {
        let digest = secret.name_any().strip_prefix("serve-")?.to_owned();
        Some(Newest { number: number(secret), digest, instead_of: secret.annotations().get(INSTEAD_OF).cloned() })
    }))
}

/// Keeps what serves now as the newest revision; one that is the newest already stays as it is. The oldest ones go.
pub(super) async fn keep(client: &Client, spec: &Spec, form: Form, rendered: &[Rendered]) -> Result<(), ServiceError> {
    let (digest, newest) = (digest(rendered), newest(client, spec).await?);
    if newest.as_ref().is_some_and(|newest| newest.digest == digest) {
        return Ok(());
    }
    let manifests = rendered.iter().flat_map(|file| file.manifests.clone()).collect();
    // What `auto` came to: another day the cluster may have something else.
    let mut settings = spec.settings.clone();
    settings.insert("serve.form".into(), form.name().into());
    let content = serde_json::to_vec(&Content { settings, manifests }).unwrap_or_default();
    // The same set may be kept under an older number: its content stays, whatever settings say the same now.
    let known = list(client, spec).await?.into_iter().find(|revision| revision.digest == digest);
    let number = newest.map_or(1, |newest| newest.number + 1);
    let kept = match known {
        Some(known) => Revision { number, was: known.numbers_before(number), ..known },
        None => Revision { number, was: Vec::new(), digest, served: clock::now().to_string(), settings: BTreeMap::new(), manifests: Vec::new(), content: STANDARD.encode(content) },
    };
    write(client, spec, &kept, None).await?;
    trim(client, spec).await
}

/// Makes a revision the newest one, before it is applied: whoever is stopped halfway goes on to the same.
pub async fn raise(client: &Client, spec: &Spec, revision: &Revision, instead_of: Option<&str>) -> Result<(), ServiceError> {
    let number = newest(client, spec).await?.map_or(1, |newest| if newest.digest == revision.digest { newest.number } else { newest.number + 1 });
    write(client, spec, &Revision { number, was: revision.numbers_before(number), ..revision.clone() }, instead_of).await
}

async fn write(client: &Client, spec: &Spec, revision: &Revision, instead_of: Option<&str>) -> Result<(), ServiceError> {
    let Revision { number, was, digest, served, content, .. } = revision;
    let mut annotations = json!({ SERVED: served });
    if !was.is_empty() {
        annotations[WAS] = json!(was.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    }
    if let Some(digest) = instead_of {
        annotations[INSTEAD_OF] = json!(digest);
    }
    let manifest = json!({"apiVersion": "v1", "kind": "Secret", "type": "nemo.dev/revision", "immutable": true,
        "metadata": {"name": name(digest), "namespace": spec.serve.namespace, "labels": {LABEL_REVISION: number.to_string()}, "annotations": annotations},
        "data": {ENTRY: content}});
    match Document::new(manifest, owner(spec)) {
        Ok(document) => apply::apply(client, &[document]).await.map(drop),
        // It has a kind and a name.
        Err(_) => Ok(()),
    }
}

async fn trim(client: &Client, spec: &Spec) -> Result<(), ServiceError> {
    let old: Vec<_> = list(client, spec).await?.into_iter().skip(KEPT).collect();
    let found = |revision: Revision| Found {
        kind: SECRET.kind,
        namespace: Some(spec.serve.namespace.clone()),
        name: name(&revision.digest),
        uid: None,
        going: false,
        made: false,
        kept: true,
        finalizers: Vec::new(),
    };
    apply::delete(client, &old.into_iter().map(found).collect::<Vec<_>>(), &[SECRET]).await
}

/// The revision to go back to: the newest one that is not what is there. `there`: whether the newest is.
pub fn previous(revisions: &[Revision], there: bool) -> Option<&Revision> {
    revisions.get(usize::from(there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_known_by_every_number_that_it_had() {
        let raised = |revision: Revision, number: u32| Revision { number, was: revision.numbers_before(number), ..revision };
        let revision = raised(raised(raised(Revision { number: 14, ..Revision::of(BTreeMap::new(), Vec::new()) }, 17), 17), 20);
        assert_eq!((revision.number, revision.was.as_slice()), (20, &[14, 17][..]));
        assert!(revision.is(14) && revision.is(17) && revision.is(20) && !revision.is(16));
        let annotations: BTreeMap<String, String> = [(WAS.to_owned(), "14,17".to_owned())].into();
        let data = [(ENTRY.to_owned(), k8s_openapi::ByteString(br#"{"settings": {}, "manifests": []}"#.to_vec()))].into();
        let mut secret = Secret { data: Some(data), ..Secret::default() };
        secret.metadata.name = Some("serve-d".into());
        secret.metadata.annotations = Some(annotations);
        assert_eq!(read(&secret).unwrap().was, [14, 17]);
    }
}
