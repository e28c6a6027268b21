//! What the steps share that are made of Kubernetes objects: marks, standing, waiting, removal by label.

use std::collections::BTreeMap;

use super::Deps;
use crate::engine::step::{Cx, Seen, StepId};
use crate::engine::wait::{Look, Wait};
use crate::error::{Kind, Resource, ServiceError, fail};
use crate::k8s::apply::{Found, KindOf, Live};
use crate::k8s::change::Refused;
use crate::k8s::ready::Readiness;
use crate::k8s::{self, Document, Owner};
use crate::render::{self, Rendered};

const NAMESPACE: &[KindOf] = &[KindOf::new("", "v1", "Namespace")];

/// The objects of one step.
pub(super) struct Objects<'a> {
    pub deps: &'a Deps,
    pub step: StepId,
    /// All kinds that the step makes, in the order in which they are taken away.
    pub kinds: &'static [KindOf],
}

impl Objects<'_> {
    /// Marked as ours, in the order of the files.
    pub fn documents(&self, rendered: Vec<Rendered>) -> anyhow::Result<Vec<Document>> {
        marked(rendered, self.owner(), self.kinds)
    }

    pub fn owner(&self) -> Owner<'_> {
        Owner { deployment: &self.deps.spec.name, step: self.step.as_str() }
    }

    /// Waits until what is being deleted is gone, then brings what differs to the API server.
    pub async fn apply(&self, cx: &Cx, client: &kube::Client, documents: &[Document], wait: Wait) -> anyhow::Result<()> {
        cx.until("objects that are being deleted", wait, || async {
            let standing = k8s::apply::look(client, documents).await?;
            let Some((document, _)) = documents.iter().zip(standing).find(|(_, live)| *live == Live::Going) else { return Ok(Look::Ready(())) };
            let held = k8s::holds::held(client, &k8s::apply::finalizers(client, document).await?).await?;
            Ok(Look::NotYet(if held.is_empty() { document.title() } else { format!("{}, {held}", document.title()) }))
        })
        .await?;
        for title in cx.until("webhooks to answer", wait, || webhooks(k8s::apply::apply(client, documents))).await? {
            cx.note(format!("{title} applied"));
        }
        Ok(())
    }

    /// What carries our labels and is none of the documents: made from other settings.
    pub async fn stale(&self, client: &kube::Client, documents: &[Document]) -> Result<Vec<Found>, ServiceError> {
        Ok(k8s::apply::stale(k8s::apply::list(client, self.kinds, self.owner()).await?, documents))
    }

    /// Asks the API server whether it takes the documents, and changes nothing; gives those that it takes only where nothing is.
    pub async fn admitted(&self, cx: &Cx, client: &kube::Client, documents: &[Document], wait: Wait) -> anyhow::Result<Vec<Refused>> {
        let refused = cx.until("webhooks to answer", wait, || webhooks(k8s::change::refused(client, documents))).await?;
        let rest = without(documents, &refused);
        cx.until("webhooks to answer", wait, || webhooks(k8s::apply::check(client, &rest))).await?;
        Ok(refused)
    }

    /// Deletes what carries our labels and is none of the documents, and what cannot be changed to its document; waits until it is gone: its pods hold
    /// nodes that others need.
    pub async fn prune(&self, cx: &Cx, client: &kube::Client, documents: &[Document], refused: &[Refused], wait: Wait) -> anyhow::Result<()> {
        let anew = |title: &str| refused.iter().find(|refused| refused.title == title);
        let documents = without(documents, refused);
        let stale = self.stale(client, &documents).await?;
        if stale.is_empty() {
            return Ok(());
        }
        for title in stale.iter().map(Found::title) {
            cx.note(match anew(&title) {
                Some(refused) => format!("{title} cannot be changed to what is wanted, so it is removed and made anew: {}", refused.why),
                None => format!("{title} is no longer wanted: removed"),
            });
        }
        cx.until("what is no longer wanted to go", wait, || async {
            steady(async {
                let (pods, rest): (Vec<_>, Vec<_>) = self.stale(client, &documents).await?.into_iter().partition(Found::has_pods);
                // Pods sign off by the rights and Services that they came with: those go after them.
                let next = if pods.is_empty() { rest } else { pods };
                k8s::apply::delete(client, &next, self.kinds).await?;
                still_there(client, &self.stale(client, &documents).await?).await
            })
            .await
        })
        .await
    }

    /// Deletes what carries our labels and waits until it is gone.
    pub async fn remove(&self, cx: &Cx, wait: Wait) -> anyhow::Result<()> {
        let Some(client) = self.client(cx)? else { return Ok(()) };
        cx.until("our objects to go", wait, || async {
            steady(async {
                let mut found = k8s::apply::list(&client, self.kinds, self.owner()).await?;
                if !found.is_empty() {
                    k8s::apply::delete(&client, &found, self.kinds).await?;
                    // What has no pods is gone at once: not waited for.
                    found = k8s::apply::list(&client, self.kinds, self.owner()).await?;
                }
                still_there(&client, &found).await
            })
            .await
        })
        .await
    }

    /// Deletes our namespaces and waits until they are gone. One that holds what others made stays, and is told with what that is.
    /// `releases`: those that we installed, by namespace.
    pub async fn remove_namespaces(&self, cx: &Cx, wait: Wait, releases: &BTreeMap<String, Vec<String>>) -> anyhow::Result<()> {
        let Some(client) = self.client(cx)? else { return Ok(()) };
        let look = || {
            steady(async {
                let (mut kept, mut going) = (Vec::new(), None);
                for found in k8s::apply::list(&client, NAMESPACE, self.owner()).await? {
                    let installed = releases.get(&found.name).map_or(&[][..], Vec::as_slice);
                    let others = if found.going { Vec::new() } else { k8s::others(&client, &found.name, &self.deps.spec.name, installed).await? };
                    if others.is_empty() {
                        k8s::apply::delete(&client, std::slice::from_ref(&found), NAMESPACE).await?;
                        let held = k8s::holds::going(&client, &found.name).await?.filter(|held| !held.is_empty());
                        going = Some(held.map_or_else(|| format!("Namespace {}", found.name), |held| format!("Namespace {}: {held}", found.name)));
                    } else {
                        kept.push(format!("namespace {} stays, since others made in it: {}", found.name, others.join(", ")));
                    }
                }
                Ok(going.map_or(Look::Ready(kept), Look::NotYet))
            })
        };
        let kept = cx.until("our namespaces to go", wait, look).await?;
        if kept.is_empty() {
            return Ok(());
        }
        Err(fail(Kind::Conflict, kept.join("; ")).hint("move what you want to keep to another namespace, delete the rest, then run nemo cleanup again").into())
    }

    /// What carries our labels now.
    pub async fn existing(&self, cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        let Some(client) = self.client(cx)? else { return Ok(Vec::new()) };
        let found = k8s::apply::list(&client, self.kinds, self.owner()).await?;
        Ok(found.iter().map(|found: &Found| Resource::new(found.kind, found.id())).collect())
    }

    /// The cluster's client; `None` where there is no cluster, and so nothing in it.
    pub fn client(&self, cx: &Cx) -> anyhow::Result<Option<kube::Client>> {
        if cx.facts.table(StepId::Cluster).is_none() { Ok(None) } else { self.deps.kube(cx).map(Some) }
    }
}

