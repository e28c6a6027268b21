//! Helm's releases, as its Secrets say: helm itself is not needed to look.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams};
use kube::core::metadata::PartialObjectMeta;
use kube::{Client, ResourceExt};

use super::error::Answer;
use crate::error::ServiceError;

/// The newest revision of a release.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    pub name: String,
    pub namespace: String,
    pub revision: u32,
    /// `deployed`, `failed`, `pending-install`, `pending-upgrade`, `uninstalling` …
    pub status: String,
    /// Also those that `helm --labels` put there.
    pub labels: BTreeMap<String, String>,
    secret: String,
}

/// All releases of the cluster.
pub async fn releases(client: &Client) -> Result<Vec<Release>, ServiceError> {
    let api: Api<Secret> = Api::all(client.clone());
    let listed = api.list_metadata(&ListParams::default().labels("owner=helm")).await.answer("LIST secrets")?;
    Ok(newest(listed.items.into_iter().filter_map(release)))
}

fn release(secret: PartialObjectMeta<Secret>) -> Option<Release> {
    let labels = secret.labels().clone();
    Some(Release {
        name: labels.get("name")?.clone(),
        namespace: secret.namespace()?,
        revision: labels.get("version")?.parse().ok()?,
        status: labels.get("status")?.clone(),
        labels,
        secret: secret.name_any(),
    })
}

fn newest(releases: impl Iterator<Item = Release>) -> Vec<Release> {
    let mut newest: BTreeMap<(String, String), Release> = BTreeMap::new();
    for release in releases {
        let key = (release.namespace.clone(), release.name.clone());
        if newest.get(&key).is_none_or(|have| have.revision < release.revision) {
            newest.insert(key, release);
        }
    }
    newest.into_values().collect()
}

/// Forgets the newest revision: one that was left pending by a helm that was killed blocks every other.
pub async fn forget(client: &Client, release: &Release) -> Result<(), ServiceError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &release.namespace);
    api.delete(&release.secret, &DeleteParams::default()).await.or_none(&format!("DELETE secrets/{}", release.secret)).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_revision_counts() {
        let secret = |version: &str, status: &str| {
            serde_json::from_value::<PartialObjectMeta<Secret>>(json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
                "name": format!("sh.helm.release.v1.lws.v{version}"), "namespace": "lws-system",
                "labels": {"owner": "helm", "name": "lws", "version": version, "status": status, "nemo.dev/inputs": "abc"}}}))
            .unwrap()
        };
        let found = newest([secret("9", "superseded"), secret("10", "deployed"), secret("2", "superseded")].into_iter().filter_map(release));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].revision, found[0].status.as_str(), found[0].labels["nemo.dev/inputs"].as_str()), (10, "deployed", "abc"));
    }
}
