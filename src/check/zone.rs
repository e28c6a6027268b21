//! Where the type is offered: by zone id, which is the same place in every account. The zone chosen here is pinned.

use super::report::{Answered, Question};
use crate::aws::Aws;
use crate::aws::ec2::{Ec2, ZoneName};
use crate::config::{Pins, Spec};
use crate::error::{Kind, ServiceError};

/// `offering`: and the zone of the GPU nodes and the file system.
pub(super) async fn offering(aws: &Aws, spec: &Spec, pins: Option<&Pins>) -> (Answered, Option<ZoneName>) {
    let question = Question::new("offering");
    let ec2 = Ec2::new(aws);
    let (gpu, system) = (spec.instance.type_name.as_str(), spec.system_instance.type_name.as_str());
    let types = [gpu, system];
    let (offered, zones) = match tokio::join!(ec2.offerings(&types), ec2.zone_names()) {
        (Ok(offered), Ok(zones)) => (offered, zones),
        (Err(error), _) | (_, Err(error)) => return (question.failed(&error), None),
    };
    let with = |type_name: &str| -> Vec<&ZoneName> { zones.iter().filter(|zone| offered.iter().any(|(name, id)| name == type_name && *id == zone.id)).collect() };
    for type_name in types {
        if with(type_name).is_empty() {
            let elsewhere = ec2.regions_offering(aws, type_name).await;
            return (question.red(Kind::Capacity, format!("{} does not offer {type_name} in any zone", aws.region), other_regions(elsewhere, type_name)), None);
        }
    }
    let fit = with(gpu);
    let ids = fit.iter().map(|zone| zone.id.as_str()).collect::<Vec<_>>().join(", ");
    let pinned = pins.map(|pins| pins.zone_id.as_str()).filter(|id| !id.is_empty());
    let asked = Some(spec.gpu.zone.as_str()).filter(|id| !id.is_empty()).or(pinned);
    let chosen = match asked {
        Some(id) => fit.iter().find(|zone| zone.id == id),
        None => fit.first(),
    };
    if let Some(zone) = chosen {
        return (question.ok(format!("{gpu} in {ids} of {}; {} ({}) is used", aws.region, zone.id, zone.name)), Some((*zone).clone()));
    }
    let asked = asked.unwrap_or_default();
    let why = if zones.iter().any(|zone| zone.id == asked) { format!("{asked} does not offer {gpu}") } else { format!("{} has no zone {asked}", aws.region) };
    (question.red(Kind::Capacity, why, format!("--zone with one of {ids}, or no --zone to have one chosen")), None)
}

fn other_regions(elsewhere: Result<Vec<String>, ServiceError>, type_name: &str) -> String {
    match elsewhere {
        Ok(regions) if !regions.is_empty() => format!("{type_name} is offered in {}: --region", regions.join(", ")),
        Ok(_) => "no region that this account may use offers it: choose another --instance".into(),
        Err(_) => "choose another --region".into(),
    }
}
