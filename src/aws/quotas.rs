//! Service Quotas: how much of something an account may have.

use aws_sdk_servicequotas::Client;

use super::{Answer, Aws};
use crate::error::ServiceError;

const NOT_THERE: &[&str] = &["NoSuchResourceException"];

/// The account's value of a quota; AWS's default where the account has none of its own; `None`: there is no such quota.
pub async fn quota(aws: &Aws, service: &str, code: &str) -> Result<Option<f64>, ServiceError> {
    let client = Client::new(&aws.config);
    let own = client.get_service_quota().service_code(service).quota_code(code).send().await;
    if let Some(own) = own.or_none("servicequotas", "GetServiceQuota", NOT_THERE)? {
        return Ok(own.quota.and_then(|quota| quota.value));
    }
    let default = client.get_aws_default_service_quota().service_code(service).quota_code(code).send().await;
    Ok(default.or_none("servicequotas", "GetAWSDefaultServiceQuota", NOT_THERE)?.and_then(|answer| answer.quota).and_then(|quota| quota.value))
}

/// The command that asks for more.
pub fn increase_command(service: &str, code: &str, value: u64, region: &str) -> String {
    format!("aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} --desired-value {value} --region {region}")
}
