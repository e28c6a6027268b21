//! `nemo test cluster`: does the cluster work? From what nccl-tests printed and what the agents saw meanwhile.

use std::path::{Path, PathBuf};

use super::{Global, Settings, output_file, session};
use crate::engine::clock;
use crate::error::{Failure, Kind, fail};
use crate::nccl::{self, Baseline};
use crate::proof::{Asked, Watched, answer};
use crate::{config, ui};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nemo test cluster --log run.txt --samples node-0.jsonl --samples node-1.jsonl --nodes 2 --instance p5en.48xlarge\n\nThe log is what nccl-tests prints with NCCL_DEBUG=INFO on every rank; the samples are what `nemo agent node` prints on each node while it runs. What passes is use on every GPU and traffic on every EFA adapter, over the plug-in with GPUDirect; bandwidth counts where somebody has published it for the same sizes."
)]
pub struct Args {
    /// What nccl-tests and NCCL printed; more than one where each rank has its own
    #[arg(long, required = true, value_name = "FILE")]
    log: Vec<PathBuf>,
    /// What nccl-tests wrote as JSON, for more digits than its log has
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What the agent of a node said; one for each node
    #[arg(long, value_name = "FILE")]
    samples: Vec<PathBuf>,
    /// Keep what was reached in .nemo/, for the next run of the same kind to be held against where nothing is published
    #[arg(long)]
    save_baseline: bool,
    #[command(flatten)]
    settings: Settings,
}

pub fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let (spec, _) = config::resolve(&session::inputs(global, &args.settings)?)?;
    let logs = args.log.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let samples = args.samples.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let json = args.json.as_ref().map(read).transpose()?;
    let (instance, nodes) = (spec.instance.type_name.clone(), spec.gpu.nodes);
    let adapters = spec.instance.efa.as_ref().map_or(0, |efa| efa.value);
    let collective = nccl::read(json.as_deref().unwrap_or(&logs.concat()).as_bytes()).collective().unwrap_or("run").to_owned();
    let kept = PathBuf::from(format!(".nemo/nccl-{instance}-{nodes}-{collective}.json"));
    let asked = Asked { instance: instance.clone(), nodes, gpus: spec.gpus(), adapters, baseline: baseline(&kept)? };
    let answer = answer(&asked, &logs, json.as_deref(), &Watched::read(samples.iter().map(String::as_str)))?;
    ui::answer(global.manner(), &answer);
    if answer.passed {
        return if args.save_baseline { save(&kept, Baseline::of(&answer.run, &instance, nodes, clock::now())) } else { Ok(()) };
    }
    let rules: std::collections::BTreeSet<&str> = answer.transport_objections.iter().map(|objection| objection.rule.as_str()).collect();
    let more = match answer.objections.len() {
        1 => String::new(),
        all => format!("; {} more above", all - 1),
    };
    let failure = Failure::new(Kind::Verification, format!("this stands against the cluster: {}{more}", answer.objections[0]));
    Err(rules.into_iter().fold(failure, |failure, rule| failure.hint(format!("nemo explain {rule}"))).hint("nemo explain looks at the cluster"))
}

fn baseline(file: &Path) -> Result<Option<Baseline>, Failure> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(
            serde_json::from_str(&text)
                .map_err(|e| fail(Kind::Config, format!("{}: not a baseline: {e}", file.display())).hint("remove it, and save it anew with --save-baseline"))?,
        )),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(fail(Kind::LocalIo, format!("{}: {e}", file.display())).hint("make it readable, or remove it").into()),
    }
}

/// Only of a run that passed: what a sick cluster reaches is no measure.
fn save(file: &Path, baseline: Option<Baseline>) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&baseline).map_err(anyhow::Error::new)?;
    output_file::write(file, &text)
}

/// What is no UTF-8 in a log is a rank that was cut in the middle of a word.
fn read(file: &PathBuf) -> Result<String, Failure> {
    let bytes = std::fs::read(file).map_err(|e| fail(Kind::LocalIo, format!("{}: {e}", file.display())).hint("name a file that is there"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    /// What the hints name can be asked for.
    #[test]
    fn every_rule_that_a_network_breaks_is_explained() {
        for rule in ["N22", "N27"] {
            assert!(crate::lint::rule(rule).is_some(), "{rule}");
        }
    }
}
