//! Step `cluster`: the control plane, and the add-ons without which no node becomes ready.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::try_join_all;

use super::facts::{ClusterFacts, NetworkFacts};
use super::network::NO_CONTROL_PLANE;
use super::{Deps, mark, stack};
use crate::aws::eks::{self, Addon, Eks, Issue, NewAddon, NewCluster};
use crate::engine::step::{Cx, Digest, Need, OnChange, Seen, Step, StepId, part_of, table_of};
use crate::engine::wait::{Look, Wait};
use crate::error::{Kind, Resource, ServiceError, fail};

/// DaemonSets that nodes need in order to become ready and to give pods their roles. They need no node themselves.
pub(super) const NODE_ADDONS: [&str; 3] = ["vpc-cni", "kube-proxy", "eks-pod-identity-agent"];

/// The EKS control plane.
pub struct Cluster {
    pub deps: Arc<Deps>,
}

impl Cluster {
    fn name(&self) -> &str {
        &self.deps.spec.name
    }

    async fn addons(&self, service: &Eks) -> Result<Vec<Option<Addon>>, ServiceError> {
        try_join_all(NODE_ADDONS.map(|addon| service.addon(self.name(), addon))).await
    }

    fn new_cluster(&self, cx: &Cx, before: &str) -> anyhow::Result<NewCluster> {
        let network: NetworkFacts = cx.facts_of(StepId::Network)?;
        let subnets = network.private_subnets.into_iter().chain(network.public_subnets).filter(|subnet| !NO_CONTROL_PLANE.contains(&subnet.zone_id.as_str()));
        Ok(NewCluster {
            name: self.name().to_owned(),
            version: self.deps.spec.platform.kubernetes.version.clone(),
            role_arn: network.cluster_role_arn,
            subnets: subnets.map(|subnet| subnet.id).collect(),
            tags: mark::tags(self.name(), &self.inputs()),
            token: mark::token(self.name(), "cluster", &self.inputs(), before),
        })
    }

    /// Makes it or waits for it, until it is active.
    async fn control_plane(&self, cx: &Cx, service: &Eks) -> anyhow::Result<eks::Cluster> {
        let (mut tried, mut before) = (false, String::new());
        loop {
            let Some(cluster) = service.cluster(self.name()).await? else {
                let new = self.new_cluster(cx, &before)?;
                // A role that was made a moment ago is not yet known everywhere.
                let wait = Wait { every_ms: self.deps.spec.wait.stack.every_ms.min(2000), limit_s: 180 };
                stack::retried(cx, "CreateCluster", wait, role_is_young, || service.create_cluster(&new)).await?;
                tried = true;
                self.settled(cx, service).await?;
                continue;
            };
            if !mark::is_ours(&cluster.tags, self.name()) {
                let message = format!("an EKS cluster {} is there and does not carry the tag of this deployment", self.name());
                return Err(fail(Kind::Conflict, message).hint("choose another --name, or remove it yourself").into());
            }
            match cluster.status.as_str() {
                "ACTIVE" => return Ok(cluster),
                "FAILED" if tried => return Err(failed("CreateCluster", &cluster.status, &cluster.issues).into()),
                "FAILED" => {
                    cx.note(format!("cluster {} is FAILED ({}): it is deleted and made anew", cluster.name, said(&cluster.issues)));
                    before = cluster.arn;
                    self.take_away(cx, service).await?;
                }
                status => {
                    tried = tried || status == "CREATING";
                    self.settled(cx, service).await?;
                }
            }
        }
    }

    /// Waits until it is not being made, changed or deleted.
    async fn settled(&self, cx: &Cx, service: &Eks) -> anyhow::Result<()> {
        let look = || async {
            Ok(match service.cluster(self.name()).await? {
                Some(cluster) if !matches!(cluster.status.as_str(), "ACTIVE" | "FAILED") => Look::NotYet(cluster.status),
                _ => Look::Ready(()),
            })
        };
        cx.until(&format!("cluster {}", self.name()), self.deps.spec.wait.cluster, look).await
    }

    /// Asks for the add-ons that are not there, all at once. They run on nodes, so they are not waited for here.
    async fn ask_for_addons(&self, service: &Eks) -> anyhow::Result<()> {
        let found = self.addons(service).await?;
        let missing = NODE_ADDONS.into_iter().zip(found).filter(|(_, found)| found.as_ref().is_none_or(|addon| addon.status == "CREATE_FAILED"));
        try_join_all(missing.map(|(name, found)| self.ask_for(service, name, found))).await.map(drop)
    }

    async fn ask_for(&self, service: &Eks, name: &str, found: Option<Addon>) -> anyhow::Result<()> {
        let Some(pin) = self.deps.pins.addons.get(name) else {
            return Err(fail(Kind::Config, format!("no version of add-on {name} was resolved")).hint("nemo plan resolves the versions and keeps them in the state").into());
        };
        match found {
            // It is there and could not be installed: brought to the version once more.
            Some(_) => Ok(service.update_addon(self.name(), name, &pin.version).await?),
            None => {
                let new = NewAddon {
                    cluster: self.name().to_owned(),
                    name: name.to_owned(),
                    version: pin.version.clone(),
                    identities: Vec::new(),
                    configuration: None,
                    tags: mark::tags(self.name(), &self.inputs()),
                    token: mark::token(self.name(), name, &self.inputs(), ""),
                };
                Ok(service.create_addon(&new).await.map(drop)?)
            }
        }
    }

