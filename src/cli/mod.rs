//! The commands: one file each with its arguments and its `run`; here are the global flags, the enum and the match.

mod agent;
mod apply;
mod bench;
mod check;
mod cleanup;
mod cluster;
mod compare;
mod completions;
mod config;
mod connect;
mod cores;
mod diff;
mod explain;
mod fit;
mod hints;
mod image;
mod lint;
mod output_file;
mod plan;
mod platform;
mod render;
mod render_all;
mod report;
mod rollback;
#[cfg(test)]
mod schemas;
mod session;
mod slo;
mod status;
mod test;
mod test_cluster;
mod test_endpoint;
mod up;
mod weights;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::error::{Failure, Kind, fail};
use crate::ui::{self, Manner, Output, Progress};

pub use session::{Access, Session};

/// From an AWS account to a validated, benchmarked endpoint for an NVIDIA Nemotron model on Amazon EKS, and back to nothing.
#[derive(Debug, Parser)]
#[command(name = "nemo", version, propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Args)]
pub struct Global {
    /// Of the deployment: cluster, stacks and repositories carry it
    #[arg(long, global = true, value_name = "NAME")]
    pub name: Option<String>,
    /// AWS region
    #[arg(long, global = true, value_name = "REGION")]
    pub region: Option<String>,
    /// Settings file [default: nemo.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Any setting, as `nemo config show` names it: --set gpu.nodes=2
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Text, or JSON: one event a line, the result last
    #[arg(long, global = true, value_enum, default_value_t)]
    pub output: Output,
    /// How progress is shown on stderr
    #[arg(long, global = true, value_enum, default_value_t)]
    pub progress: Progress,
    /// Answers and errors only
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Say what is called; twice: what is sent
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl Global {
    /// How to speak.
    pub fn manner(&self) -> Manner {
        Manner { output: self.output, progress: self.progress, quiet: self.quiet }
    }
}

/// Settings that have a flag of their own, on the commands that plan.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Settings")]
pub struct Settings {
    /// EC2 type of the GPU nodes, such as p5en.48xlarge
    #[arg(long, value_name = "TYPE")]
    pub instance: Option<String>,
    /// Model of the catalogue
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Precision of the model, such as bf16
    #[arg(long, value_name = "PRECISION")]
    pub precision: Option<String>,
    /// Who makes the GPU nodes: managed-node-groups; auto-mode and hyperpod are rendered only
    #[arg(long, value_name = "COMPUTE")]
    pub compute: Option<String>,
    /// Number of GPU nodes
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Zone id of the GPU nodes and the file system, such as use2-az1
    #[arg(long, value_name = "ZONE-ID")]
    pub zone: Option<String>,
    /// How the work is spread: aggregated, pipeline-parallel, expert-parallel, disaggregated, e-pd, e-p-d
    #[arg(long, value_name = "TOPOLOGY")]
    pub topology: Option<String>,
    /// The objects that serve: auto, deployments, lws, dgd-v1alpha1, dgd-v1beta1, dgd-grove
    #[arg(long = "as", value_name = "FORM")]
    pub form: Option<String>,
    /// Who reaches the model from outside the cluster, by API key and TLS: no, internal (the VPC), public
    #[arg(long, value_name = "EXPOSE")]
    pub expose: Option<String>,
    /// Folder with templates that take the place of nemo's own of the same name
    #[arg(long, value_name = "DIR")]
    pub templates: Option<String>,
    /// File with patches over what is rendered: JSON Patch or merge patch, by kind and name
    #[arg(long, value_name = "FILE")]
    pub patches: Option<String>,
    /// US dollars an hour of one GPU instance, instead of the Price List API's
    #[arg(long, value_name = "USD")]
    pub price: Option<f64>,
}

impl Settings {
    /// As settings by their keys.
    fn overrides(&self) -> Vec<(String, String)> {
        let pairs = [
            ("instance", self.instance.clone()),
            ("model", self.model.clone()),
            ("precision", self.precision.clone()),
            ("compute", self.compute.clone()),
            ("gpu.nodes", self.nodes.map(|n| n.to_string())),
            ("gpu.zone", self.zone.clone()),
            ("serve.topology", self.topology.clone()),
            ("serve.form", self.form.clone()),
            ("serve.expose", self.expose.clone()),
            ("render.templates", self.templates.clone()),
            ("render.patches", self.patches.clone()),
            ("price.gpu_hour", self.price.map(|usd| format!("{usd:?}"))),
        ];
        pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make everything, from nothing to a tested and benchmarked endpoint
    Up(up::Args),
    /// Ask everything that has to be right before something is made
    Check(check::Args),
    /// Show what `up` would do and what it costs an hour
    Plan(plan::Args),
    /// Compute the smallest layout that holds a model, and what it holds
    Fit(fit::Args),
    /// Show what is there, what state it is in, and what it costs
    Status(status::Args),
    /// Copy images and charts into ECR, and list them
    Image(image::Args),
    /// Fetch the model's files to the shared volume, and see how far they are
    Weights(weights::Args),
    /// Ask the endpoint questions with known answers
    Test(test::Args),
    /// Measure TTFT, ITL and throughput with aiperf inside the cluster
    Bench(bench::Args),
    /// Find the load that aiperf's runs carry within latency budgets, and how many deployments a target takes
    Slo(slo::Args),
    /// Hold sweeps against each other: who is ahead where, where they cross, and what of it is noise
    Compare(compare::Args),
    /// Write sweeps as one HTML page that needs no network, as Markdown for a comment, or as CSV
    Report(report::Args),
    /// Remove everything that was made, and prove that nothing is left
    Cleanup(cleanup::Args),
    /// The cluster: make it, look at it, sign in to it, remove it
    Cluster(cluster::Args),
    /// The platform: add-ons, charts, definitions and webhooks, with what is wanted and what is there
    Platform(platform::Args),
    /// Show or write the manifests as they would be applied
    Render(render::Args),
    /// Look for what is known to go wrong in manifests, also ones that nobody rendered here
    Lint(lint::Args),
    /// Say in one sentence why it does not serve, what that costs so far and what to do; or what a rule is about
    Explain(explain::Args),
    /// Show what `apply` would change in the cluster, object by object; exits with 20 when there is something
    Diff(diff::Args),
    /// Apply the serving manifests and wait until the model answers
    Apply(apply::Args),
    /// Go back to a set of manifests that has served before
    Rollback(rollback::Args),
    /// Open a port on this machine that leads to the model
    Connect(connect::Args),
    /// Settings: what is in force and why, what is allowed, a file to begin with
    Config(config::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    #[command(hide = true)]
    Agent(agent::Args),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Which output was asked for is among the arguments that cannot be understood.
            if e.use_stderr() && std::env::args_os().any(|word| word == "json" || word == "--output=json") {
                let said = e.to_string();
                ui::failure_json(&Failure::new(Kind::Usage, said.lines().next().unwrap_or_default().trim_start_matches("error: ")).hint("nemo --help"));
            }
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { Kind::Usage.exit_code() } else { 0 });
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return end(&Failure::new(Kind::LocalIo, format!("starting: {e}")), cli.global.output),
    };
    match runtime.block_on(run(cli.command, &cli.global)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&hints::for_deployment(failure, &cli.global), cli.global.output),
    }
}

