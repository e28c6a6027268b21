//! Quota in nodes, and the instance types as EC2 describes them.

use super::report::{Answered, Question};
use crate::aws::ec2::{Running, TypeFacts};
use crate::aws::quotas;
use crate::config::{Figure, Instance, Spec};
use crate::error::{Kind, ServiceError};

/// First letters of the types that count against an on-demand quota (EC2 user guide, on-demand instance limits).
const FAMILIES: &[(&str, &[&str])] = &[("L-417A185B", &["p"]), ("L-DB2E81BA", &["g", "vt"]), ("L-1216C47A", &["a", "c", "d", "h", "i", "m", "r", "t", "z"])];

/// What EC2 and Service Quotas answered, or did not.
pub(super) struct Seen<'a> {
    pub(super) region: &'a str,
    pub(super) running: &'a Result<Vec<Running>, ServiceError>,
    pub(super) described: &'a Result<Option<Vec<TypeFacts>>, ServiceError>,
}

/// `quota-gpu`, `quota-system`: how many nodes the quota is enough for, beside what runs already.
pub(super) fn quota(id: &str, instance: &Instance, nodes: u32, value: Result<Option<f64>, ServiceError>, deployment: &str, seen: &Seen<'_>) -> Answered {
    let question = Question::new(id);
    let (code, name) = (&instance.quota.code, &instance.quota.name);
    let value = match value {
        Ok(Some(value)) => value,
        Ok(None) => return question.warn(format!("not known: {} has no quota {code} ({name})", seen.region), "look it up in Service Quotas: the catalogue's code is unverified"),
        Err(error) => return question.unknown(&error),
    };
    let families = FAMILIES.iter().find(|(known, _)| known == code).map_or(&[][..], |(_, families)| families);
    // What runs for this deployment is part of what is asked for.
    let others = seen.running.iter().flatten().filter(|other| other.deployment.as_deref() != Some(deployment) && counts(families, &other.type_name));
    let used: u32 = others.map(|other| other.vcpus).sum();
    let each = instance.vcpus.value.max(1);
    let enough_for = ((value - f64::from(used)).max(0.0) / f64::from(each)).floor();
    let beside = if used > 0 { format!(", of which {used} are used by others,") } else { String::new() };
    let answer = format!("{nodes} {} needed; {name}: {value} vCPU{beside} is enough for {enough_for}", instance.type_name);
    if enough_for >= f64::from(nodes) {
        return question.ok(answer);
    }
    question.red(Kind::Capacity, answer, quotas::increase_command("ec2", code, u64::from(used) + u64::from(nodes) * u64::from(each), seen.region))
}

/// Does a type count against a quota of these families? `inf2`, `trn1` and the like have quotas of their own.
fn counts(families: &[&str], type_name: &str) -> bool {
    const OTHERS: [&str; 6] = ["inf", "trn", "dl", "mac", "hpc", "vt"];
    let letters: String = type_name.chars().take_while(char::is_ascii_lowercase).collect();
    let family = if OTHERS.contains(&letters.as_str()) { letters.as_str() } else { letters.get(..1).unwrap_or_default() };
    families.contains(&family)
}

/// `instance-type`: the catalogue is a prediction; this is the check.
pub(super) fn instance_types(spec: &Spec, seen: &Seen<'_>) -> Answered {
    let question = Question::new("instance-type");
    let facts = match seen.described {
        Ok(Some(facts)) => facts,
        Ok(None) => {
            let answer = format!("{} does not know {} or {}", seen.region, spec.instance.type_name, spec.system_instance.type_name);
            return question.red(Kind::Capacity, answer, "choose a region that has them: --region");
        }
        Err(error) => return question.failed(error),
    };
    let mut differ = Vec::new();
    for instance in [&spec.instance, &spec.system_instance] {
        match facts.iter().find(|facts| facts.type_name == instance.type_name) {
            Some(facts) => differ.extend(differences(instance, facts)),
            None => differ.push(format!("EC2 describes no {}", instance.type_name)),
        }
    }
    if differ.is_empty() {
        let (gpus, efa) = (value(&spec.instance.gpus).unwrap_or(0), value(&spec.instance.efa).unwrap_or(0));
        return question.ok(format!("{} has {gpus} GPUs and {efa} EFA adapters, as the catalogue says", spec.instance.type_name));
    }
    question.red(Kind::Config, format!("EC2 and the catalogue disagree: {}", differ.join("; ")), "correct configs/instances/: manifests and launch templates are made from it")
}

fn value(figure: &Option<Figure<u32>>) -> Option<u32> {
    figure.as_ref().map(|figure| figure.value)
}

fn differences(instance: &Instance, facts: &TypeFacts) -> Vec<String> {
    let counts = [
        ("vCPUs", Some(instance.vcpus.value), facts.vcpus),
        ("GPUs", Some(value(&instance.gpus).unwrap_or(0)), facts.gpus),
        ("EFA adapters", value(&instance.efa), facts.efa),
        ("network cards", value(&instance.network_cards), facts.network_cards),
        ("GiB of memory", Some(instance.memory_gib.value), u32::try_from(facts.memory_mib / 1024).unwrap_or(u32::MAX)),
    ];
    let different = |(what, here, there): (&str, Option<u32>, u32)| {
        here.filter(|here| *here != there).map(|here| format!("{} has {there} {what}, and the catalogue says {here}", instance.type_name))
    };
    let mut differ: Vec<_> = counts.into_iter().filter_map(different).collect();
    if !facts.architectures.contains(&instance.architecture) {
        differ.push(format!("{} is {}, and the catalogue says {}", instance.type_name, facts.architectures.join(" or "), instance.architecture));
    }
    differ
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_types_count_against_which_quota() {
        let of = |code: &str| FAMILIES.iter().find(|(known, _)| *known == code).map(|(_, families)| *families).unwrap();
        for (code, type_name, is) in [
            ("L-417A185B", "p5en.48xlarge", true),
            ("L-417A185B", "m7i.2xlarge", false),
            ("L-DB2E81BA", "g6e.12xlarge", true),
            ("L-DB2E81BA", "vt1.3xlarge", true),
            ("L-1216C47A", "m7i.2xlarge", true),
            ("L-1216C47A", "inf2.xlarge", false),
            ("L-1216C47A", "trn1.32xlarge", false),
        ] {
            assert_eq!(counts(of(code), type_name), is, "{code} {type_name}");
        }
    }
}
