//! EKS: clusters, managed node groups, add-ons; what is wrong with them in the service's own words.

use std::collections::BTreeMap;

use aws_sdk_eks::Client;
use aws_sdk_eks::types::{
    AddonPodIdentityAssociations, AmiTypes, AuthenticationMode, CapacityTypes, CreateAccessConfigRequest, LaunchTemplateSpecification, NodegroupScalingConfig, ResolveConflicts,
    Taint, TaintEffect, VpcConfigRequest,
};

use super::{Answer, Aws};
use crate::error::ServiceError;

const SERVICE: &str = "eks";
const NOT_THERE: &[&str] = &["ResourceNotFoundException"];
const THERE_ALREADY: &[&str] = &["ResourceInUseException"];

/// What the service finds wrong with one of its resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// `AsgInstanceLaunchFailures`, `InsufficientNumberOfReplicas` …
    pub code: String,
    pub message: String,
}

impl std::fmt::Display for Issue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// A control plane.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub name: String,
    pub arn: String,
    /// `CREATING`, `ACTIVE`, `DELETING`, `FAILED`, `UPDATING`, `PENDING`.
    pub status: String,
    pub version: String,
    /// Empty while it is being made, as is the certificate authority.
    pub endpoint: String,
    /// PEM in base64.
    pub certificate_authority: String,
    /// The security group that EKS made for it.
    pub security_group: String,
    pub tags: BTreeMap<String, String>,
    pub issues: Vec<Issue>,
}

/// What a control plane is made from.
#[derive(Debug, Clone)]
pub struct NewCluster {
    pub name: String,
    pub version: String,
    pub role_arn: String,
    pub subnets: Vec<String>,
    pub tags: BTreeMap<String, String>,
    pub token: String,
}

/// A managed node group.
#[derive(Debug, Clone, PartialEq)]
pub struct Nodegroup {
    pub name: String,
    pub arn: String,
    /// `CREATING`, `ACTIVE`, `UPDATING`, `DELETING`, `CREATE_FAILED`, `DELETE_FAILED`, `DEGRADED`.
    pub status: String,
    pub desired: u32,
    /// As the group itself was told; `None` where its launch template says it.
    pub instance_type: Option<String>,
    pub disk_gib: Option<u32>,
    pub ami_type: String,
    pub subnets: Vec<String>,
    /// Id and version.
    pub launch_template: Option<(String, String)>,
    pub tags: BTreeMap<String, String>,
    pub issues: Vec<Issue>,
}

/// Type and disk of a node group's instances, or the launch template that says both.
#[derive(Debug, Clone)]
pub enum Machines {
    Plain { instance_type: String, disk_gib: u32 },
    LaunchTemplate { id: String, version: String },
}

/// What a managed node group is made from.
#[derive(Debug, Clone)]
pub struct NewNodegroup {
    pub cluster: String,
    pub name: String,
    pub role_arn: String,
    pub subnets: Vec<String>,
    pub nodes: u32,
    /// EKS's word: `AL2023_x86_64_NVIDIA`.
    pub ami_type: String,
    pub machines: Machines,
    pub labels: BTreeMap<String, String>,
    /// Key and value of taints with effect NoSchedule.
    pub taints: Vec<(String, String)>,
    pub tags: BTreeMap<String, String>,
    pub token: String,
}

/// An add-on.
#[derive(Debug, Clone, PartialEq)]
pub struct Addon {
    pub name: String,
    pub arn: String,
    /// `CREATING`, `ACTIVE`, `DEGRADED`, `CREATE_FAILED`, `UPDATING`, `UPDATE_FAILED`, `DELETING`, `DELETE_FAILED`.
    pub status: String,
    pub version: String,
    pub tags: BTreeMap<String, String>,
    pub issues: Vec<Issue>,
}

/// What an add-on is made from.
#[derive(Debug, Clone)]
pub struct NewAddon {
    pub cluster: String,
    pub name: String,
    pub version: String,
    /// Service account and role that its pods get by pod identity.
    pub identities: Vec<(String, String)>,
    /// JSON, as the add-on's schema wants it.
    pub configuration: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub token: String,
}

