//! Whose credentials these are.

use super::report::{Answered, Question};
use crate::aws::{Aws, sts};
use crate::error::Kind;

/// `credentials`: the account, once it is known.
pub(super) async fn credentials(aws: &Aws) -> (Answered, Option<String>) {
    let question = Question::new("credentials");
    match sts::identity(aws).await {
        Ok(identity) => (question.ok(format!("account {}, {}, in {}", identity.account, identity.arn, aws.region)), Some(identity.account)),
        Err(error) if error.kind() == Kind::Credentials => (question.failed(&error), None),
        Err(error) => {
            let fix = format!("check the network, AWS_ENDPOINT_URL and the region ({}): STS has to answer first", aws.region);
            (question.red(Kind::Remote, error.to_string(), fix), None)
        }
    }
}
