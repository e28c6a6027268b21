//! `nemo platform`: the parts of the platform, with what is wanted and what is there.

use std::fmt;

use comfy_table::{Table, presets};
use serde::Serialize;

use super::{Access, Global, Session, Settings};
use crate::config::Spec;
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
        write!(f, "{table}")
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let Command::Status { settings } = args.command;
    let session = Session::open(global, &settings, Access::Read).await?;
    let parts = look(&session).await;
    let (deployment, set, versions) = (session.spec.name.clone(), session.spec.platform_name.clone(), versions(&session.spec));
    session.finish().await;
    ui::answer(global.manner(), &Answer { kind: "platform", deployment, set, versions, parts: parts? });
    Ok(())
}

async fn look(session: &Session) -> Result<Vec<PartStanding>, Failure> {
    let (deps, mut walk) = session.noted_walk().await?;
    walk.plan(&[StepId::Cluster, StepId::Images].into()).await?;
    Ok(standing(&deps, &walk.facts).await?)
}

fn versions(spec: &Spec) -> Vec<(String, String)> {
    let set = &spec.platform;
    let named = [
        ("Kubernetes", Some(&set.kubernetes)),
        ("Dynamo", Some(&set.dynamo)),
        ("vLLM", Some(&set.vllm)),
        ("EFA installer", set.efa_installer.as_ref()),
        ("Grove", set.grove.as_ref()),
        ("KAI", set.kai_scheduler.as_ref()),
        ("aiperf", Some(&set.aiperf)),
    ];
    let of = |(name, cell): (&str, Option<&crate::config::VersionCell>)| (name.to_owned(), cell.map_or_else(|| "not known".to_owned(), |cell| cell.version.clone()));
    named.into_iter().map(of).collect()
}
