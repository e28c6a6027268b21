//! What `system-nodes` and `gpu-nodes` share: a managed node group in the pinned zone.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;

use super::cluster::{failed, said};
use super::facts::{NetworkFacts, NodesFacts};
use super::{Deps, mark, stack};
use crate::aws::ec2::Ec2;
use crate::aws::eks::{Cluster, Eks, Machines, NewNodegroup, Nodegroup};
use crate::engine::step::{Cx, Digest, Seen, StepId, table_of};
use crate::engine::wait::{Look, Wait};
use crate::error::{Kind, Resource, ServiceError, fail};

/// Names are not waited for longer than this.
const NAMES_LIMIT: Duration = Duration::from_secs(10);

/// A node group as a step wants it.
pub(super) struct Group<'a> {
    pub deps: &'a Deps,
    pub service: Eks,
    /// `system`, `gpu`.
    pub name: &'static str,
    pub nodes: u32,
    pub ami_type: &'a str,
    pub labels: BTreeMap<String, String>,
    /// Key and value; effect NoSchedule.
    pub taints: Vec<(String, String)>,
    pub inputs: Digest,
}

/// Id of our private subnet in the pinned zone: nodes and file system stay in one, since EFA does not cross zones and traffic between zones costs.
pub(super) fn pinned_subnet(deps: &Deps, cx: &Cx) -> anyhow::Result<String> {
    let network: NetworkFacts = cx.facts_of(StepId::Network)?;
    let found = network.private_subnets.into_iter().find(|subnet| subnet.zone_id == deps.pins.zone_id || subnet.zone == deps.pins.zone);
    found.map(|subnet| subnet.id).ok_or_else(|| fail(Kind::Conflict, format!("the network has no subnet in zone {}", deps.pins.zone)).hint("nemo cleanup --from network").into())
}

