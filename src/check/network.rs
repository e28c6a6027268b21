//! Room for one more network: VPCs, elastic addresses, and the addresses that the nodes take in their subnet.

use super::capacity::Seen;
use super::report::{Answered, Question};
use crate::aws::ec2::Ec2;
use crate::aws::{Aws, quotas};
use crate::config::Spec;
use crate::error::{Kind, ServiceError};

/// Service, code and name. Unverified codes do no harm: one that the region does not know is a warning.
const VPCS: (&str, &str, &str) = ("vpc", "L-F678F1CE", "VPCs per Region");
const ADDRESSES: (&str, &str, &str) = ("ec2", "L-0263D0A3", "EC2-VPC Elastic IPs");

/// AWS keeps five addresses of every subnet (VPC guide, subnet sizing).
const KEPT: u32 = 5;
/// The VPC CNI fills one interface with pod addresses and keeps a second one warm (its default WARM_ENI_TARGET = 1).
const INTERFACES_WITH_ADDRESSES: u32 = 2;
/// Control plane, NAT, file system and the like.
const FOR_SERVICES: u32 = 32;

/// `vpcs`, `elastic-addresses`: does one more fit?
pub(super) async fn room(aws: &Aws, spec: &Spec) -> [Answered; 2] {
    let ec2 = Ec2::new(aws);
    let (vpcs, addresses, vpc_quota, address_quota) =
        tokio::join!(ec2.other_vpcs(&spec.name), ec2.other_addresses(&spec.name), quotas::quota(aws, VPCS.0, VPCS.1), quotas::quota(aws, ADDRESSES.0, ADDRESSES.1),);
    [one_more("vpcs", VPCS, vpcs, vpc_quota, &aws.region), one_more("elastic-addresses", ADDRESSES, addresses, address_quota, &aws.region)]
}

fn one_more(id: &str, quota: (&str, &str, &str), used: Result<usize, ServiceError>, value: Result<Option<f64>, ServiceError>, region: &str) -> Answered {
    let question = Question::new(id);
    let (service, code, name) = quota;
    match (used, value) {
        (Err(error), _) | (_, Err(error)) => question.unknown(&error),
        (Ok(used), Ok(None)) => question.warn(format!("{used} in use; {region} has no quota {code} ({name})"), "look it up in Service Quotas"),
        (Ok(used), Ok(Some(value))) => {
            let answer = format!("1 needed; {name}: {value}, {used} used by others");
            if used as f64 + 1.0 <= value {
                question.ok(answer)
            } else {
                question.red(Kind::Capacity, answer, format!("{}, or remove one that is not needed", quotas::increase_command(service, code, used as u64 + 1, region)))
            }
        }
    }
}

/// `addresses`: all nodes may stand in one private subnet, which is a quarter of the VPC. EFA-only interfaces take none.
pub(super) fn addresses(spec: &Spec, seen: &Seen<'_>) -> Answered {
    let question = Question::new("addresses");
    let Ok(Some(facts)) = seen.described else { return question.skipped("needs the answer to instance-type") };
    let taken = |type_name: &str, nodes: u32| {
        let each = facts.iter().find(|facts| facts.type_name == type_name).map_or(0, |facts| facts.addresses_per_interface);
        nodes * each * INTERFACES_WITH_ADDRESSES
    };
    let needed = taken(&spec.instance.type_name, spec.gpu.nodes) + taken(&spec.system_instance.type_name, spec.system.nodes) + FOR_SERVICES;
    let prefix: u32 = spec.network.cidr.split_once('/').and_then(|(_, prefix)| prefix.parse().ok()).unwrap_or(32);
    let free = (1u32 << 30u32.saturating_sub(prefix)).saturating_sub(KEPT);
    let answer = format!("up to {needed} needed in one subnet; a quarter of {} has {free} free", spec.network.cidr);
    if needed <= free { question.ok(answer) } else { question.red(Kind::Config, answer, "a larger network.cidr (up to /16), or fewer nodes") }
}
