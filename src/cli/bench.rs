//! `nemo bench`: the walk over its one step, and the numbers. What was measured already is shown and not measured again.

use super::up::{Go, Selection, go};
use super::{Global, Settings};
use crate::engine::step::StepId;
use crate::error::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = "The load is in the settings bench.*: nemo bench --set bench.concurrency=32 --set bench.requests=320\nAnother seed measures again: --set bench.seed=43")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    go: Go,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    go(global, &args.settings, &args.go, Selection::Only(vec![StepId::Bench])).await
}