/// The documents but those that cannot be changed in place.
fn without(documents: &[Document], refused: &[Refused]) -> Vec<Document> {
    documents.iter().filter(|document| !refused.iter().any(|refused| refused.title == document.title())).cloned().collect()
}

/// One look at what is to go: the first that is still there, and what holds it.
async fn still_there(client: &kube::Client, left: &[Found]) -> anyhow::Result<Look<()>> {
    let Some(found) = left.first() else { return Ok(Look::Ready(())) };
    let held = if found.going { k8s::holds::held(client, &found.finalizers).await? } else { String::new() };
    Ok(Look::NotYet(if held.is_empty() { format!("{} is still there", found.title()) } else { format!("{} is still there, {held}", found.title()) }))
}

/// Manifests with our marks, in the order of the files; of other kinds than these none may come of what a user lays over ours.
pub(super) fn marked(rendered: Vec<Rendered>, owner: Owner<'_>, kinds: &[KindOf]) -> anyhow::Result<Vec<Document>> {
    let mut documents: Vec<Document> = Vec::new();
    let mut origins: Vec<String> = Vec::new();
    for Rendered { file, manifests, overlays, .. } in rendered {
        // What a user has laid over it is the user's to correct.
        let wrong = |why: String| match overlays.as_slice() {
            [] => fail(Kind::Bug, format!("template {file}: {why}")),
            overlays => fail(Kind::Config, format!("{}: {file}: {why}", overlays.join(", "))).hint("nemo render shows what comes out"),
        };
        let origin = if overlays.is_empty() { file.to_owned() } else { overlays.join(", ") };
        for manifest in manifests {
            let mark = if overlays.is_empty() { None } else { render::marks(&manifest).into_iter().next() };
            let document = Document::new(manifest, owner).map_err(wrong)?;
            if let Some(at) = documents.iter().position(|other| other.same_object(&document)) {
                let why = format!("{} is there twice, from {} and from {origin}: the second would overwrite the first", document.title(), origins[at]);
                return Err(wrong(why).into());
            }
            if let Some((mark, _)) = mark {
                return Err(wrong(format!("{}: the {mark} is nemo's own mark, which it sets itself: take it out", document.title())).into());
            }
            if !overlays.is_empty() && !kinds.iter().any(|kind| document.is_a(kind)) {
                let kinds: Vec<_> = kinds.iter().map(|kind| kind.kind).collect();
                return Err(wrong(format!("{}: nemo would not take it away again; what it knows is {}", document.title(), kinds.join(", "))).into());
            }
            // Whatever a user adds is among these kinds, and but for the cluster's own each of them is in a namespace.
            if !overlays.is_empty() && !document.is_clusters() && document.object().metadata.namespace.is_none() {
                return Err(wrong(format!("{} has no namespace: write namespace: {{{{ namespace }}}} under its metadata", document.title())).into());
            }
            documents.push(document);
            origins.push(origin.clone());
        }
    }
    Ok(documents)
}

