//! STS: who the credentials are.

use aws_sdk_sts::Client;

use super::{Answer, Aws};
use crate::error::ServiceError;

/// Whom the credentials belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Twelve digits.
    pub account: String,
    /// Of the user or the assumed role.
    pub arn: String,
}

/// Asks STS whose credentials these are. Needs no permission.
pub async fn identity(aws: &Aws) -> Result<Identity, ServiceError> {
    let answer = Client::new(&aws.config).get_caller_identity().send().await.answer("sts", "GetCallerIdentity")?;
    match (answer.account, answer.arn) {
        (Some(account), Some(arn)) => Ok(Identity { account, arn }),
        _ => Err(ServiceError {
            service: "sts".into(),
            operation: "GetCallerIdentity".into(),
            code: "NoAnswer".into(),
            message: "the answer names no account: the endpoint is not AWS".into(),
            request_id: None,
            status: None,
        }),
    }
}