fn end(failure: &Failure, output: Output) -> ExitCode {
    if output == Output::Json {
        ui::failure_json(failure);
    }
    ui::failure(failure);
    ExitCode::from(failure.kind.exit_code())
}

async fn run(command: Command, global: &Global) -> Result<(), Failure> {
    session::start_tracing(global.verbose);
    if global.output == Output::Sarif && !matches!(command, Command::Lint(_)) {
        return Err(fail(Kind::Usage, "--output sarif: only `nemo lint` has findings").hint("--output json").into());
    }
    match command {
        Command::Up(args) => up::run(args, global).await,
        Command::Check(args) => check::run(args, global).await,
        Command::Plan(args) => plan::run(args, global).await,
        Command::Fit(args) => fit::run(args, global).await,
        Command::Status(args) => status::run(args, global).await,
        Command::Image(args) => image::run(args, global).await,
        Command::Weights(args) => weights::run(args, global).await,
        Command::Test(args) => test::run(args, global).await,
        Command::Bench(args) => bench::run(args, global).await,
        Command::Slo(args) => slo::run(args, global).await,
        Command::Compare(args) => compare::run(args, global).await,
        Command::Report(args) => report::run(args, global).await,
        Command::Cleanup(args) => cleanup::run(args, global).await,
        Command::Cluster(args) => cluster::run(args, global).await,
        Command::Platform(args) => platform::run(args, global).await,
        Command::Render(args) => render::run(args, global).await,
        Command::Lint(args) => lint::run(args, global).await,
        Command::Explain(args) => explain::run(args, global).await,
        Command::Diff(args) => diff::run(args, global).await,
        Command::Apply(args) => apply::run(args, global).await,
        Command::Rollback(args) => rollback::run(args, global).await,
        Command::Connect(args) => connect::run(args, global).await,
        Command::Config(args) => config::run(args, global).await,
        Command::Completions(args) => completions::run(args, global).await,
        Command::Agent(args) => agent::run(args).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The commands of a text, one a line: without comments, and up to a pipe or a redirection.
    fn commands(text: &str) -> Vec<&str> {
        let lines = text.lines().map(|line| [" #", " |", " >"].iter().fold(line, |line, end| line.split(end).next().unwrap_or_default()).trim());
        lines.filter(|line| line.starts_with("nemo ") && !line.contains(['[', '`'])).collect()
    }

    #[test]
    fn every_example_is_understood() {
        let helps: Vec<String> = Cli::command().get_subcommands().filter_map(|command| command.get_after_help()).map(ToString::to_string).collect();
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
        let examples: Vec<&str> = helps.iter().flat_map(|help| commands(help)).chain(commands(&readme)).collect();
        assert!(helps.len() > 10 && examples.len() > 40, "{} {}", helps.len(), examples.len());
        for example in examples {
            if let Err(wrong) = Cli::try_parse_from(example.split_whitespace().map(|word| word.trim_matches('\''))) {
                panic!("{example}: {wrong}");
            }
        }
    }
}
