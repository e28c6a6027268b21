//! `nemo report`: sweeps of aiperf as a page, a comment or a table. From files; asks nobody.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Global, output_file, slo};
use crate::bench::side::{self, Across};
use crate::error::{Failure, Kind, fail};
use crate::report::Report;
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nemo report artifacts/ --out report.html\n  nemo report aggregated/ disaggregated/ --out report.html --out comment.md --ttft p95=600ms --itl p95=100ms --gpus 8,16\n\nEach folder is one sweep: every folder below it that has a profile_export.jsonl is one level. The page needs no network and no script."
)]
pub struct Args {
    /// Folders of sweeps of aiperf
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// What to write; its ending says what it is: .html, .md or .csv; more than one may be given
    #[arg(long, value_name = "FILE", required = true)]
    out: Vec<PathBuf>,
    #[command(flatten)]
    budgets: slo::Budgets,
    /// GPUs that served each folder's sweep, or all of them: what throughput is divided by
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    gpus: Vec<u32>,
    /// Show runs together that differ in this, too: aiperf, model, precision, tokenizer, isl, osl, streaming
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    across: Vec<Across>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename = "report")]
pub struct Answer {
    files: Vec<Written>,
    /// Levels and requests in it.
    levels: usize,
    requests: usize,
    /// Why numbers in it are not to be trusted, each with its folder.
    objections: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
struct Written {
    path: String,
    bytes: usize,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objections.iter().try_for_each(|why| writeln!(f, "not to be trusted: {why}"))?;
        self.files.iter().try_for_each(|file| writeln!(f, "{} ({} kB)", file.path, file.bytes.div_ceil(1000)))?;
        write!(f, "{} levels, {} requests", self.levels, self.requests)
    }
}

/// What a file is, by its ending.
#[derive(Debug, Clone, Copy)]
enum Form {
    Html,
    Markdown,
    Csv,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let forms = args.out.iter().map(|path| form(path)).collect::<Result<Vec<_>, _>>()?;
    let budgets = args.budgets.checked()?;
    let gpus = gpus(&args)?;
    let (sides, across) = side::sides(&args.folders, &args.across)?;
    let report = Report { sides: &sides, across: &across, budgets: &budgets, gpus: gpus.as_deref() };
    let mut files = Vec::new();
    for (path, form) in args.out.iter().zip(forms) {
        let text = match form {
            Form::Html => report.html()?,
            Form::Markdown => report.markdown(),
            Form::Csv => report.csv(),
        };
        output_file::write(path, &text)?;
        files.push(Written { path: path.display().to_string(), bytes: text.len() });
    }
    let levels: Vec<_> = sides.iter().flat_map(|side| &side.levels).collect();
    let objections = levels.iter().flat_map(|level| level.objections.iter().map(|why| format!("{}: {why}", level.folder.display()))).collect();
    ui::answer(global.manner(), &Answer { files, levels: levels.len(), requests: levels.iter().map(|level| level.requests.len()).sum(), objections });
    Ok(())
}

fn form(path: &Path) -> Result<Form, Failure> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => Ok(Form::Html),
        Some("md") => Ok(Form::Markdown),
        Some("csv") => Ok(Form::Csv),
        _ => Err(fail(Kind::Usage, format!("{}: its ending does not say what it shall be", path.display())).hint("--out report.html, --out comment.md or --out levels.csv").into()),
    }
}

fn gpus(args: &Args) -> Result<Option<Vec<u32>>, Failure> {
    match (args.gpus.as_slice(), args.folders.len()) {
        ([], _) => Ok(None),
        ([one], folders) => Ok(Some(vec![*one; folders])),
        (all, folders) if all.len() == folders => Ok(Some(all.to_vec())),
        (all, folders) => Err(fail(Kind::Usage, format!("--gpus has {} numbers for {folders} folders", all.len())).hint("one number, or one a folder").into()),
    }
}