impl Group<'_> {
    fn cluster(&self) -> &str {
        &self.deps.spec.name
    }

    fn title(&self) -> String {
        format!("node group {}", self.name)
    }

    /// What it looks like, by one round of calls.
    pub(super) async fn observe(&self) -> anyhow::Result<(Seen, Option<Nodegroup>)> {
        let (cluster, group) = tokio::try_join!(self.service.cluster(self.cluster()), self.service.nodegroup(self.cluster(), self.name))?;
        let seen = self.seen(cluster.as_ref(), group.as_ref())?;
        Ok((seen, group))
    }

    fn seen(&self, cluster: Option<&Cluster>, group: Option<&Nodegroup>) -> anyhow::Result<Seen> {
        if !cluster.is_some_and(|cluster| mark::is_ours(&cluster.tags, self.cluster())) {
            return Ok(Seen::Unreachable);
        }
        let Some(group) = group else { return Ok(Seen::Absent) };
        if !mark::is_ours(&group.tags, self.cluster()) {
            return Ok(Seen::Foreign { what: self.title() });
        }
        let what = format!("{} is {}", self.title(), group.status);
        Ok(match group.status.as_str() {
            "ACTIVE" => Seen::Ready { inputs: mark::inputs_of(&group.tags), facts: self.facts(Vec::new())? },
            "CREATING" | "UPDATING" | "DELETING" => Seen::Pending { what },
            _ => Seen::Broken { why: format!("{what}: {}", said(&group.issues)) },
        })
    }

    fn facts(&self, nodes: Vec<String>) -> anyhow::Result<toml::Table> {
        table_of(&NodesFacts { nodegroup: self.name.to_owned(), nodes })
    }

    /// With the names of the nodes, which Kubernetes knows and EKS does not. They are for people and reports: no answer is no failure.
    pub(super) async fn facts_with_nodes(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let listed = async {
            let nodes = kube::Api::<Node>::all(self.deps.kube(cx)?);
            let chosen = ListParams::default().labels(&format!("eks.amazonaws.com/nodegroup={}", self.name));
            let nodes = nodes.list_metadata(&chosen).await?.items;
            anyhow::Ok(nodes.into_iter().filter_map(|node| node.metadata.name).collect())
        };
        match tokio::time::timeout(NAMES_LIMIT, listed).await {
            Ok(Ok(names)) => self.facts(names),
            Ok(Err(error)) => {
                cx.note(format!("Kubernetes did not name the nodes of {}: {error:#}", self.title()));
                self.facts(Vec::new())
            }
            Err(_) => self.facts(Vec::new()),
        }
    }

    /// Makes it, waits for it, or brings it to the wanted size and launch template; then it is active.
    pub(super) async fn ensure(&self, cx: &Cx, machines: &Machines) -> anyhow::Result<()> {
        let (mut tried, mut before) = (false, String::new());
        let mut found = self.service.nodegroup(self.cluster(), self.name).await?;
        loop {
            let Some(group) = found else {
                self.create(cx, machines, &before).await?;
                tried = true;
                found = self.settled(cx).await?;
                continue;
            };
            if !mark::is_ours(&group.tags, self.cluster()) {
                return Err(fail(Kind::Conflict, format!("{} is there and does not carry our tag", self.title())).hint("remove it yourself").into());
            }
            found = match group.status.as_str() {
                "ACTIVE" => {
                    if mark::inputs_of(&group.tags).as_ref() == Some(&self.inputs) {
                        return Ok(());
                    }
                    return self.bring(cx, &group, machines).await;
                }
                "CREATING" | "UPDATING" | "DELETING" => {
                    tried = tried || group.status == "CREATING";
                    self.settled(cx).await?
                }
                // Its nodes may still work: what EKS finds wrong is for a person to mend, not for us to delete.
                status if tried || status == "DEGRADED" => return Err(failed(&self.title(), status, &group.issues).into()),
                status => {
                    cx.note(format!("{} is {status} ({}): it is deleted and made anew", self.title(), said(&group.issues)));
                    before = group.arn;
                    self.take_away(cx).await?;
                    None
                }
            };
        }
    }

    async fn create(&self, cx: &Cx, machines: &Machines, before: &str) -> anyhow::Result<()> {
        let network: NetworkFacts = cx.facts_of(StepId::Network)?;
        let new = NewNodegroup {
            cluster: self.cluster().to_owned(),
            name: self.name.to_owned(),
            role_arn: network.node_role_arn,
            subnets: vec![pinned_subnet(self.deps, cx)?],
            nodes: self.nodes,
            ami_type: self.ami_type.to_owned(),
            machines: machines.clone(),
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            tags: mark::tags(self.cluster(), &self.inputs),
            token: mark::token(self.cluster(), self.name, &self.inputs, before),
        };
        let wait = Wait { every_ms: self.deps.spec.wait.stack.every_ms.min(2000), limit_s: 180 };
        let young = |error: &ServiceError| error.is(&["InvalidParameterException"]) && error.message.contains("could not be assumed");
        stack::retried(cx, "CreateNodegroup", wait, young, || self.service.create_nodegroup(&new)).await.map(drop)
    }

    /// What of it the settings say otherwise and EKS cannot change in place.
    pub(super) fn fixed(&self, group: &Nodegroup, machines: Option<&Machines>) -> Option<String> {
        let mut fixed = vec![("AMI type", group.ami_type.clone(), self.ami_type.to_owned())];
        if let Some(Machines::Plain { instance_type, disk_gib }) = machines {
            fixed.push(("instance type", group.instance_type.clone().unwrap_or_default(), instance_type.clone()));
            fixed.push(("disk", group.disk_gib.unwrap_or_default().to_string(), disk_gib.to_string()));
        }
        let (what, have, want) = fixed.into_iter().find(|(_, have, want)| have != want)?;
        Some(format!("{} has {what} {have}, the settings say {want}, and EKS cannot change that in place", self.title()))
    }

    /// The same look, with what cannot be changed found before anything is.
    pub(super) async fn observe_with(&self, machines: Option<&Machines>) -> anyhow::Result<Seen> {
        Ok(match self.observe().await? {
            (Seen::Ready { inputs, .. }, Some(group))
                if inputs.as_ref() != Some(&self.inputs)
                    && let Some(why) = self.fixed(&group, machines) =>
            {
                Seen::Fixed { why }
            }
            (seen, _) => seen,
        })
    }

    /// Brings one that was made from other settings to the present ones, where EKS can; its tag says so last.
    async fn bring(&self, cx: &Cx, group: &Nodegroup, machines: &Machines) -> anyhow::Result<()> {
        if let Some(why) = self.fixed(group, Some(machines)) {
            return Err(self.refused(cx, why));
        }
        let mut fixed = vec![("subnet", group.subnets.join(","), pinned_subnet(self.deps, cx)?)];
        let mut template = None;
        match (machines, &group.launch_template) {
            (Machines::Plain { .. }, _) => {}
            (Machines::LaunchTemplate { id, version }, Some((have, have_version))) if have == id => template = (have_version != version).then_some((id, version)),
            (Machines::LaunchTemplate { id, .. }, have) => fixed.push(("launch template", have.clone().unwrap_or_default().0, id.clone())),
        }
        if let Some((what, have, want)) = fixed.into_iter().find(|(_, have, want)| have != want) {
            return Err(self.refused(cx, format!("{} has {what} {have}, the settings say {want}, and EKS cannot change that in place", self.title())));
        }
        if let Some((id, version)) = template {
            let update = self.service.roll_nodegroup(self.cluster(), self.name, (id, version)).await?;
            self.updated(cx, &update).await?;
        }
        if group.desired != self.nodes {
            let update = self.service.scale_nodegroup(self.cluster(), self.name, self.nodes).await?;
            self.updated(cx, &update).await?;
        }
        Ok(self.service.tag(&group.arn, &mark::tags(self.cluster(), &self.inputs)).await?)
    }

    fn refused(&self, cx: &Cx, why: String) -> anyhow::Error {
        fail(Kind::Conflict, why).hint(format!("put the settings back, or make it anew: nemo cleanup --from {0}, then nemo up", cx.step)).into()
    }

    async fn updated(&self, cx: &Cx, id: &str) -> anyhow::Result<()> {
        let look = || async {
            Ok(match self.service.nodegroup_update(self.cluster(), self.name, id).await? {
                Some(update) if update.status == "InProgress" => Look::NotYet(update.status),
                Some(update) if update.status != "Successful" => Look::Ready(Err(failed(&format!("update of {}", self.title()), &update.status, &update.issues))),
                _ => Look::Ready(Ok(())),
            })
        };
        Ok(cx.until(&format!("update of {}", self.title()), self.deps.spec.wait.nodes, look).await??)
    }

    /// Waits until it is not being made, changed or deleted. What EKS finds wrong meanwhile is said at once: capacity that is not there
    /// would else be waited for without a word until EKS gives up.
    async fn settled(&self, cx: &Cx) -> anyhow::Result<Option<Nodegroup>> {
        let look = || async {
            let Some(group) = self.service.nodegroup(self.cluster(), self.name).await? else { return Ok(Look::Ready(None)) };
            if !matches!(group.status.as_str(), "CREATING" | "UPDATING" | "DELETING") {
                return Ok(Look::Ready(Some(group)));
            }
            Ok(Look::NotYet(if group.issues.is_empty() { group.status } else { format!("{}, {}", group.status, said(&group.issues)) }))
        };
        cx.until(&self.title(), self.deps.spec.wait.nodes, look).await
    }

    /// Deletes it if it is ours and waits until it is gone.
    pub(super) async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        match self.service.nodegroup(self.cluster(), self.name).await? {
            Some(group) if mark::is_ours(&group.tags, self.cluster()) => self.take_away(cx).await,
            Some(_) => {
                cx.note(format!("{} is not ours and stays", self.title()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn take_away(&self, cx: &Cx) -> anyhow::Result<()> {
        if !self.service.delete_nodegroup(self.cluster(), self.name).await? {
            return Ok(());
        }
        match self.settled(cx).await? {
            Some(group) => Err(failed(&format!("DeleteNodegroup {}", self.name), &group.status, &group.issues).into()),
            None => Ok(()),
        }
    }

    /// What bills of it now: size and type as they are, not as the settings say. `hourly`: US dollars of one such instance, where that is known.
    pub(super) async fn existing(&self, hourly: impl Fn(&str) -> Option<f64>) -> anyhow::Result<Option<Resource>> {
        let group = self.service.nodegroup(self.cluster(), self.name).await?;
        let Some(group) = group.filter(|group| mark::is_ours(&group.tags, self.cluster())) else { return Ok(None) };
        let type_name = match (&group.instance_type, &group.launch_template) {
            (Some(type_name), _) => Some(type_name.clone()),
            // Who may not look at launch templates learns the number of nodes all the same.
            (None, Some((id, version))) => Ec2::new(&self.deps.aws).template_type(id, version).await.unwrap_or_default(),
            (None, None) => None,
        };
        Ok(Some(nodes(self.name, group.desired, type_name.as_deref(), hourly)))
    }
}

/// So many nodes of a type, with what they cost together.
pub(super) fn nodes(name: &str, count: u32, type_name: Option<&str>, hourly: impl Fn(&str) -> Option<f64>) -> Resource {
    let price = type_name.and_then(hourly).map(|price| price * f64::from(count));
    Resource::new(format!("EKS node group, {count} × {}", type_name.unwrap_or("unknown type")), name).costing(price)
}
