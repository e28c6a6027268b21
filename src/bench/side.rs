//! Runs that belong together: one sweep as a curve, and several sweeps side by side, which have to be of the same load unless somebody says otherwise.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use super::level::{self, Comparable, Level};
use crate::error::{Kind, fail};

/// All levels, by rising concurrency; of one load and each concurrency once, or it would be no curve.
pub fn curve(folders: &[PathBuf]) -> anyhow::Result<Vec<Level>> {
    let mut levels = Vec::new();
    for folder in folders {
        levels.extend(level::read(folder)?);
    }
    levels.sort_by_key(|level| level.concurrency);
    for pair in levels.windows(2) {
        let [one, other] = pair else { continue };
        if one.comparable != other.comparable {
            let why = format!("runs that cannot be compared: {} ({}) and {} ({})", one.folder.display(), one.comparable, other.folder.display(), other.comparable);
            return Err(fail(Kind::Usage, why).hint("name the folders of one load").into());
        }
        if one.concurrency == other.concurrency {
            let why = format!("concurrency {} twice: {} and {}", one.concurrency, one.folder.display(), other.folder.display());
            return Err(fail(Kind::Usage, why).hint("name the folder of one sweep").into());
        }
    }
    Ok(levels)
}

/// One sweep beside others.
#[derive(Debug, Clone)]
pub struct Side {
    /// The folder's own name; where two have the same, the whole path.
    pub name: String,
    pub levels: Vec<Level>,
}

impl Side {
    /// What is the same in all its runs. There is at least one.
    pub fn comparable(&self) -> &Comparable {
        &self.levels[0].comparable
    }

    pub fn at(&self, concurrency: u32) -> Option<&Level> {
        self.levels.iter().find(|level| level.concurrency == concurrency)
    }
}

/// What runs may differ in and be compared all the same, when somebody says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Across {
    Aiperf,
    Model,
    Precision,
    Tokenizer,
    Isl,
    Osl,
    Streaming,
}

const ALL: [Across; 7] = [Across::Aiperf, Across::Model, Across::Precision, Across::Tokenizer, Across::Isl, Across::Osl, Across::Streaming];

impl fmt::Display for Across {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aiperf => "aiperf",
            Self::Model => "model",
            Self::Precision => "precision",
            Self::Tokenizer => "tokenizer",
            Self::Isl => "isl",
            Self::Osl => "osl",
            Self::Streaming => "streaming",
        })
    }
}

impl FromStr for Across {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = ALL.map(|field| field.to_string());
        ALL.into_iter().find(|field| field.to_string() == text).ok_or_else(|| format!("{text:?} is nothing that runs differ in here: {}", known.join(", ")))
    }
}

impl Across {
    fn of(self, key: &Comparable) -> String {
        match self {
            Self::Aiperf => key.aiperf.clone(),
            Self::Model => key.model.clone(),
            Self::Precision => key.precision.clone().unwrap_or_else(|| "not known".into()),
            Self::Tokenizer => key.tokenizer.clone(),
            Self::Isl => key.isl.to_string(),
            Self::Osl => key.osl.to_string(),
            Self::Streaming => key.streaming.to_string(),
        }
    }

    /// What the difference does to the numbers.
    fn does(self) -> &'static str {
        match self {
            Self::Aiperf => "0.9.0 divides tokens by the time of the answered requests, later ones by the whole phase: 0.1 to 0.5 % apart in clean runs, more with failures",
            Self::Model => "another model is another amount of work",
            Self::Precision => "faster and less exact answers are not the same answers",
            Self::Tokenizer => "a token of one is not a token of the other: ITL and tokens a second do not mean the same",
            Self::Isl => "longer prompts take longer to read: TTFT does not mean the same",
            Self::Osl => "longer answers keep requests under way for longer: throughput does not mean the same",
            Self::Streaming => "without streaming there is no ITL, and TTFT is the whole answer",
        }
    }
}

/// A difference between the sides, with each side's value.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Difference {
    pub field: Across,
    pub values: Vec<String>,
    /// What it does to the numbers.
    pub means: String,
}

/// Reads a sweep a folder. Differences that nobody allowed are refused; those that somebody did are told.
pub fn sides(folders: &[PathBuf], allowed: &[Across]) -> anyhow::Result<(Vec<Side>, Vec<Difference>)> {
    let mut sides: Vec<Side> = Vec::new();
    for (at, folder) in folders.iter().enumerate() {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        if let Some(twice) = folders[..at].iter().find(|other| real(other).is_some() && real(other) == real(folder)) {
            return Err(fail(Kind::Usage, format!("{} and {} are the same folder", twice.display(), folder.display())).hint("name two different sweeps").into());
        }
        sides.push(Side { name: name(folder, folders), levels: curve(std::slice::from_ref(folder))? });
    }
    let differences: Vec<Difference> = ALL.into_iter().filter_map(|field| difference(field, &sides)).collect();
    let refused: Vec<&Difference> = differences.iter().filter(|difference| !allowed.contains(&difference.field)).collect();
    if refused.is_empty() {
        return Ok((sides, differences));
    }
    let why: Vec<String> = refused.iter().map(|difference| format!("{}: {}", difference.field, difference.values.join(", "))).collect();
    let flag: Vec<String> = differences.iter().map(|difference| difference.field.to_string()).collect();
    let hint = format!("--across {} compares them all the same; {}", flag.join(","), refused[0].means);
    Err(fail(Kind::Usage, format!("these runs differ in more than what is compared: {}", why.join("; "))).hint(hint).into())
}

fn difference(field: Across, sides: &[Side]) -> Option<Difference> {
    let values: Vec<String> = sides.iter().map(|side| field.of(side.comparable())).collect();
    let differ = values.iter().any(|value| *value != values[0]);
    differ.then(|| Difference { field, values, means: field.does().into() })
}

fn name(folder: &Path, all: &[PathBuf]) -> String {
    let last = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    match last(folder) {
        Some(name) if all.iter().filter(|other| last(other).as_deref() == Some(&name)).count() == 1 => name,
        _ => folder.display().to_string(),
    }
}
