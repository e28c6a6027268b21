//! `nemo platform`: the parts of the platform, with what is wanted and what is there.

use std::fmt;

use comfy_table::{Table, presets};
use serde::Serialize;

use super::{Access, Global, Session, Settings};
use crate::config::{Spec, VersionCell, unverified_of_platform};
use crate::engine::step::StepId;
use crate::error::Failure;
use crate::steps::platform::{PartStanding, standing};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nemo platform status\n  nemo platform status --output json\n\nAnother set of versions: nemo cleanup --from platform, then nemo up --set platform.set=1.4"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show add-ons, charts, definitions and webhooks: the version that is wanted, the one that is there, and how it stands
    Status {
        #[command(flatten)]
        settings: Settings,
    },
}

/// The answer of `nemo platform status`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    deployment: String,
    /// Key of configs/platform.toml.
    set: String,
    /// What belongs together in it: name and version.
    versions: Vec<(String, String)>,
    /// What of it nobody has read at a source.
    unverified: Vec<String>,
    parts: Vec<PartStanding>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: Vec<_> = self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        writeln!(f, "set {}: {}", self.set, versions.join(", "))?;
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(["PART", "WANTED", "THERE", "STATE"]);
        for part in &self.parts {
            table.add_row([&part.part, part.wanted.as_ref().unwrap_or(&String::new()), part.there.as_ref().unwrap_or(&String::new()), &part.state]);
        }
        writeln!(f, "{table}")?;
        if !self.unverified.is_empty() {
            write!(f, "\nNobody has read these at a source (unverified):\n  {}", self.unverified.join("\n  "))?;
        }
        Ok(())
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let Command::Status { settings } = args.command;
    let session = Session::open(global, &settings, Access::Read).await?;
    let parts = look(&session).await;
    let spec = session.spec.clone();
    session.finish().await;
    let (deployment, set, versions, unverified) = (spec.name.clone(), spec.platform_name.clone(), versions(&spec), unverified_of_platform(&spec));
    ui::answer(global.manner(), &Answer { kind: "platform", deployment, set, versions, unverified, parts: parts? });
    Ok(())
}

async fn look(session: &Session) -> Result<Vec<PartStanding>, Failure> {
    let (deps, mut walk) = session.noted_walk().await?;
    walk.plan(&[StepId::Cluster, StepId::Images].into()).await?;
    Ok(standing(&deps, &walk.facts).await?)
}

/// What is locked; charts are among the parts, with what is there of them.
fn versions(spec: &Spec) -> Vec<(String, String)> {
    let set = &spec.platform;
    let named = [
        ("Kubernetes", Some(&set.kubernetes)),
        ("Dynamo", Some(&set.dynamo)),
        ("vLLM", Some(&set.vllm)),
        ("EFA installer", Some(&set.efa_installer)),
        ("aws-ofi-nccl", Some(&set.aws_ofi_nccl)),
        ("Grove", set.grove.as_ref()),
        ("KAI", set.kai_scheduler.as_ref()),
        ("aiperf", Some(&set.aiperf)),
        ("EKS add-ons", Some(&set.addons.versions)),
    ];
    let of = |(name, cell): (&str, Option<&VersionCell>)| (name.to_owned(), cell.map_or_else(|| "not known".to_owned(), |cell| cell.version.clone()));
    named.into_iter().map(of).collect()
}
