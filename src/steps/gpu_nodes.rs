//! Step `gpu-nodes`: the launch template with its network cards, and the node group made from it.

use std::sync::Arc;

use async_trait::async_trait;

use super::facts::{ClusterFacts, NetworkFacts};
use super::nodegroup::{Group, nodes};
use super::stack::{self, Stacks};
use super::{Deps, mark};
use crate::aws::TAG_DEPLOYMENT;
use crate::aws::cloudformation::CloudFormation;
use crate::aws::eks::{Eks, Machines};
use crate::aws::eni::{self, CardsOf};
use crate::engine::step::{Cx, Digest, Need, OnChange, Seen, Step, StepId, all_of};
use crate::error::{Kind, Resource, fail};
use crate::render::cloudformation::{self, Interface};

/// The node group `gpu`.
pub struct GpuNodes {
    pub deps: Arc<Deps>,
}

impl GpuNodes {
    fn stack_name(&self) -> String {
        format!("{}-gpu-nodes", self.deps.spec.name)
    }

    fn template(&self) -> Resource {
        Resource::new("CloudFormation stack (launch template)", self.stack_name())
    }

    fn group(&self) -> Group<'_> {
        let spec = &self.deps.spec;
        // The device plugin's chart looks for `nvidia.com/gpu.present`, which only feature discovery would set otherwise.
        let labels = [("nemo.dev/role", "gpu"), ("nvidia.com/gpu.present", "true")];
        Group {
            deps: &self.deps,
            service: Eks::new(&self.deps.aws),
            name: "gpu",
            nodes: spec.gpu.nodes,
            ami_type: &spec.instance.ami_type.value,
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            taints: vec![("nvidia.com/gpu".to_owned(), "present".to_owned())],
            inputs: self.inputs(),
        }
    }

    /// Of what the launch template is made from; the number of nodes is no part of it.
    fn template_inputs(&self) -> Digest {
        Digest::of(&(&self.deps.spec.instance.type_name, self.deps.spec.gpu.disk_gib))
    }

    fn stacks<'a>(&'a self, cx: &'a Cx) -> Stacks<'a> {
        Stacks { cx, service: CloudFormation::new(&self.deps.aws), wait: self.deps.spec.wait.stack, deployment: &self.deps.spec.name }
    }

    /// The launch template that there shall be, as the node group names it.
    async fn launch_template(&self, cx: &Cx) -> anyhow::Result<Machines> {
        let spec = &self.deps.spec;
        let type_name = &spec.instance.type_name;
        let (network, cluster): (NetworkFacts, ClusterFacts) = (cx.facts_of(StepId::Network)?, cx.facts_of(StepId::Cluster)?);
        let cards = eni::Network::new(&self.deps.aws).cards(type_name).await?;
        let cards = cards.ok_or_else(|| fail(Kind::Capacity, format!("region {} does not know instance type {type_name}", self.deps.aws.region)).hint("nemo check"))?;
        if spec.instance.efa.as_ref().is_some_and(|efa| efa.value != cards.efa) {
            let said = spec.instance.efa.as_ref().map(|efa| efa.value).unwrap_or_default();
            cx.note(format!("configs/instances says that {type_name} has {said} EFA adapters, EC2 says {}: EC2 is believed", cards.efa));
        }
        // A group that is given here replaces the one that EKS would have set, so the cluster's own has to be named too.
        let mut groups = vec![cluster.security_group, network.filesystem_security_group];
        if cards.efa > 0 {
            groups.push(network.efa_security_group);
        }
        let values = cloudformation::GpuNodes {
            name: spec.name.clone(),
            instance_type: type_name.clone(),
            disk_gib: spec.gpu.disk_gib,
            groups,
            interfaces: layout(type_name, &cards)?,
            tag: TAG_DEPLOYMENT,
        };
        let wanted = stack::wanted(cloudformation::gpu_nodes(&values)?, &self.stack_name(), &spec.name, &self.template_inputs());
        let stack = self.stacks(cx).ensure(&wanted, OnChange::InPlace).await?;
        match (stack.outputs.get("Template"), stack.outputs.get("Version")) {
            (Some(id), Some(version)) => Ok(Machines::LaunchTemplate { id: id.clone(), version: version.clone() }),
            _ => Err(fail(Kind::Remote, format!("stack {} does not name its launch template", stack.name)).into()),
        }
    }
}

