//! The commands: one file each with its arguments and its `run`; here are the enum and the match.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::{Failure, Kind};
use crate::ui;

/// From an AWS account to a validated, benchmarked endpoint for an NVIDIA Nemotron model on Amazon EKS, and back to nothing.
#[derive(Debug, Parser)]
#[command(name = "nemo", version, propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { Kind::Usage.exit_code() } else { 0 });
        }
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            ui::failure(&failure);
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match cli.command {}
}
