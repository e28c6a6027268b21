//! `nemo config`: settings as they are in force, what each allows, and a file to begin with.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;

use super::{Global, Settings, session};
use crate::config;
use crate::error::{Failure, Kind, fail};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo config init\n  nemo config show --instance p5.48xlarge\n  nemo config schema > nemo.schema.json")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write a nemo.toml in which every setting stands commented out with its default
    Init,
    /// Show every setting with its value and where it is from
    Show {
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Print the JSON Schema of nemo.toml
    Schema,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    match args.command {
        Command::Init => {
            let path = global.config.clone().unwrap_or_else(|| PathBuf::from("nemo.toml"));
            init(&path)?;
            ui::answer(global.manner(), &Written { kind: "config-init", path });
        }
        Command::Show { settings } => {
            let (_, layers) = config::load(&session::inputs(global, &settings)?)?;
            ui::answer(global.manner(), &Shown { kind: "config", settings: layers });
        }
        Command::Schema => ui::answer(global.manner(), &Schema(config::schema())),
    }
    Ok(())
}

/// The answer of `nemo config show`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Shown {
    kind: &'static str,
    settings: config::Layers,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.settings)
    }
}

/// The answer of `nemo config init`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Written {
    kind: &'static str,
    path: PathBuf,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is written: uncomment what you want to change", self.path.display())
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Schema(serde_json::Value);

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

/// Writes the sample, but never over a file that is there.
fn init(path: &std::path::Path) -> anyhow::Result<()> {
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            return Err(fail(Kind::Conflict, format!("{} is there already, and is left as it is", path.display()))
                .hint("move it away first, or name another with --config FILE")
                .into());
        }
        opened => opened.with_context(|| format!("writing {}", path.display()))?,
    };
    file.write_all(config::sample().as_bytes()).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nemo.toml");
        init(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), config::sample());
        std::fs::write(&path, "name = \"mine\"\n").unwrap();
        let failure = Failure::from(init(&path).unwrap_err());
        assert_eq!(failure.kind, Kind::Conflict);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "name = \"mine\"\n");
        assert_eq!(Failure::from(init(&folder.path().join("no/folder.toml")).unwrap_err()).kind, Kind::LocalIo);
    }
}
