//! What in a namespace is neither ours nor the cluster's own: deleting the namespace would take it along.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};

use super::apply::KindOf;
use super::error::Answer;
use super::{LABEL_DEPLOYMENT, LABEL_MANAGED_BY, MANAGER};
use crate::error::ServiceError;

/// What people put into namespaces, and what controllers make of it. A kind that is not defined has no objects.
const KINDS: &[KindOf] = &[
    KindOf::new("nvidia.com", "v1alpha1", "DynamoGraphDeployment"),
    KindOf::new("nvidia.com", "v1alpha1", "DynamoComponentDeployment"),
    KindOf::new("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    KindOf::new("apps", "v1", "Deployment"),
    KindOf::new("apps", "v1", "StatefulSet"),
    KindOf::new("apps", "v1", "DaemonSet"),
    KindOf::new("apps", "v1", "ReplicaSet"),
    KindOf::new("batch", "v1", "CronJob"),
    KindOf::new("batch", "v1", "Job"),
    KindOf::new("", "v1", "Pod"),
    KindOf::new("", "v1", "Service"),
    KindOf::new("", "v1", "ConfigMap"),
    KindOf::new("", "v1", "Secret"),
    KindOf::new("", "v1", "PersistentVolumeClaim"),
];
/// Made by Kubernetes in every namespace, and by Dynamo's operator in its own and wherever it has worked; none carries a mark.
const MADE_BY_CONTROLLERS: &[(&str, &str)] = &[("ConfigMap", "kube-root-ca.crt"), ("Secret", "webhook-server-cert"), ("Secret", "mpi-run-ssh-secret")];
/// So many are named.
const NAMED: usize = 5;

struct Item {
    kind: &'static str,
    meta: ObjectMeta,
}

/// Titles of what others put into a namespace, where `releases` are those that we installed there: `Deployment web (by kubectl-create)`.
pub async fn others(client: &Client, namespace: &str, deployment: &str, releases: &[String]) -> Result<Vec<String>, ServiceError> {
    let lists = try_join_all(KINDS.iter().map(|kind| list(client, namespace, *kind))).await?;
    Ok(judge(&lists.into_iter().flatten().collect::<Vec<_>>(), deployment, releases))
}

async fn list(client: &Client, namespace: &str, kind: KindOf) -> Result<Vec<Item>, ServiceError> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group, kind.version, kind.kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let listed = api.list_metadata(&ListParams::default()).await.or_none(&format!("LIST {}", resource.plural))?;
    Ok(listed.map(|list| list.items).unwrap_or_default().into_iter().map(|item| Item { kind: kind.kind, meta: item.metadata }).collect())
}

