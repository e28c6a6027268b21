//! EC2, read only: what a region offers, what a type is, what an account has.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::Region;
use aws_sdk_ec2::types::{Filter, LocationType, Tag};

use super::{Answer, Aws, TAG_DEPLOYMENT};
use crate::error::ServiceError;

const SERVICE: &str = "ec2";

/// An instance type as EC2 describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeFacts {
    pub type_name: String,
    pub architectures: Vec<String>,
    pub vcpus: u32,
    pub memory_mib: u64,
    pub gpus: u32,
    pub network_cards: u32,
    /// EFA interfaces that it can have.
    pub efa: u32,
    /// IPv4 addresses of one network interface.
    pub addresses_per_interface: u32,
}

/// A zone of the region.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneName {
    /// `use2-az1`
    pub id: String,
    /// `us-east-2a`
    pub name: String,
}

/// A running or starting instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub type_name: String,
    pub vcpus: u32,
    /// The deployment that it belongs to, by its tags.
    pub deployment: Option<String>,
}

/// EC2, as far as the check asks it.
#[derive(Debug, Clone)]
pub struct Ec2(Client);

impl Ec2 {
    /// Of this account and region.
    pub fn new(aws: &Aws) -> Self {
        Self(Client::new(&aws.config))
    }

    /// The same account in another region.
    fn elsewhere(aws: &Aws, region: String) -> Self {
        Self(Client::from_conf(aws_sdk_ec2::config::Builder::from(&aws.config).region(Region::new(region)).build()))
    }

    /// Pairs of type and zone id: where the types are offered in the region.
    pub async fn offerings(&self, types: &[&str]) -> Result<Vec<(String, String)>, ServiceError> {
        let filter = Filter::builder().name("instance-type").set_values(Some(types.iter().map(|name| (*name).to_owned()).collect())).build();
        let call = self.0.describe_instance_type_offerings().location_type(LocationType::AvailabilityZoneId).filters(filter);
        let answer = call.send().await.answer(SERVICE, "DescribeInstanceTypeOfferings")?;
        let mut pairs: Vec<_> = answer.instance_type_offerings().iter().filter_map(|row| Some((row.instance_type()?.as_str().to_owned(), row.location()?.to_owned()))).collect();
        pairs.sort();
        Ok(pairs)
    }

    /// Other regions that the account may use and that offer the type. Regions that do not answer are left out.
    pub async fn regions_offering(&self, aws: &Aws, type_name: &str) -> Result<Vec<String>, ServiceError> {
        let regions = self.0.describe_regions().send().await.answer(SERVICE, "DescribeRegions")?;
        let names: Vec<_> = regions.regions().iter().filter_map(|region| region.region_name()).filter(|name| *name != aws.region).map(str::to_owned).collect();
        let asked = names.into_iter().map(async |name| {
            let offered = Self::elsewhere(aws, name.clone()).offerings(&[type_name]).await.is_ok_and(|pairs| !pairs.is_empty());
            offered.then_some(name)
        });
        let mut found: Vec<_> = futures::future::join_all(asked).await.into_iter().flatten().collect();
        found.sort();
        Ok(found)
    }

    /// The region's zones with id and name; no local or wavelength zones.
    pub async fn zone_names(&self) -> Result<Vec<ZoneName>, ServiceError> {
        let call = self.0.describe_availability_zones().filters(filter("zone-type", "availability-zone"));
        let answer = call.send().await.answer(SERVICE, "DescribeAvailabilityZones")?;
        let mut zones: Vec<_> =
            answer.availability_zones().iter().filter_map(|zone| Some(ZoneName { id: zone.zone_id()?.to_owned(), name: zone.zone_name()?.to_owned() })).collect();
        zones.sort();
        Ok(zones)
    }

    /// What the types are; a type that the region does not know is `None` for all of them.
    pub async fn describe_types(&self, types: &[&str]) -> Result<Option<Vec<TypeFacts>>, ServiceError> {
        let call = self.0.describe_instance_types().set_instance_types(Some(types.iter().map(|name| (*name).into()).collect()));
        let answer = call.send().await.or_none(SERVICE, "DescribeInstanceTypes", &["InvalidInstanceType"])?;
        Ok(answer.map(|answer| answer.instance_types().iter().map(facts).collect()))
    }

