//! Who makes the GPU nodes: is that something that `nemo up` can do?

use super::report::{Answered, Question};
use crate::config::Spec;
use crate::error::Kind;

/// `compute`: the others are rendered only.
pub(super) fn compute(spec: &Spec) -> Answered {
    let (question, title) = (Question::new("compute"), &spec.compute.title);
    if spec.compute.walked {
        return question.ok(title.clone());
    }
    question.red(Kind::Config, format!("{title}: its manifests are rendered, and nothing of it is made or applied so far"), "nemo render, or --compute managed-node-groups")
}
