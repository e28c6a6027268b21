//! The step `storage`: the namespace, and the file system as a claim in it.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Api;

use super::Deps;
use super::facts::{FilesystemFacts, StorageFacts};
use super::objects::{Objects, or_unreachable, seen, steady};
use super::platform;
use crate::engine::step::{Cx, Digest, Need, Seen, Step, StepId, all_of, part_of, table_of};
use crate::engine::wait::Look;
use crate::error::{Resource, ServiceError};
use crate::k8s::apply::{KindOf, Live};
use crate::k8s::{self, Answer, Document};
use crate::render::{self, Rendered};

/// The namespace last: what others made in it is theirs to take away before.
const KINDS: &[KindOf] = &[KindOf::new("", "v1", "PersistentVolumeClaim"), KindOf::new("", "v1", "PersistentVolume"), KindOf::new("", "v1", "Namespace")];
const CLAIM: &str = "shared";

pub struct Storage {
    pub deps: Arc<Deps>,
}

impl Storage {
    fn objects(&self) -> Objects<'_> {
        Objects { deps: &self.deps, step: StepId::Storage, kinds: KINDS }
    }

    fn facts(&self) -> StorageFacts {
        StorageFacts { namespace: self.deps.spec.serve.namespace.clone(), claim: CLAIM.into(), volume: format!("{}-{CLAIM}", self.deps.spec.name) }
    }

    fn documents(&self, filesystem: &FilesystemFacts) -> anyhow::Result<Vec<Document>> {
        self.objects().documents(rendered(&self.facts(), filesystem)?)
    }

    /// Its phase: `Pending`, `Bound`, `Lost`.
    async fn phase(&self, client: &kube::Client) -> Result<Option<String>, ServiceError> {
        let facts = self.facts();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &facts.namespace);
        let found = api.get_opt(&facts.claim).await.answer(&format!("GET persistentvolumeclaims/{}", facts.claim))?;
        Ok(found.and_then(|claim| claim.status?.phase))
    }

    async fn look(&self, cx: &Cx, filesystem: &FilesystemFacts) -> anyhow::Result<Seen> {
        let client = self.deps.kube(cx)?;
        let documents = self.documents(filesystem)?;
        let (standing, phase) = futures::try_join!(k8s::apply::look(&client, &documents), self.phase(&client))?;
        if let Some(seen) = seen(&documents, &standing) {
            return Ok(seen);
        }
        Ok(match phase.as_deref() {
            Some("Bound") => Seen::Ready { inputs: Some(self.inputs()), facts: table_of(&self.facts())? },
            Some("Lost") => Seen::Broken { why: "the claim has lost its volume".into() },
            other => Seen::Pending { what: format!("the claim is {}", other.unwrap_or("being made")) },
        })
    }
}

/// The manifests of the step.
pub fn rendered(facts: &StorageFacts, filesystem: &FilesystemFacts) -> anyhow::Result<Vec<Rendered>> {
    render::storage(&render::Storage {
        namespace: facts.namespace.clone(),
        volume: facts.volume.clone(),
        claim: facts.claim.clone(),
        capacity_gib: filesystem.capacity_gib,
        file_system_id: filesystem.id.clone(),
        dns_name: filesystem.dns_name.clone(),
        mount_name: filesystem.mount_name.clone(),
    })
}

#[async_trait]
impl Step for Storage {
    fn id(&self) -> StepId {
        StepId::Storage
    }

    fn needs(&self) -> Vec<Need> {
        // Of the platform only the drivers: the weights may be on their way while charts are installed.
        vec![part_of(StepId::Platform, platform::DRIVERS), all_of(StepId::Filesystem)]
    }

    fn inputs(&self) -> Digest {
        Digest::of(&self.facts())
    }

    fn makes(&self) -> Vec<Resource> {
        let facts = self.facts();
        vec![
            Resource::new("Namespace", &facts.namespace),
            Resource::new("PersistentVolume", &facts.volume),
            Resource::new("PersistentVolumeClaim", format!("{}/{}", facts.namespace, facts.claim)),
        ]
    }

    async fn observe(&self, cx: &Cx) -> anyhow::Result<Seen> {
        let (Some(_), Ok(filesystem)) = (cx.facts.table(StepId::Cluster), cx.facts_of::<FilesystemFacts>(StepId::Filesystem)) else {
            return Ok(Seen::Unreachable);
        };
        or_unreachable(self.look(cx, &filesystem).await)
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let client = self.deps.kube(cx)?;
        let wait = self.deps.spec.wait.rollout;
        let documents = self.documents(&cx.facts_of(StepId::Filesystem)?)?;
        let standing = k8s::apply::look(&client, &documents).await?;
        let lost = self.phase(&client).await?.as_deref() == Some("Lost");
        if lost || documents.iter().zip(&standing).any(|(document, live)| *live == Live::Differs && document.object().types.as_ref().is_some_and(|types| types.kind != "Namespace"))
        {
            // Where a volume points to cannot be changed; the data stay where they are, the objects are made anew.
            cx.note("the volume points to another file system: claim and volume are made anew");
            Objects { kinds: &KINDS[..2], ..self.objects() }.remove(cx, wait).await?;
        }
        self.objects().apply(cx, &client, &documents, wait).await?;
        cx.until("the claim to be bound", wait, || async {
            steady(async {
                Ok(match self.phase(&client).await?.as_deref() {
                    Some("Bound") => Look::Ready(()),
                    other => Look::NotYet(other.unwrap_or("not there yet").to_owned()),
                })
            })
            .await
        })
        .await?;
        table_of(&self.facts())
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        self.objects().remove(cx, self.deps.spec.wait.rollout).await
    }

    async fn existing(&self, cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        self.objects().existing(cx).await
    }
}
