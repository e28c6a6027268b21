//! `nemo agent`: what pods run. Not for people.

use std::path::PathBuf;

use crate::agent;
use crate::error::Failure;
use crate::ui;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Put this binary into a folder
    Copy { folder: PathBuf },
    /// Run a benchmark and say its result
    Bench {
        /// What to measure, as JSON
        #[arg(long, value_name = "FILE")]
        plan: PathBuf,
    },
}

pub async fn run(args: Args) -> Result<(), Failure> {
    match args.task {
        Task::Copy { folder } => agent::copy::copy(&folder)?,
        Task::Bench { plan } => {
            agent::bench::run(&plan, &|said| ui::json_line(said)).await?;
        }
    }
    Ok(())
}
