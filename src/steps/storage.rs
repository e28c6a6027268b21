//! The step `storage`: the namespace, and the file system as a claim in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use super::Deps;
use super::facts::{FilesystemFacts, StorageFacts};
use super::objects::{Objects, or_unreachable, seen, steady};
use super::platform;
use crate::engine::step::{Cx, Digest, Need, OnChange, Seen, Step, StepId, all_of, part_of, table_of};
use crate::engine::wait::Look;
use crate::error::{Advice, Kind, Resource, ServiceError, fail};
use crate::k8s::apply::{KindOf, Live};
use crate::k8s::{self, Answer, Document};
use crate::render::{self, Rendered};

/// The namespace last, and only when nothing of others is in it.
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

    /// The volume that stands: its phase, and the namespace of the claim that it is for.
    async fn volume(&self, client: &kube::Client) -> Result<Option<Volume>, ServiceError> {
        let name = self.facts().volume;
        let api: Api<PersistentVolume> = Api::all(client.clone());
        let found = api.get_opt(&name).await.answer(&format!("GET persistentvolumes/{name}"))?;
        Ok(found.map(|volume| Volume {
            ours: volume.labels().get(k8s::LABEL_DEPLOYMENT) == Some(&self.deps.spec.name),
            // Its claim is gone: it takes no other, not even one of the same name.
            released: volume.status.and_then(|status| status.phase).as_deref() == Some("Released"),
            namespace: volume.spec.and_then(|spec| spec.claim_ref?.namespace).unwrap_or_default(),
        }))
    }

    /// Claims of ours that pods hold: such a claim does not go before they do.
    async fn held(&self, client: &kube::Client) -> Result<Vec<String>, ServiceError> {
        let mut held = Vec::new();
        for claim in k8s::apply::list(client, &KINDS[..1], self.objects().owner()).await? {
            let pods = holders(client, claim.namespace.as_deref().unwrap_or_default(), &claim.name).await?;
            if !pods.is_empty() {
                held.push(format!("claim {} is mounted by {}", claim.id(), pods.join(", ")));
            }
        }
        Ok(held)
    }

    async fn look(&self, cx: &Cx, filesystem: &FilesystemFacts) -> anyhow::Result<Seen> {
        let client = self.deps.kube(cx)?;
        let documents = self.documents(filesystem)?;
        let (standing, phase, volume) = futures::try_join!(k8s::apply::look(&client, &documents), self.phase(&client), self.volume(&client))?;
        if let Some(volume) = volume.filter(|volume| volume.ours && !volume.released && volume.namespace != self.facts().namespace) {
            // Weights and pods are in the namespace of before: what stands is told, and the change is refused.
            let facts = StorageFacts { namespace: volume.namespace, ..self.facts() };
            return Ok(Seen::Ready { inputs: Some(Digest::of(&facts)), facts: table_of(&facts)? });
        }
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

struct Volume {
    ours: bool,
    released: bool,
    namespace: String,
}

/// Pods that mount a claim, but those that have ended or are on their way out.
async fn holders(client: &kube::Client, namespace: &str, claim: &str) -> Result<Vec<String>, ServiceError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = api.list(&ListParams::default()).await.answer("LIST pods")?.items.into_iter();
    let holds = |pod: &Pod| {
        let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mounts = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()).any(|source| source.claim_name == claim);
        mounts && !ended && pod.metadata.deletion_timestamp.is_none()
    };
    Ok(pods.filter(holds).map(|pod| format!("Pod {}", pod.name_any())).collect())
}

/// Waiting would not help: nobody takes these pods away.
fn conflict(held: &[String]) -> Advice {
    fail(Kind::Conflict, format!("the volume cannot be taken away: {}", held.join("; ")))
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

    /// Volume and claim hold on to their namespace for as long as pods mount them.
    fn on_change(&self) -> OnChange {
        OnChange::Refuse
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
            let held = self.held(&client).await?;
            if !held.is_empty() {
                return Err(conflict(&held).hint("nemo cleanup --from weights, then nemo up: the files of another file system are fetched anew").into());
            }
            // Where a volume points to cannot be changed; the data stay where they are, the objects are made anew.
            cx.note("the volume points to another file system: claim and volume are made anew");
            Objects { kinds: &KINDS[..2], ..self.objects() }.remove(cx, wait).await?;
        } else if self.volume(&client).await?.is_some_and(|volume| volume.ours && volume.released) {
            cx.note("the volume's claim was deleted by somebody: the volume is made anew for the next one; the data stay");
            Objects { kinds: &KINDS[1..2], ..self.objects() }.remove(cx, wait).await?;
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
        let Some(client) = self.objects().client(cx)? else { return Ok(()) };
        let wait = self.deps.spec.wait.rollout;
        let held = self.held(&client).await?;
        if !held.is_empty() {
            return Err(conflict(&held).hint("delete these pods, or what makes them, then run nemo cleanup again").into());
        }
        Objects { kinds: &KINDS[..2], ..self.objects() }.remove(cx, wait).await?;
        self.objects().remove_namespaces(cx, wait, &BTreeMap::new()).await
    }

    async fn existing(&self, cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        self.objects().existing(cx).await
    }
}