/// A change that EKS is making to a node group.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    pub id: String,
    /// `InProgress`, `Successful`, `Failed`, `Cancelled`.
    pub status: String,
    pub issues: Vec<Issue>,
}

/// The service, as far as it is used here.
#[derive(Debug, Clone)]
pub struct Eks(Client);

impl Eks {
    /// Of this account and region.
    pub fn new(aws: &Aws) -> Self {
        Self(Client::new(&aws.config))
    }

    /// The cluster of that name.
    pub async fn cluster(&self, name: &str) -> Result<Option<Cluster>, ServiceError> {
        let answer = self.0.describe_cluster().name(name).send().await.or_none(SERVICE, "DescribeCluster", NOT_THERE)?;
        Ok(answer.and_then(|answer| answer.cluster).map(cluster))
    }

    /// Begins to make it; whoever makes it is its first administrator. `false`: one of that name is there already.
    pub async fn create_cluster(&self, new: &NewCluster) -> Result<bool, ServiceError> {
        let access = CreateAccessConfigRequest::builder().authentication_mode(AuthenticationMode::Api).bootstrap_cluster_creator_admin_permissions(true);
        let network = VpcConfigRequest::builder().set_subnet_ids(Some(new.subnets.clone())).endpoint_public_access(true).endpoint_private_access(true);
        let call = self.0.create_cluster().name(&new.name).version(&new.version).role_arn(&new.role_arn).resources_vpc_config(network.build()).access_config(access.build());
        // The add-ons are EKS's managed ones, at pinned versions; the self-managed copies would only be in their way.
        let call = call.bootstrap_self_managed_addons(false).set_tags(Some(new.tags.clone().into_iter().collect())).client_request_token(&new.token);
        Ok(call.send().await.or_none(SERVICE, "CreateCluster", THERE_ALREADY)?.is_some())
    }

    /// Begins to delete it. `false`: there is none.
    pub async fn delete_cluster(&self, name: &str) -> Result<bool, ServiceError> {
        Ok(self.0.delete_cluster().name(name).send().await.or_none(SERVICE, "DeleteCluster", NOT_THERE)?.is_some())
    }

    /// The node group of that name; `None` also where there is no cluster.
    pub async fn nodegroup(&self, cluster: &str, name: &str) -> Result<Option<Nodegroup>, ServiceError> {
        let answer = self.0.describe_nodegroup().cluster_name(cluster).nodegroup_name(name).send().await.or_none(SERVICE, "DescribeNodegroup", NOT_THERE)?;
        Ok(answer.and_then(|answer| answer.nodegroup).map(nodegroup))
    }

    /// Begins to make it. `false`: one of that name is there already.
    pub async fn create_nodegroup(&self, new: &NewNodegroup) -> Result<bool, ServiceError> {
        let call = self.0.create_nodegroup().cluster_name(&new.cluster).nodegroup_name(&new.name).node_role(&new.role_arn).set_subnets(Some(new.subnets.clone()));
        let call = call.scaling_config(scaling(new.nodes)).ami_type(AmiTypes::from(new.ami_type.as_str())).capacity_type(CapacityTypes::OnDemand);
        let call = call.set_labels(Some(new.labels.clone().into_iter().collect())).set_tags(Some(new.tags.clone().into_iter().collect()));
        let taint = |(key, value): &(String, String)| Taint::builder().key(key).value(value).effect(TaintEffect::NoSchedule).build();
        let call = call.set_taints(Some(new.taints.iter().map(taint).collect())).client_request_token(&new.token);
        let call = match &new.machines {
            Machines::Plain { instance_type, disk_gib } => call.instance_types(instance_type).disk_size(number(*disk_gib)),
            Machines::LaunchTemplate { id, version } => call.launch_template(LaunchTemplateSpecification::builder().id(id).version(version).build()),
        };
        Ok(call.send().await.or_none(SERVICE, "CreateNodegroup", THERE_ALREADY)?.is_some())
    }

    /// Begins to make it that large. Gives the update's id.
    pub async fn scale_nodegroup(&self, cluster: &str, name: &str, nodes: u32) -> Result<String, ServiceError> {
        let call = self.0.update_nodegroup_config().cluster_name(cluster).nodegroup_name(name).scaling_config(scaling(nodes));
        let answer = call.send().await.answer(SERVICE, "UpdateNodegroupConfig")?;
        Ok(answer.update.and_then(|update| update.id).unwrap_or_default())
    }

