//! The tagging API: everything in the region that carries our mark, whatever service it belongs to.

use std::collections::BTreeMap;

use aws_sdk_resourcegroupstagging::Client;
use aws_sdk_resourcegroupstagging::types::TagFilter;

use super::eni::Network;
use super::{Answer, Aws, TAG_DEPLOYMENT};
use crate::error::ServiceError;

const SERVICE: &str = "resourcegroupstaggingapi";

/// ARNs of everything in this region that carries a deployment's tag, by deployment. What was deleted a short while ago may still be listed.
pub async fn deployments(aws: &Aws) -> Result<BTreeMap<String, Vec<String>>, ServiceError> {
    listed(aws, TagFilter::builder().key(TAG_DEPLOYMENT).build()).await
}

/// ARNs of everything in this region that carries this deployment's tag and is really there: NAT gateways and instances are listed for
/// an hour after their end, so EC2 is asked about those.
pub async fn leftovers(aws: &Aws, deployment: &str) -> Result<Vec<String>, ServiceError> {
    let listed = tagged(aws, deployment).await?;
    let ids = |kind: &str| -> Vec<String> { listed.iter().filter_map(|arn| arn.split_once(kind)).map(|(_, id)| id.to_owned()).collect() };
    let gone = Network::new(aws).ended(ids(":natgateway/"), ids(":instance/")).await?;
    Ok(listed.into_iter().filter(|arn| arn.rsplit_once('/').is_none_or(|(_, id)| !gone.contains(id))).collect())
}

/// ARNs of everything in this region that carries this deployment's tag. What was deleted a short while ago may still be listed.
pub async fn tagged(aws: &Aws, deployment: &str) -> Result<Vec<String>, ServiceError> {
    let found = listed(aws, TagFilter::builder().key(TAG_DEPLOYMENT).values(deployment).build()).await?;
    Ok(found.into_values().flatten().collect())
}

async fn listed(aws: &Aws, filter: TagFilter) -> Result<BTreeMap<String, Vec<String>>, ServiceError> {
    let mut pages = Client::new(&aws.config).get_resources().tag_filters(filter).into_paginator().send();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while let Some(page) = pages.next().await {
        for resource in page.answer(SERVICE, "GetResources")?.resource_tag_mapping_list.unwrap_or_default() {
            let deployment = resource.tags.unwrap_or_default().into_iter().find(|tag| tag.key == TAG_DEPLOYMENT);
            if let (Some(tag), Some(arn)) = (deployment, resource.resource_arn) {
                found.entry(tag.value).or_default().push(arn);
            }
        }
    }
    Ok(found)
}
