//! `nemo image`: the images' part of the walk, and what is in ECR.

use std::fmt;

use comfy_table::{Table, presets};
use futures::future::try_join_all;
use serde::Serialize;

use super::up::{self, Go, Selection};
use super::{Access, Global, Session, Settings};
use crate::aws::TAG_DEPLOYMENT;
use crate::aws::ecr::{Ecr, Repository};
use crate::engine::step::StepId;
use crate::error::{Failure, ServiceError};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo image push\n  nemo image list")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Copy images and charts into ECR, and publish the agent's own; what is there is not copied again
    Push {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        go: Go,
    },
    /// Show what is in ECR
    List {
        #[command(flatten)]
        settings: Settings,
    },
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    match args.command {
        Command::Push { settings, go } => up::go(global, &settings, &go, Selection::Only(vec![StepId::Images])).await,
        Command::List { settings } => list(&settings, global).await,
    }
}

/// One image in ECR.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
struct Image {
    /// `account.dkr.ecr.region.amazonaws.com/repository`
    uri: String,
    tags: Vec<String>,
    digest: String,
    bytes: u64,
}

/// The answer of `nemo image list`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    deployment: String,
    images: Vec<Image>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.images.is_empty() {
            return write!(f, "no image of {:?} is in ECR; `nemo image push` copies them", self.deployment);
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(["REPOSITORY", "TAGS", "DIGEST", "MB"]);
        for image in &self.images {
            let repository = image.uri.split_once('/').map_or(image.uri.as_str(), |(_, name)| name);
            let megabytes = format!("{}.{}", image.bytes / 1_000_000, image.bytes / 100_000 % 10);
            table.add_row([repository, &image.tags.join(", "), image.digest.get(..19).unwrap_or(&image.digest), &megabytes]);
        }
        write!(f, "{table}")
    }
}

async fn list(settings: &Settings, global: &Global) -> Result<(), Failure> {
    let session = Session::open(global, settings, Access::Read).await?;
    let name = session.spec.name.clone();
    let images = stored(&Ecr::new(&session.aws), &name).await;
    session.finish().await;
    ui::answer(global.manner(), &Answer { kind: "images", images: images.map_err(anyhow::Error::new)?, deployment: name });
    Ok(())
}

/// What is in the repositories that carry the deployment's tag.
async fn stored(ecr: &Ecr, deployment: &str) -> Result<Vec<Image>, ServiceError> {
    let repositories = ecr.repositories(&format!("{deployment}/")).await?;
    let of = |repository: Repository| async move {
        let (tags, images) = futures::try_join!(ecr.tags(&repository.arn), ecr.images(&repository.name))?;
        let ours = tags.get(TAG_DEPLOYMENT).is_some_and(|name| name == deployment);
        let images = images.unwrap_or_default().into_iter().filter(|_| ours);
        Ok::<_, ServiceError>(images.map(|image| Image { uri: repository.uri.clone(), tags: image.tags, digest: image.digest, bytes: image.bytes }).collect::<Vec<_>>())
    };
    let mut images = try_join_all(repositories.into_iter().map(of)).await?.concat();
    images.sort_by(|a, b| (&a.uri, &a.tags, &a.digest).cmp(&(&b.uri, &b.tags, &b.digest)));
    Ok(images)
}
