//! Step `network`: VPC and roles at once, then the way out. Three stacks, so that the control plane need not wait for NAT.

use std::sync::Arc;

use async_trait::async_trait;

use super::Deps;
use super::cidr::{Block, MOST_ZONES};
use super::facts::{NetworkFacts, Subnet};
use super::stack::{self, Stacks, Wanted};
use super::vpc::Vpc;
use crate::aws::cloudformation::{CloudFormation, Stack};
use crate::aws::eni::{self, Zone};
use crate::engine::step::{Cx, Digest, Need, OnChange, Seen, Step, StepId, table_of};
use crate::error::{Kind, Resource, fail};
use crate::render::cloudformation::ZoneShare;
use crate::render::{Rendered, cloudformation};

/// EKS puts no control plane there (EKS guide, "Subnet requirements", read 2026-09-01).
pub(super) const NO_CONTROL_PLANE: [&str; 3] = ["use1-az3", "usw1-az2", "cac1-az3"];

/// VPC, subnets, security groups, roles, NAT gateway.
pub struct Network {
    pub deps: Arc<Deps>,
}

impl Network {
    fn name(&self, stack: &str) -> String {
        format!("{}-{stack}", self.deps.spec.name)
    }

    fn stacks<'a>(&'a self, cx: &'a Cx) -> Stacks<'a> {
        Stacks { cx, service: CloudFormation::new(&self.deps.aws), wait: self.deps.spec.wait.stack, deployment: &self.deps.spec.name }
    }

    /// The three stacks, asked for at once: network, roles, nat.
    async fn found(&self) -> anyhow::Result<[(String, Option<Stack>); 3]> {
        let service = CloudFormation::new(&self.deps.aws);
        let [network, roles, nat] = [self.name("network"), self.name("roles"), self.name("nat")];
        let (a, b, c) = tokio::try_join!(service.describe(&network), service.describe(&roles), service.describe(&nat))?;
        Ok([(network, a), (roles, b), (nat, c)])
    }

    fn wanted(&self, rendered: Rendered, stack: &str) -> Wanted {
        stack::wanted(rendered, &self.name(stack), &self.deps.spec.name, &self.inputs())
    }

    /// The GPU nodes' zone first, then as many others as it takes to have two where EKS puts a control plane.
    async fn zones(&self) -> anyhow::Result<Vec<Zone>> {
        let pins = &self.deps.pins;
        let all = eni::Network::new(&self.deps.aws).zones().await?;
        let Some(pinned) = all.iter().find(|zone| zone.id == pins.zone_id || zone.name == pins.zone) else {
            return Err(fail(Kind::Config, format!("region {} has no zone {} ({}) that can be used", self.deps.aws.region, pins.zone, pins.zone_id)).hint("nemo check").into());
        };
        let good = |zone: &&Zone| !NO_CONTROL_PLANE.contains(&zone.id.as_str());
        let wanted = if good(&pinned) { 1 } else { 2 };
        let others: Vec<Zone> = all.iter().filter(|zone| *zone != pinned).filter(good).take(wanted).cloned().collect();
        if others.len() < wanted {
            return Err(fail(Kind::Capacity, format!("EKS needs subnets in two zones and region {} has no other zone to offer", self.deps.aws.region)).into());
        }
        Ok([vec![pinned.clone()], others].concat())
    }

    async fn network_stack(&self, cx: &Cx) -> anyhow::Result<Stack> {
        let vpc = Block::of_vpc(&self.deps.spec.network.cidr)?;
        let zones = self.zones().await?.into_iter().zip(0u32..);
        let zones: Vec<_> =
            zones.map(|(zone, i)| ZoneShare { private_cidr: vpc.private(i).to_string(), public_cidr: vpc.public(i).to_string(), name: zone.name, id: zone.id }).collect();
        let values = cloudformation::Network { name: self.deps.spec.name.clone(), cidr: self.deps.spec.network.cidr.clone(), zones };
        let stack = self.stacks(cx).ensure(&self.wanted(cloudformation::network(&values)?, "network"), OnChange::Refuse).await?;
        cx.reached("subnets", share(&subnets(&stack)?)?);
        Ok(stack)
    }

    async fn roles_stack(&self, cx: &Cx) -> anyhow::Result<Stack> {
        let stack = self.stacks(cx).ensure(&self.wanted(cloudformation::roles()?, "roles"), OnChange::Refuse).await?;
        cx.reached("roles", share(&roles(&stack)?)?);
        Ok(stack)
    }

    async fn nat_stack(&self, cx: &Cx, network: &Stack) -> anyhow::Result<()> {
        let (subnet, table) = (output(network, "Public0")?, output(network, "PrivateTable")?);
        let values = cloudformation::Nat { name: self.deps.spec.name.clone(), subnet, table };
        self.stacks(cx).ensure(&self.wanted(cloudformation::nat(&values)?, "nat"), OnChange::Refuse).await.map(drop)
    }

