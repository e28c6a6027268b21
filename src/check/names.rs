//! Is something of our names there that is not ours?

use std::collections::BTreeMap;

use futures::future::{join_all, try_join_all};

use super::report::{Answered, Question};
use crate::aws::cloudformation::CloudFormation;
use crate::aws::ecr::Ecr;
use crate::aws::eks::Eks;
use crate::aws::{Aws, TAG_DEPLOYMENT};
use crate::config::{Pins, Spec};
use crate::error::{Kind, ServiceError};

/// What the stacks' names end with.
const STACKS: [&str; 4] = ["network", "nat", "roles", "gpu-nodes"];

/// `names`: cluster, stacks and repositories. Once a deployment is planned its steps look for themselves.
pub(super) async fn names(aws: &Aws, spec: &Spec, pins: Option<&Pins>) -> Answered {
    let question = Question::new("names");
    if pins.is_some() {
        return question.skipped("each step looks for itself, now that the deployment is planned");
    }
    let name = &spec.name;
    let found = match tokio::try_join!(cluster(aws, name), stacks(aws, name), repositories(aws, name)) {
        Ok((cluster, stacks, repositories)) => cluster.into_iter().chain(stacks).chain(repositories),
        Err(error) => return question.failed(&error),
    };
    let foreign: Vec<_> = found.filter(|(_, tags)| tags.get(TAG_DEPLOYMENT) != Some(name)).map(|(what, _)| what).collect();
    if foreign.is_empty() {
        return question.ok(format!("nothing that is called {name} belongs to somebody else"));
    }
    let answer = format!("there and not ours (no tag {TAG_DEPLOYMENT}={name}): {}", foreign.join(", "));
    question.red(Kind::Conflict, answer, "choose another --name, or remove it yourself")
}

/// What there is, with its tags.
type Tagged = (String, BTreeMap<String, String>);

async fn cluster(aws: &Aws, name: &str) -> Result<Option<Tagged>, ServiceError> {
    Ok(Eks::new(aws).cluster(name).await?.map(|cluster| (format!("cluster {name}"), cluster.tags)))
}

async fn stacks(aws: &Aws, name: &str) -> Result<Vec<Tagged>, ServiceError> {
    let service = CloudFormation::new(aws);
    let names = STACKS.map(|part| format!("{name}-{part}"));
    let found = try_join_all(names.iter().map(|stack| service.describe(stack))).await?;
    Ok(found.into_iter().flatten().map(|stack| (format!("stack {}", stack.name), stack.tags)).collect())
}

async fn repositories(aws: &Aws, name: &str) -> Result<Vec<Tagged>, ServiceError> {
    let service = Ecr::new(aws);
    let found = service.repositories(&format!("{name}/")).await?;
    let tags = join_all(found.iter().map(|repository| service.tags(&repository.arn))).await;
    found.iter().zip(tags).map(|(repository, tags)| Ok((format!("repository {}", repository.name), tags?))).collect()
}