/// Where which interface goes. The primary one is ENA (an `efa-only` interface cannot be primary); EFA gets interfaces of its own without
/// addresses: at device 1 of card 0 if that card carries EFA, at device 0 of every other card. EC2 does not say which cards carry EFA; all do,
/// or all but the first (EC2 user guide, "Maximize network bandwidth with EFA", read 2026-09-01).
fn layout(type_name: &str, of: &CardsOf) -> anyhow::Result<Vec<Interface>> {
    let (cards, efa) = (of.cards.len() as u32, of.efa);
    let with_efa = match efa {
        0 => 0..0,
        _ if efa == cards => 0..cards,
        _ if efa + 1 == cards => 1..cards,
        _ => {
            let message = format!("{type_name} has {cards} network cards and {efa} EFA interfaces: which cards carry EFA is not known here");
            return Err(fail(Kind::Config, message).hint("choose another --instance").into());
        }
    };
    let mut interfaces = vec![Interface { card: 0, device: 0, kind: "interface" }];
    interfaces.extend(with_efa.map(|card| Interface { card, device: u32::from(card == 0), kind: "efa-only" }));
    for (card, most) in (0u32..).zip(&of.cards) {
        let wanted = interfaces.iter().filter(|interface| interface.card == card).count() as u32;
        if wanted > *most {
            return Err(fail(Kind::Config, format!("{type_name} takes {most} interfaces at network card {card}, and {wanted} are needed")).into());
        }
    }
    Ok(interfaces)
}

#[async_trait]
impl Step for GpuNodes {
    fn id(&self) -> StepId {
        StepId::GpuNodes
    }

    fn needs(&self) -> Vec<Need> {
        vec![all_of(StepId::Network), all_of(StepId::Cluster)]
    }

    fn inputs(&self) -> Digest {
        Digest::of(&(self.template_inputs(), self.deps.spec.gpu.nodes, &self.deps.spec.instance.ami_type.value, &self.deps.pins.zone_id))
    }

    fn makes(&self) -> Vec<Resource> {
        let price = self.deps.pins.prices.gpu_instance_hour;
        let group = nodes("gpu", self.deps.spec.gpu.nodes, Some(&self.deps.spec.instance.type_name), |_| (price > 0.0).then_some(price));
        vec![self.template(), group]
    }

    async fn observe(&self, _cx: &Cx) -> anyhow::Result<Seen> {
        let (service, name, group) = (CloudFormation::new(&self.deps.aws), self.stack_name(), self.group());
        let stack = async { service.describe(&name).await.map_err(anyhow::Error::from) };
        let (stack, seen) = tokio::try_join!(stack, group.observe_with(None))?;
        let of_stack = stack::seen(&[(name.clone(), stack)], &self.deps.spec.name);
        Ok(match (of_stack, seen) {
            (Some(foreign @ Seen::Foreign { .. }), _) => foreign,
            // A template without nodes is the half of it; one that is missing or broken under nodes that run has to be made again.
            (Some(Seen::Absent), Seen::Ready { .. }) => Seen::Broken { why: format!("stack {name} with the launch template is gone") },
            (Some(broken @ (Seen::Broken { .. } | Seen::Pending { .. })), Seen::Ready { .. } | Seen::Absent) => broken,
            (None, Seen::Absent) => Seen::Pending { what: "the launch template is there, the node group is not".into() },
            (_, seen) => seen,
        })
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let machines = self.launch_template(cx).await?;
        let group = self.group();
        group.ensure(cx, &machines).await?;
        group.facts_with_nodes(cx).await
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        self.group().remove(cx).await?;
        self.stacks(cx).remove(&self.stack_name()).await
    }

    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        let (service, name, group) = (CloudFormation::new(&self.deps.aws), self.stack_name(), self.group());
        let stack = async { service.describe(&name).await.map_err(anyhow::Error::from) };
        let (stack, group) = tokio::try_join!(stack, group.existing(|type_name| self.deps.pins.prices.gpu_hour(type_name)))?;
        let stack = stack.filter(|stack| mark::is_ours(&stack.tags, &self.deps.spec.name)).map(|_| self.template());
        Ok(stack.into_iter().chain(group).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(most: &[u32], efa: u32) -> CardsOf {
        CardsOf { cards: most.to_vec(), efa }
    }

    #[test]
    fn every_card_gets_the_interfaces_that_it_can_carry() {
        // p5en.48xlarge: 16 cards, EFA on each.
        let made = layout("p5en.48xlarge", &cards(&[8; 16], 16)).unwrap();
        assert_eq!(made.len(), 17);
        assert_eq!(made[0], Interface { card: 0, device: 0, kind: "interface" });
        assert_eq!(made[1], Interface { card: 0, device: 1, kind: "efa-only" });
        assert!(made[2..].iter().zip(1..).all(|(nic, card)| *nic == Interface { card, device: 0, kind: "efa-only" }));
        // p6-b300.48xlarge: 17 cards, the first is ENA only.
        let made = layout("p6-b300.48xlarge", &cards(&[8; 17], 16)).unwrap();
        assert_eq!(made.len(), 17);
        assert!(made[1..].iter().all(|nic| nic.kind == "efa-only" && nic.device == 0 && nic.card > 0));
        // No EFA at all.
        assert_eq!(layout("m7i.2xlarge", &cards(&[4], 0)).unwrap().len(), 1);
    }

    #[test]
    fn what_ec2_would_refuse_is_refused_before() {
        assert!(layout("odd", &cards(&[8; 16], 4)).is_err());
        assert!(layout("narrow", &cards(&[1; 16], 16)).unwrap_err().to_string().contains("network card 0"));
    }
}