    /// What a service still keeps in the VPC is taken away first, and once more when it blocked the deletion. What others made is theirs.
    async fn remove_network(&self, cx: &Cx, network: &Stack) -> anyhow::Result<()> {
        let Some(id) = network.outputs.get("VpcId").cloned().or_else(|| cx.facts_of::<NetworkFacts>(StepId::Network).ok().map(|facts| facts.vpc_id)).filter(|vpc| !vpc.is_empty())
        else {
            return self.stacks(cx).remove(&network.name).await;
        };
        let vpc = Vpc { cx, id: &id, service: eni::Network::new(&self.deps.aws), deployment: &self.deps.spec.name, stack: network };
        let held = vpc.unblock().await?;
        if !held.of_others.is_empty() {
            // The deletion could not end, and would take gateway and routes from under them.
            return Err(held.conflict(&id).into());
        }
        let Err(first) = self.stacks(cx).remove(&network.name).await else { return Ok(()) };
        if cx.stop.is_cancelled() {
            return Err(first);
        }
        let held = vpc.unblock().await?;
        cx.note(format!("stack {} could not be deleted: {first:#}; trying once more", network.name));
        self.stacks(cx).remove(&network.name).await.map_err(|error| if held.is_empty() { error } else { error.context(held.conflict(&id)) })
    }
}

#[async_trait]
impl Step for Network {
    fn id(&self) -> StepId {
        StepId::Network
    }

    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    fn inputs(&self) -> Digest {
        Digest::of(&(&self.deps.spec.network, &self.deps.pins.zone_id))
    }

    fn on_change(&self) -> OnChange {
        OnChange::Refuse
    }

    fn makes(&self) -> Vec<Resource> {
        let nat = self.deps.pins.prices.nat_gateway_hour;
        vec![
            Resource::new("CloudFormation stack (VPC, subnets, security groups)", self.name("network")),
            Resource::new("CloudFormation stack (roles)", self.name("roles")),
            Resource::new("CloudFormation stack (NAT gateway)", self.name("nat")).costing((nat > 0.0).then_some(nat)),
        ]
    }

    async fn observe(&self, _cx: &Cx) -> anyhow::Result<Seen> {
        let found = self.found().await?;
        if let Some(seen) = stack::seen(&found, &self.deps.spec.name) {
            return Ok(seen);
        }
        let [(_, Some(network)), (_, Some(roles_stack)), _] = &found else { return Ok(Seen::Absent) };
        let mut facts = share(&subnets(network)?)?;
        facts.extend(share(&roles(roles_stack)?)?);
        Ok(Seen::Ready { inputs: stack::inputs(&found, &self.inputs()), facts })
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        // Both go on to their end when one fails: a call that was sent is not cut off.
        let network = async {
            let network = self.network_stack(cx).await?;
            self.nat_stack(cx, &network).await?;
            anyhow::Ok(network)
        };
        let (network, roles_stack) = tokio::join!(network, self.roles_stack(cx));
        let mut facts = share(&subnets(&network?)?)?;
        facts.extend(share(&roles(&roles_stack?)?)?);
        Ok(facts)
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        let (roles, nat) = (self.name("roles"), self.name("nat"));
        let network = async {
            self.stacks(cx).remove(&nat).await?;
            match CloudFormation::new(&self.deps.aws).describe(&self.name("network")).await? {
                Some(stack) if super::mark::is_ours(&stack.tags, &self.deps.spec.name) => self.remove_network(cx, &stack).await,
                _ => Ok(()),
            }
        };
        let stacks = self.stacks(cx);
        let (network, roles) = tokio::join!(network, stacks.remove(&roles));
        network.and(roles)
    }

    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        let found = self.found().await?;
        let there = found.iter().zip(self.makes()).filter(|((_, stack), _)| stack.as_ref().is_some_and(|stack| super::mark::is_ours(&stack.tags, &self.deps.spec.name)));
        Ok(there.map(|(_, resource)| resource).collect())
    }
}

/// What one stack brings to the facts: nothing that it does not know, or it would wipe out what the other one brought.
fn share(facts: &NetworkFacts) -> anyhow::Result<toml::Table> {
    let mut table = table_of(facts)?;
    table.retain(|_, value| value.as_str().is_none_or(|text| !text.is_empty()) && value.as_array().is_none_or(|list| !list.is_empty()));
    Ok(table)
}

fn output(stack: &Stack, key: &str) -> anyhow::Result<String> {
    let found = stack.outputs.get(key).cloned();
    found.ok_or_else(|| fail(Kind::Remote, format!("stack {} has no output {key}, though it is {}", stack.name, stack.status)).into())
}

fn subnets(stack: &Stack) -> anyhow::Result<NetworkFacts> {
    let mut facts = NetworkFacts {
        vpc_id: output(stack, "VpcId")?,
        efa_security_group: output(stack, "EfaSecurityGroup")?,
        filesystem_security_group: output(stack, "FilesystemSecurityGroup")?,
        ..NetworkFacts::default()
    };
    for i in (0..MOST_ZONES).take_while(|i| stack.outputs.contains_key(&format!("Zone{i}"))) {
        let (zone, zone_id) = (output(stack, &format!("Zone{i}"))?, output(stack, &format!("ZoneId{i}"))?);
        facts.private_subnets.push(Subnet { id: output(stack, &format!("Private{i}"))?, zone: zone.clone(), zone_id: zone_id.clone() });
        facts.public_subnets.push(Subnet { id: output(stack, &format!("Public{i}"))?, zone, zone_id });
    }
    Ok(facts)
}

fn roles(stack: &Stack) -> anyhow::Result<NetworkFacts> {
    Ok(NetworkFacts {
        cluster_role_arn: output(stack, "ClusterRole")?,
        node_role_arn: output(stack, "NodeRole")?,
        csi_role_arn: output(stack, "CsiRole")?,
        ..NetworkFacts::default()
    })
}