    /// Instances that run or start, with the vCPUs that count against a quota.
    pub async fn running(&self) -> Result<Vec<Running>, ServiceError> {
        let states = Filter::builder().name("instance-state-name").values("running").values("pending").build();
        let mut pages = self.0.describe_instances().filters(states).into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.answer(SERVICE, "DescribeInstances")?;
            for instance in page.reservations().iter().flat_map(|reservation| reservation.instances()) {
                let cpu = instance.cpu_options();
                let vcpus = cpu.and_then(|cpu| Some(cpu.core_count()? * cpu.threads_per_core()?)).unwrap_or_default();
                let type_name = instance.instance_type().map(|kind| kind.as_str().to_owned()).unwrap_or_default();
                // A node group without a launch template marks its instances by the cluster's name, which is the deployment's.
                let deployment = tag(instance.tags(), TAG_DEPLOYMENT).or_else(|| tag(instance.tags(), "eks:cluster-name"));
                found.push(Running { type_name, vcpus: whole(vcpus), deployment });
            }
        }
        Ok(found)
    }

    /// The instance type that a version of a launch template says; `None`: there is no such version, or it says none.
    pub async fn template_type(&self, id: &str, version: &str) -> Result<Option<String>, ServiceError> {
        let call = self.0.describe_launch_template_versions().launch_template_id(id).versions(version);
        let answer = call.send().await.or_none(SERVICE, "DescribeLaunchTemplateVersions", &["InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateId.VersionNotFound"])?;
        let version = answer.and_then(|answer| answer.launch_template_versions).unwrap_or_default().into_iter().next();
        Ok(version.and_then(|version| version.launch_template_data?.instance_type).map(|kind| kind.as_str().to_owned()))
    }

    /// How many VPCs there are that do not belong to the deployment.
    pub async fn other_vpcs(&self, deployment: &str) -> Result<usize, ServiceError> {
        let mut pages = self.0.describe_vpcs().into_paginator().send();
        let mut others = 0;
        while let Some(page) = pages.next().await {
            let page = page.answer(SERVICE, "DescribeVpcs")?;
            others += page.vpcs().iter().filter(|vpc| tag(vpc.tags(), TAG_DEPLOYMENT).as_deref() != Some(deployment)).count();
        }
        Ok(others)
    }

    /// How many elastic addresses there are that do not belong to the deployment.
    pub async fn other_addresses(&self, deployment: &str) -> Result<usize, ServiceError> {
        let answer = self.0.describe_addresses().send().await.answer(SERVICE, "DescribeAddresses")?;
        Ok(answer.addresses().iter().filter(|address| tag(address.tags(), TAG_DEPLOYMENT).as_deref() != Some(deployment)).count())
    }
}

fn facts(row: &aws_sdk_ec2::types::InstanceTypeInfo) -> TypeFacts {
    let network = row.network_info();
    let count = |number: Option<i32>| whole(number.unwrap_or_default());
    TypeFacts {
        type_name: row.instance_type().map(|name| name.as_str().to_owned()).unwrap_or_default(),
        architectures: row.processor_info().map(|cpu| cpu.supported_architectures().iter().map(|name| name.as_str().to_owned()).collect()).unwrap_or_default(),
        vcpus: count(row.v_cpu_info().and_then(|cpu| cpu.default_v_cpus())),
        memory_mib: row.memory_info().and_then(|memory| memory.size_in_mib()).and_then(|size| u64::try_from(size).ok()).unwrap_or_default(),
        gpus: row.gpu_info().map(|gpus| gpus.gpus().iter().map(|gpu| count(gpu.count())).sum()).unwrap_or_default(),
        network_cards: count(network.and_then(|network| network.maximum_network_cards())),
        efa: count(network.and_then(|network| network.efa_info()).and_then(|efa| efa.maximum_efa_interfaces())),
        addresses_per_interface: count(network.and_then(|network| network.ipv4_addresses_per_interface())),
    }
}

fn filter(name: &str, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}

fn tag(tags: &[Tag], key: &str) -> Option<String> {
    tags.iter().find(|tag| tag.key() == Some(key)).and_then(|tag| tag.value()).map(str::to_owned)
}

fn whole(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}
