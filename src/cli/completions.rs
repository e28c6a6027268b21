//! `nemo completions`: a script for the shell.

use std::fmt;

use clap::CommandFactory;
use clap_complete::Shell;
use serde::Serialize;

use super::{Cli, Global};
use crate::error::Failure;
use crate::ui;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Serialize)]
struct Script {
    kind: &'static str,
    script: String,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.script)
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "nemo", &mut script);
    ui::answer(global.manner(), &Script { kind: "completions", script: String::from_utf8_lossy(&script).into_owned() });
    Ok(())
}
