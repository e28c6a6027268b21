//! Is something of our names there that is not ours?

use futures::future::join_all;

use super::report::{Answered, Question};
use crate::aws::ecr::Ecr;
use crate::aws::{Aws, TAG_DEPLOYMENT};
use crate::config::{Pins, Spec};
use crate::error::{Kind, ServiceError};

/// `names`: repositories below the deployment's name. Once a deployment is planned its steps look for themselves.
pub(super) async fn names(aws: &Aws, spec: &Spec, pins: Option<&Pins>) -> Answered {
    let question = Question::new("names");
    if pins.is_some() {
        return question.skipped("each step looks for itself, now that the deployment is planned");
    }
    match foreign_repositories(aws, &spec.name).await {
        Ok(foreign) if foreign.is_empty() => question.ok(format!("nothing that is called {} belongs to somebody else", spec.name)),
        Ok(foreign) => question.red(Kind::Conflict, format!("there and not ours (no tag {TAG_DEPLOYMENT}={}): {}", spec.name, foreign.join(", ")), "choose another --name"),
        Err(error) => question.failed(&error),
    }
}

async fn foreign_repositories(aws: &Aws, name: &str) -> Result<Vec<String>, ServiceError> {
    let ecr = Ecr::new(aws);
    let found = ecr.repositories(&format!("{name}/")).await?;
    let tagged = join_all(found.iter().map(async |repository| ecr.tags(&repository.arn).await)).await;
    let mut foreign = Vec::new();
    for (repository, tags) in found.iter().zip(tagged) {
        if tags?.get(TAG_DEPLOYMENT).map(String::as_str) != Some(name) {
            foreign.push(format!("repository {}", repository.name));
        }
    }
    Ok(foreign)
}