    async fn take_away(&self, cx: &Cx, service: &Eks) -> anyhow::Result<()> {
        // While it is being made or changed it cannot be deleted.
        let status = service.cluster(self.name()).await?.map(|cluster| cluster.status);
        if status.as_deref().is_some_and(|status| !matches!(status, "ACTIVE" | "FAILED" | "DELETING")) {
            self.settled(cx, service).await?;
        }
        if status.as_deref() != Some("DELETING") {
            let groups = service.nodegroups(self.name()).await?;
            if !groups.is_empty() {
                let message = format!("cluster {} still has node groups that are not ours: {}", self.name(), groups.join(", "));
                return Err(fail(Kind::Conflict, message).hint("remove them yourself, then run nemo cleanup again").into());
            }
            if !service.delete_cluster(self.name()).await? {
                return Ok(());
            }
        }
        let look = || async {
            Ok(match service.cluster(self.name()).await? {
                None => Look::Ready(Ok(())),
                Some(cluster) if cluster.status == "DELETING" => Look::NotYet(cluster.status),
                Some(cluster) => Look::Ready(Err(failed("DeleteCluster", &cluster.status, &cluster.issues))),
            })
        };
        Ok(cx.until(&format!("deletion of cluster {}", self.name()), self.deps.spec.wait.cluster, look).await??)
    }
}

#[async_trait]
impl Step for Cluster {
    fn id(&self) -> StepId {
        StepId::Cluster
    }

    fn needs(&self) -> Vec<Need> {
        vec![part_of(StepId::Network, "subnets"), part_of(StepId::Network, "roles")]
    }

    fn inputs(&self) -> Digest {
        Digest::of(&self.deps.spec.platform.kubernetes.version)
    }

    fn on_change(&self) -> OnChange {
        OnChange::Refuse
    }

    fn makes(&self) -> Vec<Resource> {
        let price = self.deps.pins.prices.cluster_hour;
        vec![Resource::new("EKS cluster", self.name()).costing((price > 0.0).then_some(price))]
    }

    async fn observe(&self, _cx: &Cx) -> anyhow::Result<Seen> {
        let service = Eks::new(&self.deps.aws);
        let (cluster, addons) = tokio::try_join!(service.cluster(self.name()), self.addons(&service))?;
        let Some(cluster) = cluster else { return Ok(Seen::Absent) };
        if !mark::is_ours(&cluster.tags, self.name()) {
            return Ok(Seen::Foreign { what: format!("EKS cluster {}", cluster.name) });
        }
        if cluster.status == "FAILED" {
            return Ok(Seen::Broken { why: format!("cluster {} is FAILED: {}", cluster.name, said(&cluster.issues)) });
        }
        if cluster.status != "ACTIVE" {
            return Ok(Seen::Pending { what: format!("cluster {} is {}", cluster.name, cluster.status) });
        }
        for (name, addon) in NODE_ADDONS.into_iter().zip(addons) {
            match addon {
                None => return Ok(Seen::Pending { what: format!("add-on {name} is not there yet") }),
                Some(addon) if addon.status == "CREATE_FAILED" => return Ok(Seen::Broken { why: format!("add-on {name} is CREATE_FAILED: {}", said(&addon.issues)) }),
                Some(_) => {}
            }
        }
        Ok(Seen::Ready { inputs: mark::inputs_of(&cluster.tags), facts: table_of(&facts(cluster))? })
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let service = Eks::new(&self.deps.aws);
        let cluster = self.control_plane(cx, &service).await?;
        self.ask_for_addons(&service).await?;
        table_of(&facts(cluster))
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        let service = Eks::new(&self.deps.aws);
        match service.cluster(self.name()).await? {
            Some(cluster) if mark::is_ours(&cluster.tags, self.name()) => self.take_away(cx, &service).await,
            Some(_) => {
                cx.note(format!("EKS cluster {} is not ours and stays", self.name()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        let found = Eks::new(&self.deps.aws).cluster(self.name()).await?;
        Ok(if found.is_some_and(|cluster| mark::is_ours(&cluster.tags, self.name())) { self.makes() } else { Vec::new() })
    }
}

fn facts(cluster: eks::Cluster) -> ClusterFacts {
    ClusterFacts {
        name: cluster.name,
        arn: cluster.arn,
        endpoint: cluster.endpoint,
        certificate_authority: cluster.certificate_authority,
        version: cluster.version,
        security_group: cluster.security_group,
    }
}

fn role_is_young(error: &ServiceError) -> bool {
    error.is(&["InvalidParameterException"]) && error.message.to_lowercase().contains("role")
}

/// What EKS finds wrong, in one line.
pub(super) fn said(issues: &[Issue]) -> String {
    let words: Vec<String> = issues.iter().map(ToString::to_string).collect();
    if words.is_empty() { "EKS gives no reason".into() } else { words.join("; ") }
}

/// What EKS made and then called failed, as the error that it is: with EKS's own code, which decides the kind.
pub(super) fn failed(operation: &str, status: &str, issues: &[Issue]) -> ServiceError {
    let code = issues.first().map_or_else(|| status.to_owned(), |issue| issue.code.clone());
    let message = issues.iter().map(|issue| issue.message.clone()).collect::<Vec<_>>().join("; ");
    let message = if message.is_empty() { format!("it ended as {status}, and EKS gives no reason") } else { message };
    ServiceError { service: "eks".into(), operation: operation.into(), code, message, request_id: None, status: None }
}
