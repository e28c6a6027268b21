//! Step `system-nodes`: CPU nodes for the frontend, operators and tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::try_join_all;

use super::Deps;
use super::cluster::{NODE_ADDONS, failed};
use super::nodegroup::{Group, nodes};
use crate::aws::eks::{Eks, Machines};
use crate::engine::step::{Cx, Digest, Need, Seen, Step, StepId, all_of};
use crate::engine::wait::Look;
use crate::error::Resource;

/// The node group `system`.
pub struct SystemNodes {
    pub deps: Arc<Deps>,
}

impl SystemNodes {
    fn group(&self) -> Group<'_> {
        let spec = &self.deps.spec;
        Group {
            deps: &self.deps,
            service: Eks::new(&self.deps.aws),
            name: "system",
            nodes: spec.system.nodes,
            ami_type: &spec.system_instance.ami_type.value,
            labels: BTreeMap::from([("nemo.dev/role".to_owned(), "system".to_owned())]),
            taints: Vec::new(),
            inputs: self.inputs(),
        }
    }

    fn machines(&self) -> Machines {
        Machines::Plain { instance_type: self.deps.spec.system_instance.type_name.clone(), disk_gib: self.deps.spec.system.disk_gib }
    }

    /// The price that was found is of the type in the settings.
    fn hourly(&self, type_name: &str) -> Option<f64> {
        let price = self.deps.pins.prices.system_instance_hour;
        (price > 0.0 && type_name == self.deps.spec.system_instance.type_name).then_some(price)
    }

    /// The add-ons of every node, asked for by `cluster`, prove themselves on the first nodes.
    async fn addon_works(&self, cx: &Cx, service: &Eks, name: &str) -> anyhow::Result<()> {
        let look = || async {
            Ok(match service.addon(&self.deps.spec.name, name).await? {
                Some(addon) if addon.status == "ACTIVE" => Look::Ready(Ok(())),
                Some(addon) if addon.status.ends_with("_FAILED") => Look::Ready(Err(failed(&format!("CreateAddon {name}"), &addon.status, &addon.issues))),
                Some(addon) => Look::NotYet(addon.issues.first().map_or(addon.status, ToString::to_string)),
                None => Look::NotYet("not there".into()),
            })
        };
        Ok(cx.until(&format!("add-on {name}"), self.deps.spec.wait.addon, look).await??)
    }
}

#[async_trait]
impl Step for SystemNodes {
    fn id(&self) -> StepId {
        StepId::SystemNodes
    }

    fn needs(&self) -> Vec<Need> {
        vec![all_of(StepId::Network), all_of(StepId::Cluster)]
    }

    fn inputs(&self) -> Digest {
        Digest::of(&(&self.deps.spec.system, &self.deps.spec.system_instance.ami_type.value, &self.deps.pins.zone_id))
    }

    fn makes(&self) -> Vec<Resource> {
        let of = &self.deps.spec.system_instance.type_name;
        vec![nodes("system", self.deps.spec.system.nodes, Some(of), |type_name| self.hourly(type_name))]
    }

    async fn observe(&self, _cx: &Cx) -> anyhow::Result<Seen> {
        self.group().observe_with(Some(&self.machines())).await
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let group = self.group();
        group.ensure(cx, &self.machines()).await?;
        try_join_all(NODE_ADDONS.map(|addon| self.addon_works(cx, &group.service, addon))).await?;
        group.facts_with_nodes(cx).await
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        self.group().remove(cx).await
    }

    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        Ok(self.group().existing(|type_name| self.hourly(type_name)).await?.into_iter().collect())
    }
}