impl Item {
    fn label(&self, key: &str) -> Option<&str> {
        self.meta.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn owners(&self) -> impl Iterator<Item = (&str, &str)> {
        self.meta.owner_references.iter().flatten().map(|owner| (owner.kind.as_str(), owner.uid.as_str()))
    }

    fn is_owned_by(&self, uids: &BTreeSet<&str>) -> bool {
        self.owners().any(|(_, uid)| uids.contains(uid))
    }

    /// By its own marks: ours, of a release of ours, or the cluster's.
    fn is_known(&self, deployment: &str, releases: &[String]) -> bool {
        let installed = |name: Option<&str>| name.is_some_and(|name| releases.iter().any(|release| release == name));
        let helm = self.meta.annotations.as_ref().and_then(|all| all.get("meta.helm.sh/release-name")).map(String::as_str);
        let name = self.meta.name.as_deref().unwrap_or_default();
        (self.label(LABEL_MANAGED_BY) == Some(MANAGER) && self.label(LABEL_DEPLOYMENT) == Some(deployment))
            || (self.label(LABEL_MANAGED_BY) == Some("Helm") && installed(helm))
            || installed(self.label("app.kubernetes.io/instance"))
            || (self.label("owner") == Some("helm") && installed(self.label("name")))
            || MADE_BY_CONTROLLERS.contains(&(self.kind, name))
    }

    /// `Deployment web (by kubectl-create)`
    fn title(&self) -> String {
        let by = self.meta.managed_fields.iter().flatten().find_map(|entry| entry.manager.clone());
        format!("{} {}{}", self.kind, self.meta.name.as_deref().unwrap_or_default(), by.map(|by| format!(" (by {by})")).unwrap_or_default())
    }
}

fn judge(items: &[Item], deployment: &str, releases: &[String]) -> Vec<String> {
    let uid = |item: &Item| item.meta.uid.clone().unwrap_or_default();
    let uids: Vec<String> = items.iter().map(uid).collect();
    let listed: BTreeSet<&str> = uids.iter().map(String::as_str).collect();
    let mut known: Vec<bool> = items.iter().map(|item| item.is_known(deployment, releases)).collect();
    // What controllers made of ours is ours, and what they made of that.
    loop {
        let of_known: BTreeSet<&str> = uids.iter().zip(&known).filter(|(_, known)| **known).map(|(uid, _)| uid.as_str()).collect();
        let found: Vec<usize> = (0..items.len()).filter(|at| !known[*at] && items[*at].is_owned_by(&of_known)).collect();
        if found.is_empty() {
            break;
        }
        for at in found {
            known[at] = true;
        }
    }
    // What is on its way out anyway: deleted, or left by an owner that is gone.
    let goes = |item: &Item| {
        let orphaned = item.owners().next().is_some() && item.owners().all(|(kind, uid)| KINDS.iter().any(|known| known.kind == kind) && !listed.contains(uid));
        item.meta.deletion_timestamp.is_some() || orphaned
    };
    let others: Vec<&Item> = items.iter().zip(&known).filter(|(item, known)| !**known && !goes(item)).map(|(item, _)| item).collect();
    let of_others: BTreeSet<&str> = others.iter().filter_map(|item| item.meta.uid.as_deref()).collect();
    let mut titles: Vec<String> = others.iter().filter(|item| !item.is_owned_by(&of_others)).map(|item| item.title()).collect();
    if titles.len() > NAMED {
        let more = titles.len() - NAMED;
        titles.truncate(NAMED);
        titles.push(format!("{more} more"));
    }
    titles
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn item(kind: &'static str, meta: Value) -> Item {
        Item { kind, meta: serde_json::from_value(meta).unwrap() }
    }

    fn owner(kind: &str, uid: &str) -> Value {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": uid}])
    }

    #[test]
    fn what_is_ours_or_comes_of_ours_or_of_the_cluster_is_no_others() {
        let ours = json!({"app.kubernetes.io/managed-by": "nemo", "nemo.dev/deployment": "nemo"});
        let items = [
            item("Deployment", json!({"name": "frontend", "uid": "1", "labels": ours})),
            item("ReplicaSet", json!({"name": "frontend-1", "uid": "2", "ownerReferences": owner("Deployment", "1")})),
            item("Pod", json!({"name": "frontend-1-a", "uid": "3", "ownerReferences": owner("ReplicaSet", "2")})),
            item("Pod", json!({"name": "going", "uid": "4", "deletionTimestamp": "2026-11-30T12:00:00Z"})),
            item("Pod", json!({"name": "orphan", "uid": "5", "ownerReferences": owner("ReplicaSet", "gone")})),
            item("ConfigMap", json!({"name": "kube-root-ca.crt", "uid": "6"})),
            item("Secret", json!({"name": "sh.helm.release.v1.lws.v1", "uid": "7", "labels": {"owner": "helm", "name": "lws"}})),
            item("Service", json!({"name": "lws", "uid": "8", "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "lws"}})),
            item("PersistentVolumeClaim", json!({"name": "data-lws-0", "uid": "9", "labels": {"app.kubernetes.io/instance": "lws"}})),
            item("Secret", json!({"name": "webhook-server-cert", "uid": "10"})),
        ];
        assert_eq!(judge(&items, "nemo", &["lws".to_owned()]), Vec::<String>::new());
        assert_eq!(judge(&items, "nemo", &[]).len(), 3, "a release that we did not install is somebody else's");
        assert_eq!(judge(&items[..1], "other", &[]), ["Deployment frontend"], "another deployment of nemo is somebody else, too");
    }

    #[test]
    fn what_others_made_is_named_once_with_whom() {
        let by = json!([{"manager": "kubectl-create", "operation": "Update"}]);
        let items = [
            item("Deployment", json!({"name": "web", "uid": "1", "managedFields": by})),
            item("ReplicaSet", json!({"name": "web-1", "uid": "2", "ownerReferences": owner("Deployment", "1")})),
            item("Pod", json!({"name": "web-1-a", "uid": "3", "ownerReferences": owner("ReplicaSet", "2")})),
            item("Pod", json!({"name": "notebook-0", "uid": "4", "ownerReferences": owner("Notebook", "elsewhere")})),
            item("Secret", json!({"name": "keys", "uid": "5", "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "bobs"}})),
        ];
        assert_eq!(judge(&items, "nemo", &["lws".to_owned()]), ["Deployment web (by kubectl-create)", "Pod notebook-0", "Secret keys"]);
    }
}
