//! `nemo agent`: what pods run. Not for people.

use std::path::PathBuf;

use crate::agent;
use crate::agent::fetch::Place;
use crate::error::Failure;
use crate::secret::Secret;
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
    /// Bring this worker's share of a model's files to the shared volume
    Fetch {
        /// What to fetch, as JSON
        #[arg(long, value_name = "FILE")]
        plan: PathBuf,
        /// Where the shared volume is mounted
        #[arg(long, value_name = "FOLDER")]
        root: PathBuf,
        /// Which worker this is
        #[arg(long, env = "JOB_COMPLETION_INDEX", default_value_t = 0)]
        index: u32,
    },
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
        Task::Fetch { plan, root, index } => {
            let token = std::env::var("HF_TOKEN").ok().filter(|token| !token.is_empty()).map(Secret::new);
            agent::fetch::run(&plan, &Place { root, index }, token, Box::new(std::io::stdout())).await?;
        }
        Task::Bench { plan } => {
            agent::bench::run(&plan, &|said| ui::json_line(said)).await?;
        }
    }
    Ok(())
}