/// What the standing of the documents alone says; `None`: all are there as they should be.
pub(super) fn seen(documents: &[Document], standing: &[Live]) -> Option<Seen> {
    let first = |live: Live| documents.iter().zip(standing).find(|(_, have)| **have == live).map(|(document, _)| document.title());
    let missing = standing.iter().filter(|live| **live == Live::Absent).count();
    if let Some(what) = first(Live::Foreign) {
        Some(Seen::Foreign { what })
    } else if missing == standing.len() {
        Some(Seen::Absent)
    } else if let Some(what) = first(Live::Going) {
        Some(Seen::Pending { what: format!("{what} is being deleted") })
    } else if let Some(what) = first(Live::Differs) {
        Some(Seen::Broken { why: format!("{what} was made from other settings") })
    } else if let Some((document, field)) = documents.iter().zip(standing).find_map(|(document, live)| if let Live::Changed(field) = live { Some((document, field)) } else { None })
    {
        Some(Seen::Broken { why: format!("{}: changed: {field}", document.title()) })
    } else if missing > 0 {
        Some(Seen::Pending { what: format!("{missing} of {} objects are missing", standing.len()) })
    } else {
        None
    }
}

/// An API server that does not answer is, for who observes, a cluster that is not there.
pub(super) fn or_unreachable(seen: anyhow::Result<Seen>) -> anyhow::Result<Seen> {
    match seen {
        Err(error) if error.downcast_ref::<ServiceError>().is_some_and(|error| error.service == "kubernetes" && error.is(&["Unreachable"])) => Ok(Seen::Unreachable),
        other => other,
    }
}