    /// Begins to replace its nodes by such of another version of its launch template. Gives the update's id.
    pub async fn roll_nodegroup(&self, cluster: &str, name: &str, template: (&str, &str)) -> Result<String, ServiceError> {
        let template = LaunchTemplateSpecification::builder().id(template.0).version(template.1).build();
        let call = self.0.update_nodegroup_version().cluster_name(cluster).nodegroup_name(name).launch_template(template);
        let answer = call.send().await.answer(SERVICE, "UpdateNodegroupVersion")?;
        Ok(answer.update.and_then(|update| update.id).unwrap_or_default())
    }

    /// How far that change of a node group is.
    pub async fn nodegroup_update(&self, cluster: &str, name: &str, id: &str) -> Result<Option<Update>, ServiceError> {
        let call = self.0.describe_update().name(cluster).nodegroup_name(name).update_id(id);
        let answer = call.send().await.or_none(SERVICE, "DescribeUpdate", NOT_THERE)?;
        Ok(answer.and_then(|answer| answer.update).map(|update| Update {
            id: update.id.unwrap_or_default(),
            status: update.status.map(|status| status.as_str().to_owned()).unwrap_or_default(),
            issues: issues(update.errors, |error| (error.error_code.map(|code| code.as_str().to_owned()), error.error_message)),
        }))
    }

    /// Begins to delete it. `false`: there is none.
    pub async fn delete_nodegroup(&self, cluster: &str, name: &str) -> Result<bool, ServiceError> {
        Ok(self.0.delete_nodegroup().cluster_name(cluster).nodegroup_name(name).send().await.or_none(SERVICE, "DeleteNodegroup", NOT_THERE)?.is_some())
    }

    /// Names of the cluster's node groups, also of those that are not ours; none where there is no cluster.
    pub async fn nodegroups(&self, cluster: &str) -> Result<Vec<String>, ServiceError> {
        let answer = self.0.list_nodegroups().cluster_name(cluster).send().await.or_none(SERVICE, "ListNodegroups", NOT_THERE)?;
        Ok(answer.and_then(|answer| answer.nodegroups).unwrap_or_default())
    }

    /// The add-on of that name; `None` also where there is no cluster.
    pub async fn addon(&self, cluster: &str, name: &str) -> Result<Option<Addon>, ServiceError> {
        let answer = self.0.describe_addon().cluster_name(cluster).addon_name(name).send().await.or_none(SERVICE, "DescribeAddon", NOT_THERE)?;
        Ok(answer.and_then(|answer| answer.addon).map(addon))
    }

    /// Begins to make it. `false`: it is there already.
    pub async fn create_addon(&self, new: &NewAddon) -> Result<bool, ServiceError> {
        let identities = new.identities.iter().map(|(account, role)| AddonPodIdentityAssociations::builder().service_account(account).role_arn(role).build());
        let identities = identities.collect::<Result<Vec<_>, _>>().map_err(|error| incomplete("CreateAddon", &error))?;
        let call = self.0.create_addon().cluster_name(&new.cluster).addon_name(&new.name).addon_version(&new.version).client_request_token(&new.token);
        let call = call.resolve_conflicts(ResolveConflicts::Overwrite).set_tags(Some(new.tags.clone().into_iter().collect())).set_configuration_values(new.configuration.clone());
        let call = call.set_pod_identity_associations((!identities.is_empty()).then_some(identities));
        Ok(call.send().await.or_none(SERVICE, "CreateAddon", THERE_ALREADY)?.is_some())
    }

    /// Begins to bring it to that version.
    pub async fn update_addon(&self, cluster: &str, name: &str, version: &str) -> Result<(), ServiceError> {
        let call = self.0.update_addon().cluster_name(cluster).addon_name(name).addon_version(version).resolve_conflicts(ResolveConflicts::Overwrite);
        call.send().await.answer(SERVICE, "UpdateAddon").map(drop)
    }

