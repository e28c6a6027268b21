//! Turns events and answers into text: the only module that prints. Answers go to stdout, the rest to stderr.

mod answer;
mod ask;
mod bars;
mod failure;
mod lines;
mod listen;
mod log;
mod plan;

use std::io::IsTerminal;

pub use answer::{answer, json_line, say};
pub use ask::confirm;
pub use failure::{Failed, failure, failure_json};
pub use listen::{Listening, listen};
pub use plan::{plan, resources};

/// What stdout carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Output {
    /// Text for people.
    #[default]
    Human,
    /// One event a line, the result last.
    Json,
    /// Of `nemo lint`: findings as code hosts read them.
    Sarif,
}

/// How progress is shown on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Progress {
    /// Bars on a terminal, lines in a pipe.
    #[default]
    Auto,
    Bars,
    Lines,
    None,
}

/// How to speak; from the global flags.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    pub output: Output,
    pub progress: Progress,
    pub quiet: bool,
}

impl Manner {
    /// `auto` decided by where stderr goes; nothing beside JSON.
    pub fn progress(self) -> Progress {
        match self.progress {
            _ if self.quiet || self.output == Output::Json => Progress::None,
            Progress::Auto if std::io::stderr().is_terminal() => Progress::Bars,
            Progress::Auto => Progress::Lines,
            chosen => chosen,
        }
    }
}
