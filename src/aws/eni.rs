//! The network side of EC2: zones, the interfaces that a type takes, and what keeps a VPC from being deleted.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{Filter, InstanceStateName, NatGatewayState, NetworkInterfaceStatus, Tag};

use super::{Answer, Aws};
use crate::error::ServiceError;

const SERVICE: &str = "ec2";

/// A network interface in a VPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub id: String,
    /// Nothing holds it: it can be deleted.
    pub available: bool,
    /// What it says of itself: `ELB net/…`, `Amazon EKS nemo`.
    pub description: String,
    /// Who made it, where that is a service.
    pub requester: String,
    /// A service made it and manages it.
    pub managed: bool,
    pub tags: BTreeMap<String, String>,
}

/// A security group in a VPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: String,
    pub name: String,
    pub tags: BTreeMap<String, String>,
}

/// An availability zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// `us-east-2a`; which place that is differs from account to account.
    pub name: String,
    /// `use2-az1`; the same place for everybody.
    pub id: String,
}

/// What DescribeInstanceTypes says about the network of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardsOf {
    /// How many interfaces each network card takes, by the card's index.
    pub cards: Vec<u32>,
    /// EFA interfaces of the whole instance; 0: none.
    pub efa: u32,
}

/// The network side of EC2, as far as it is used here.
#[derive(Debug, Clone)]
pub struct Network(Client);

impl Network {
    /// Of this account and region.
    pub fn new(aws: &Aws) -> Self {
        Self(Client::new(&aws.config))
    }

    /// The region's zones that can be used, by name; no local zones.
    pub async fn zones(&self) -> Result<Vec<Zone>, ServiceError> {
        let call = self.0.describe_availability_zones().filters(filter("zone-type", "availability-zone")).filters(filter("state", "available"));
        let zones = call.send().await.answer(SERVICE, "DescribeAvailabilityZones")?.availability_zones.unwrap_or_default();
        let mut zones: Vec<_> = zones.into_iter().map(|zone| Zone { name: zone.zone_name.unwrap_or_default(), id: zone.zone_id.unwrap_or_default() }).collect();
        zones.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(zones)
    }

    /// The network cards of a type; `None`: the region does not know it.
    pub async fn cards(&self, instance_type: &str) -> Result<Option<CardsOf>, ServiceError> {
        let call = self.0.describe_instance_types().instance_types(instance_type.into());
        let answer = call.send().await.or_none(SERVICE, "DescribeInstanceTypes", &["InvalidInstanceType"])?;
        let network = answer.and_then(|answer| answer.instance_types).unwrap_or_default().into_iter().next().and_then(|row| row.network_info);
        Ok(network.map(|network| {
            let mut cards = network.network_cards.unwrap_or_default();
            cards.sort_by_key(|card| card.network_card_index);
            CardsOf { cards: cards.iter().map(|card| count(card.maximum_network_interfaces)).collect(), efa: count(network.efa_info.and_then(|efa| efa.maximum_efa_interfaces)) }
        }))
    }

    /// Those of these NAT gateways and instances that have ended, though they are still listed. One that EC2 no longer lists has ended too.
    pub async fn ended(&self, gateways: Vec<String>, instances: Vec<String>) -> Result<BTreeSet<String>, ServiceError> {
        let mut ended: BTreeSet<String> = gateways.iter().chain(&instances).cloned().collect();
        if !gateways.is_empty() {
            let call = self.0.describe_nat_gateways().filter(Filter::builder().name("nat-gateway-id").set_values(Some(gateways)).build());
            for gateway in call.send().await.answer(SERVICE, "DescribeNatGateways")?.nat_gateways.unwrap_or_default() {
                if !matches!(gateway.state, Some(NatGatewayState::Deleted | NatGatewayState::Failed)) {
                    ended.remove(gateway.nat_gateway_id().unwrap_or_default());
                }
            }
        }
        if !instances.is_empty() {
            let call = self.0.describe_instances().filters(Filter::builder().name("instance-id").set_values(Some(instances)).build());
            for instance in call.send().await.answer(SERVICE, "DescribeInstances")?.reservations.unwrap_or_default().into_iter().flat_map(|r| r.instances.unwrap_or_default()) {
                if instance.state.as_ref().and_then(|state| state.name()) != Some(&InstanceStateName::Terminated) {
                    ended.remove(instance.instance_id().unwrap_or_default());
                }
            }
        }
        Ok(ended)
    }

    /// All interfaces in the VPC.
    pub async fn interfaces(&self, vpc: &str) -> Result<Vec<Interface>, ServiceError> {
        let mut pages = self.0.describe_network_interfaces().filters(filter("vpc-id", vpc)).into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let interfaces = page.answer(SERVICE, "DescribeNetworkInterfaces")?.network_interfaces.unwrap_or_default();
            found.extend(interfaces.into_iter().map(|interface| Interface {
                available: interface.status == Some(NetworkInterfaceStatus::Available),
                id: interface.network_interface_id.unwrap_or_default(),
                description: interface.description.unwrap_or_default(),
                requester: interface.requester_id.unwrap_or_default(),
                managed: interface.requester_managed.unwrap_or_default(),
                tags: tags(interface.tag_set),
            }));
        }
        Ok(found)
    }

    /// Deletes an interface that nothing holds. `false`: it is held again, or only the service that made it may delete it.
    pub async fn delete_interface(&self, id: &str) -> Result<bool, ServiceError> {
        match self.0.delete_network_interface().network_interface_id(id).send().await.answer(SERVICE, "DeleteNetworkInterface") {
            Err(error) if error.is(&["InvalidNetworkInterfaceID.NotFound"]) => Ok(true),
            Err(error) if error.is(&["InvalidNetworkInterface.InUse", "InvalidParameterValue", "OperationNotPermitted"]) => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    /// All security groups in the VPC but the default one, which goes with it.
    pub async fn groups(&self, vpc: &str) -> Result<Vec<Group>, ServiceError> {
        let mut pages = self.0.describe_security_groups().filters(filter("vpc-id", vpc)).into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let groups = page.answer(SERVICE, "DescribeSecurityGroups")?.security_groups.unwrap_or_default();
            let group =
                |group: aws_sdk_ec2::types::SecurityGroup| Group { id: group.group_id.unwrap_or_default(), name: group.group_name.unwrap_or_default(), tags: tags(group.tags) };
            found.extend(groups.into_iter().map(group).filter(|group| group.name != "default"));
        }
        Ok(found)
    }

    /// Deletes a security group. `false`: something still uses it.
    pub async fn delete_group(&self, id: &str) -> Result<bool, ServiceError> {
        match self.0.delete_security_group().group_id(id).send().await.answer(SERVICE, "DeleteSecurityGroup") {
            Err(error) if error.is(&["InvalidGroup.NotFound"]) => Ok(true),
            Err(error) if error.is(&["DependencyViolation"]) => Ok(false),
            answer => answer.map(|_| true),
        }
    }
}

fn count(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

fn tags(tags: Option<Vec<Tag>>) -> BTreeMap<String, String> {
    tags.into_iter().flatten().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect()
}

fn filter(name: &str, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}