    /// Begins to delete it. `false`: there is none.
    pub async fn delete_addon(&self, cluster: &str, name: &str) -> Result<bool, ServiceError> {
        Ok(self.0.delete_addon().cluster_name(cluster).addon_name(name).send().await.or_none(SERVICE, "DeleteAddon", NOT_THERE)?.is_some())
    }

    /// Sets tags on a cluster, node group or add-on.
    pub async fn tag(&self, arn: &str, tags: &BTreeMap<String, String>) -> Result<(), ServiceError> {
        let call = self.0.tag_resource().resource_arn(arn).set_tags(Some(tags.clone().into_iter().collect()));
        call.send().await.answer(SERVICE, "TagResource").map(drop)
    }
}

fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn scaling(nodes: u32) -> NodegroupScalingConfig {
    NodegroupScalingConfig::builder().min_size(number(nodes)).desired_size(number(nodes)).max_size(number(nodes.max(1))).build()
}

fn incomplete(operation: &str, error: &dyn std::error::Error) -> ServiceError {
    ServiceError { service: SERVICE.into(), operation: operation.into(), code: "Incomplete".into(), message: error.to_string(), request_id: None, status: None }
}

fn issues<T>(found: Option<Vec<T>>, parts: impl Fn(T) -> (Option<String>, Option<String>)) -> Vec<Issue> {
    let found = found.unwrap_or_default().into_iter().map(parts);
    found.map(|(code, message)| Issue { code: code.unwrap_or_else(|| "Unknown".into()), message: message.unwrap_or_default() }).collect()
}

fn cluster(cluster: aws_sdk_eks::types::Cluster) -> Cluster {
    Cluster {
        name: cluster.name.unwrap_or_default(),
        arn: cluster.arn.unwrap_or_default(),
        status: cluster.status.map(|status| status.as_str().to_owned()).unwrap_or_default(),
        version: cluster.version.unwrap_or_default(),
        endpoint: cluster.endpoint.unwrap_or_default(),
        certificate_authority: cluster.certificate_authority.and_then(|authority| authority.data).unwrap_or_default(),
        security_group: cluster.resources_vpc_config.and_then(|config| config.cluster_security_group_id).unwrap_or_default(),
        tags: cluster.tags.unwrap_or_default().into_iter().collect(),
        issues: issues(cluster.health.and_then(|health| health.issues), |issue| (issue.code.map(|code| code.as_str().to_owned()), issue.message)),
    }
}

fn nodegroup(group: aws_sdk_eks::types::Nodegroup) -> Nodegroup {
    Nodegroup {
        name: group.nodegroup_name.unwrap_or_default(),
        arn: group.nodegroup_arn.unwrap_or_default(),
        status: group.status.map(|status| status.as_str().to_owned()).unwrap_or_default(),
        instance_type: group.instance_types.and_then(|types| types.into_iter().next()),
        disk_gib: group.disk_size.and_then(|size| u32::try_from(size).ok()),
        ami_type: group.ami_type.map(|ami| ami.as_str().to_owned()).unwrap_or_default(),
        subnets: group.subnets.unwrap_or_default(),
        launch_template: group.launch_template.map(|template| (template.id.unwrap_or_default(), template.version.unwrap_or_default())),
        desired: group.scaling_config.and_then(|scaling| scaling.desired_size).and_then(|size| u32::try_from(size).ok()).unwrap_or_default(),
        tags: group.tags.unwrap_or_default().into_iter().collect(),
        issues: issues(group.health.and_then(|health| health.issues), |issue| (issue.code.map(|code| code.as_str().to_owned()), issue.message)),
    }
}

fn addon(addon: aws_sdk_eks::types::Addon) -> Addon {
    Addon {
        name: addon.addon_name.unwrap_or_default(),
        arn: addon.addon_arn.unwrap_or_default(),
        status: addon.status.map(|status| status.as_str().to_owned()).unwrap_or_default(),
        version: addon.addon_version.unwrap_or_default(),
        tags: addon.tags.unwrap_or_default().into_iter().collect(),
        issues: issues(addon.health.and_then(|health| health.issues), |issue| (issue.code.map(|code| code.as_str().to_owned()), issue.message)),
    }
}
