//! The Hugging Face token, and access to the exact repository: its commit and files are pinned.

use super::report::{Answered, Question};
use crate::config::{Pins, Spec, WeightFile, WeightsPin};
use crate::error::{Kind, ServiceError};
use crate::hub::Hub;

const GOOD_TOKEN: &str = "set HF_TOKEN to a valid token with read access (https://huggingface.co/settings/tokens)";

/// `hub-token`: whose it is.
pub(super) async fn token(hub: &Hub, there_is_one: bool) -> Answered {
    let question = Question::new("hub-token");
    if !there_is_one {
        return question.warn("no token: only open repositories can be read", GOOD_TOKEN);
    }
    match hub.whoami().await {
        Ok(name) => question.ok(format!("of {name}")),
        Err(error) if error.status == Some(401) => question.red(Kind::Credentials, format!("the hub does not know this token ({})", error.message), GOOD_TOKEN),
        Err(error) => question.red(error.kind(), error.to_string(), no_hub(hub.endpoint())),
    }
}

fn no_hub(endpoint: &str) -> String {
    format!("check the network, and that hub.endpoint is a hub: {endpoint}")
}

/// `hub-access`: the commit that `main` is now and its files, or those pinned; and whether a file of it may be read.
pub(super) async fn access(hub: &Hub, spec: &Spec, pins: Option<&Pins>, there_is_a_token: bool) -> (Answered, Option<WeightsPin>) {
    let question = Question::new("hub-access");
    let repository = &spec.precision.repository;
    let pinned = pins.map(|pins| &pins.weights).filter(|weights| weights.repository == *repository && !weights.revision.is_empty());
    let weights = match pinned {
        Some(weights) => Ok(weights.clone()),
        None => resolve(hub, repository).await,
    };
    let weights = match weights {
        Ok(weights) => weights,
        Err(error) => return (refused(&question, &error, spec, there_is_a_token), None),
    };
    // The configuration is kept back like the weights where a README may be open; and it is no large file, which would be elsewhere.
    let Some(file) = weights.files.iter().min_by_key(|file| (file.path != "config.json", file.size)) else {
        return (question.red(Kind::Config, format!("{repository} holds no files at {}", weights.revision), "check the repository's name in configs/models/"), None);
    };
    match hub.may_read(repository, &weights.revision, &file.path).await {
        Ok(()) => {
            let commit = weights.revision.get(..12).unwrap_or(&weights.revision);
            (question.ok(format!("{repository} at {commit}: {} files, {}", weights.files.len(), gigabytes(weights.bytes))), Some(weights))
        }
        Err(error) => (refused(&question, &error, spec, there_is_a_token), None),
    }
}

async fn resolve(hub: &Hub, repository: &str) -> Result<WeightsPin, ServiceError> {
    let commit = hub.commit(repository, "main").await?;
    let files = hub.files(repository, &commit.sha).await?;
    let files: Vec<_> = files.into_iter().map(|file| WeightFile { path: file.path, size: file.size, sha256: file.sha256, git_blob: file.git_blob }).collect();
    Ok(WeightsPin { repository: repository.to_owned(), revision: commit.sha, bytes: files.iter().map(|file| file.size).sum(), files })
}

/// 401, 403 and 404 mean different things, and without a token the hub does not tell a private repository from none.
fn refused(question: &Question, error: &ServiceError, spec: &Spec, there_is_a_token: bool) -> Answered {
    let repository = &spec.precision.repository;
    let page = format!("{}/{repository}", spec.hub.endpoint);
    let said = &error.message;
    match error.status {
        Some(401) if there_is_a_token => question.red(Kind::Credentials, format!("{repository}: the hub does not know this token ({said})"), GOOD_TOKEN),
        Some(401) => {
            let fix = format!("set HF_TOKEN; if the repository is gated, ask for access first at {page}");
            question.red(Kind::Credentials, format!("{repository}: only with a token ({said})"), fix)
        }
        Some(403) => {
            let fix = format!("accept the licence or ask for access at {page} as the token's owner");
            question.red(Kind::Credentials, format!("{repository}: this token may not read it ({said})"), fix)
        }
        // A hub says in a header what it did not find; anything else that answers 404 is none.
        Some(404) if !error.code.starts_with("HTTP") => {
            let fix = "the name is wrong, or it is private and this token may not see it: check the repository in configs/models/, and HF_TOKEN";
            question.red(Kind::Config, format!("{repository}: not found ({}: {said})", error.code), fix)
        }
        _ => question.red(error.kind(), error.to_string(), no_hub(&spec.hub.endpoint)),
    }
}

/// As people read sizes: two figures at least.
pub(super) fn gigabytes(bytes: u64) -> String {
    match bytes as f64 {
        large if large >= 1e10 => format!("{:.0} GB", large / 1e9),
        middle if middle >= 1e9 => format!("{:.1} GB", middle / 1e9),
        small => format!("{:.1} MB", small / 1e6),
    }
}
