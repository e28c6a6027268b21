//! What is in our VPC beside what the stack made: what services left behind goes, what others made is named and stays.

use std::collections::BTreeMap;

use super::mark;
use crate::aws::cloudformation::Stack;
use crate::aws::eni::{self, Group, Interface};
use crate::engine::step::Cx;
use crate::error::{Advice, Kind, fail};

/// How interfaces begin that services make and may leave behind (VPC CNI: `aws-K8S-i-…`, `aws-k8s-branch-eni`), in lowercase.
const LEFT_BEHIND: &[&str] = &["aws-k8s-", "amazon eks ", "elb ", "aws lambda vpc eni"];

/// The VPC of a stack.
pub(super) struct Vpc<'a> {
    pub cx: &'a Cx,
    pub id: &'a str,
    pub service: eni::Network,
    pub deployment: &'a str,
    pub stack: &'a Stack,
}

/// What keeps a VPC from being deleted.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// What services hold: it may go by itself.
    by_services: Vec<String>,
    /// What somebody made: it goes when they take it away.
    pub of_others: Vec<String>,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.by_services.is_empty() && self.of_others.is_empty()
    }

    /// All of it, as the failure that it is.
    pub fn conflict(&self, vpc: &str) -> Advice {
        let all: Vec<&str> = self.of_others.iter().chain(&self.by_services).map(String::as_str).collect();
        fail(Kind::Conflict, format!("VPC {vpc} cannot be deleted: {}", all.join("; "))).hint("remove what holds it (a Service of type LoadBalancer?), then run nemo cleanup again")
    }
}

impl Vpc<'_> {
    /// Takes away what services left behind and nobody holds; says who holds the rest.
    pub async fn unblock(&self) -> anyhow::Result<Held> {
        let mut held = Held::default();
        for interface in self.service.interfaces(self.id).await? {
            let title = format!("network interface {} ({:?}{})", interface.id, interface.description, said(&interface.tags));
            if !interface.available {
                held.by_services.push(format!("{title} is held by {}", owner(&interface)));
            } else if !left_behind(&interface) {
                held.of_others.push(format!("{title} is not ours"));
            } else if self.service.delete_interface(&interface.id).await? {
                self.cx.note(format!("{title} was left behind: deleted"));
            } else {
                held.by_services.push(format!("{title} is held by {}", owner(&interface)));
            }
        }
        for group in self.service.groups(self.id).await?.into_iter().filter(|group| !self.made(group)) {
            let title = format!("security group {} ({}{})", group.id, group.name, said(&group.tags));
            if group.tags.get(&format!("kubernetes.io/cluster/{}", self.deployment)).is_none_or(|value| value != "owned") {
                held.of_others.push(format!("{title} is not ours"));
            } else if self.service.delete_group(&group.id).await? {
                self.cx.note(format!("{title} was left behind by the cluster: deleted"));
            } else {
                held.by_services.push(format!("{title} is still used"));
            }
        }
        Ok(held)
    }

    /// Is it the stack's own?
    fn made(&self, group: &Group) -> bool {
        let named = group.tags.get("aws:cloudformation:stack-name").is_some_and(|name| *name == self.stack.name);
        named || mark::is_ours(&group.tags, self.deployment) || self.stack.outputs.values().any(|output| *output == group.id)
    }
}

/// Did a service make it? A person's interface says nothing that a service would say.
fn left_behind(interface: &Interface) -> bool {
    let description = interface.description.to_lowercase();
    interface.managed || LEFT_BEHIND.iter().any(|mark| description.starts_with(mark))
}

/// Who holds an interface, as far as it says so.
fn owner(interface: &Interface) -> String {
    let known = [("ELB ", "a load balancer"), ("Amazon EKS", "the EKS control plane"), ("NAT Gateway", "a NAT gateway"), ("FSx", "an FSx file system")];
    let known = known.iter().find(|(mark, _)| interface.description.contains(mark)).map(|(_, owner)| (*owner).to_owned());
    known.unwrap_or_else(|| if interface.requester.is_empty() { "somebody".into() } else { interface.requester.clone() })
}

/// `, owner=bob`
fn said(tags: &BTreeMap<String, String>) -> String {
    tags.iter().map(|(key, value)| format!(", {key}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_service_made_was_left_behind() {
        let interface = |description: &str, managed: bool, tags: &[(&str, &str)]| Interface {
            id: "eni-1".into(),
            available: true,
            description: description.into(),
            requester: String::new(),
            managed,
            tags: tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        for (description, managed, tags, left) in [
            ("aws-K8S-i-0123", false, &[("node.k8s.amazonaws.com/instance_id", "i-0123")][..], true),
            ("aws-k8s-branch-eni", false, &[], true),
            ("Amazon EKS nemo", false, &[], true),
            ("ELB net/a/b", false, &[], true),
            ("AWS Lambda VPC ENI-x", false, &[], true),
            ("Interface for a service", true, &[], true),
            ("", false, &[("owner", "bob")], false),
            ("bob's ELB test", false, &[("owner", "bob")], false),
            ("", false, &[], false),
        ] {
            assert_eq!(left_behind(&interface(description, managed, tags)), left, "{description:?} {tags:?}");
        }
    }
}
