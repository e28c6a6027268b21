//! `nemo compare`: sweeps of aiperf held against each other. From files; asks nobody. Exit code 16 when a gate fails.

use std::path::PathBuf;

use super::Global;
use crate::bench::side::{self, Across};
use crate::compare::{Gate, answer, contradictions};
use crate::error::{Failure, Kind, fail};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nemo compare aggregated/ disaggregated/\n  nemo compare before/ after/ --fail-if 'itl.p95>+5%' --fail-if 'tokens<-5%'\n  nemo compare bf16/ nvfp4/ --across model,precision\n\nEach folder is one sweep: every folder below it that has a profile_export.jsonl is one level. The first is what the others are held against."
)]
pub struct Args {
    /// Folders of sweeps of aiperf, two or more
    #[arg(required = true, num_args = 2.., value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// End with 16 when a number is worse than the first folder's by more than this, and not by noise: 'itl.p95 > +5%', 'tokens < -5%'
    #[arg(long, value_name = "GATE")]
    fail_if: Vec<Gate>,
    /// Compare runs that differ in this, too: aiperf, model, precision, tokenizer, isl, osl, streaming
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    across: Vec<Across>,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    if let Some(why) = contradictions(&args.fail_if) {
        return Err(fail(Kind::Usage, why).hint("leave one of them out").into());
    }
    let (sides, across) = side::sides(&args.folders, &args.across)?;
    let answer = answer(&sides, across, &args.fail_if);
    if answer.levels.is_empty() {
        let of = |side: &side::Side| format!("{} has {}", side.name, side.levels.iter().map(|level| level.concurrency.to_string()).collect::<Vec<_>>().join(", "));
        let why = format!("no level is in all of them: {}", sides.iter().map(of).collect::<Vec<_>>().join("; "));
        return Err(fail(Kind::Usage, why).hint("measure the same numbers of requests at once on each side").into());
    }
    ui::answer(global.manner(), &answer);
    let failed = answer.gates.iter().filter(|held| held.outcome.fails()).count();
    if failed == 0 {
        return Ok(());
    }
    let words = if failed == 1 { "a gate failed at 1 level".to_owned() } else { format!("gates failed at {failed} levels") };
    Err(fail(Kind::Verification, words).hint("the lines above name level, change and interval; more requests a level make the interval narrower").into())
}
