//! `nemo agent`: what pods run. Not for people.

use std::path::PathBuf;
use std::time::Duration;

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
    /// Say what this node is, and then once a second what its GPUs and EFA adapters do
    Node(Node),
    /// Run a benchmark and say its result
    Bench {
        /// What to measure, as JSON
        #[arg(long, value_name = "FILE")]
        plan: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Node {
    /// What the node is called
    #[arg(long, env = "NODE_NAME", default_value = "this node")]
    node: String,
    /// How long; until SIGTERM without it, and 0 for no sample
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Milliseconds from one sample to the next
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..))]
    every_ms: u64,
    /// Where the kernel tells of devices
    #[arg(long, value_name = "FOLDER", default_value = "/sys")]
    sys: PathBuf,
    /// Where the kernel tells of itself
    #[arg(long, value_name = "FOLDER", default_value = "/proc")]
    proc: PathBuf,
    /// Where the EFA installer puts what it brings
    #[arg(long, value_name = "FOLDER", default_value = "/opt/amazon")]
    amazon: PathBuf,
    /// Name or path of NVML's library
    #[arg(long, value_name = "LIBRARY", default_value = "libnvidia-ml.so.1")]
    nvml: std::ffi::OsString,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    match args.task {
        Task::Copy { folder } => agent::copy::copy(&folder)?,
        Task::Fetch { plan, root, index } => {
            let token = std::env::var("HF_TOKEN").ok().filter(|token| !token.is_empty()).map(Secret::new);
            agent::fetch::run(&plan, &Place { root, index }, token, Box::new(std::io::stdout())).await?;
        }
        Task::Node(Node { node, seconds, every_ms, sys, proc, amazon, nvml }) => {
            let look = agent::node::Look { node, sys, proc, amazon, nvml, seconds, every: Duration::from_millis(every_ms) };
            agent::node::run(&look, &|said| ui::json_line(said)).await?;
        }
        Task::Bench { plan } => {
            agent::bench::run(&plan, &|said| ui::json_line(said)).await?;
        }
    }
    Ok(())
}
