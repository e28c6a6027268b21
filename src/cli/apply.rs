//! `nemo apply`: the serving manifests to the cluster, until the model answers.

use super::up::{self, Go, Selection};
use super::{Global, Settings};
use crate::engine::step::StepId;
use crate::error::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo apply\n  nemo apply --set serve.max_model_len=131072")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    go: Go,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    up::go(global, &args.settings, &args.go, Selection::Only(vec![StepId::Serve])).await
}