/// An operator is Ready before its webhooks listen: until they do, every write of its objects is refused.
async fn webhooks<T>(asked: impl Future<Output = Result<T, ServiceError>>) -> anyhow::Result<Look<T>> {
    match asked.await {
        Err(error) if error.message.contains("failed calling webhook") => Ok(Look::NotYet(error.message)),
        answer => Ok(Look::Ready(answer?)),
    }
}

/// For who waits, a call that will probably work a little later is no failure but a reason to look again.
pub(super) async fn steady<T>(look: impl Future<Output = anyhow::Result<Look<T>>>) -> anyhow::Result<Look<T>> {
    match look.await {
        Err(error) if error.downcast_ref::<ServiceError>().is_some_and(k8s::passing) => Ok(Look::NotYet(error.to_string())),
        other => other,
    }
}

/// One look at a workload; what will not become ready by waiting is a failure.
pub(super) fn look(what: &str, readiness: Readiness) -> anyhow::Result<Look<()>> {
    match readiness {
        Readiness::Ready => Ok(Look::Ready(())),
        Readiness::Waiting(why) => Ok(Look::NotYet(why)),
        Readiness::Absent => Ok(Look::NotYet("it is not there yet".into())),
        Readiness::Failed(why) => Err(fail(Kind::Remote, format!("{what}: {why}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_is_there_twice_or_in_no_namespace_is_refused_with_its_file() {
        const CONFIG_MAP: &[KindOf] = &[KindOf::new("", "v1", "ConfigMap")];
        let file = |overlay: &str, metadata: serde_json::Value| {
            let manifests = vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})];
            Rendered { file: "extra.yaml", text: String::new(), manifests, overlays: vec![overlay.to_owned()] }
        };
        let said = |rendered: Vec<Rendered>| marked(rendered, Owner { deployment: "nemo", step: "serve" }, CONFIG_MAP).unwrap_err().to_string();
        let there = |name: &str| json!({"name": name, "namespace": "n"});
        let twice = said(vec![file("my/a.yaml", there("x")), file("my/b.yaml", there("x"))]);
        assert!(twice.contains("ConfigMap n/x is there twice, from my/a.yaml and from my/b.yaml"), "{twice}");
        let nowhere = said(vec![file("my/a.yaml", json!({"name": "x"}))]);
        assert!(nowhere.starts_with("my/a.yaml") && nowhere.contains("has no namespace: write namespace: {{ namespace }}"), "{nowhere}");
        let mark = said(vec![file("my/a.yaml", json!({"name": "x", "namespace": "n", "labels": {"nemo.dev/step": "weights", "team": "a"}}))]);
        assert!(mark.starts_with("my/a.yaml") && mark.contains("the label nemo.dev/step is nemo's own mark"), "{mark}");
        assert_eq!(marked(vec![file("a", there("x")), file("b", there("y"))], Owner { deployment: "nemo", step: "serve" }, CONFIG_MAP).unwrap().len(), 2);
    }

    #[test]
    fn what_is_seen_follows_the_worst_object() {
        let document = |name: &str| {
            Document::new(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "n"}}), Owner { deployment: "nemo", step: "serve" }).unwrap()
        };
        let documents = [document("a"), document("b")];
        for (standing, word) in [
            ([Live::Same, Live::Same], "None"),
            ([Live::Absent, Live::Absent], "Some(Absent)"),
            ([Live::Absent, Live::Same], "Some(Pending { what: \"1 of 2 objects are missing\" })"),
            ([Live::Same, Live::Differs], "Some(Broken { why: \"Service n/b was made from other settings\" })"),
            ([Live::Differs, Live::Going], "Some(Pending { what: \"Service n/b is being deleted\" })"),
            ([Live::Foreign, Live::Absent], "Some(Foreign { what: \"Service n/a\" })"),
        ] {
            assert_eq!(format!("{:?}", seen(&documents, &standing)), word);
        }
    }
}
