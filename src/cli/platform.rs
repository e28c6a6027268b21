//! `nemo platform`: the parts of the platform, with what is wanted and what is there.

use std::fmt;

use comfy_table::{Table, presets};
use serde::Serialize;

use super::{Access, Global, Session, Settings};
use crate::config::{Spec, VersionCell, unverified_of_platform};
use crate::engine::step::StepId;
use crate::error::{Failure, Kind};
use crate::steps::platform::{PartStanding, standing};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nemo platform status\n  nemo platform status --output json\n\nExit code 16 when a part is not ready.\nAnother set of versions: nemo cleanup --from platform, then nemo up --set platform.set=1.4"
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

impl Answer {
    /// What is not as it should be, for who asks by the exit code.
    fn failure(&self) -> Option<Failure> {
        let wrong: Vec<_> = self.parts.iter().filter(|part| !part.ok).map(|part| format!("{}: {}", part.part, part.state)).collect();
        let failure = || {
            Failure::new(Kind::Verification, format!("{} of {} parts of the platform are not ready: {}", wrong.len(), self.parts.len(), wrong.join("; ")))
                .hint("nemo explain platform says what their pods say; nemo up --to platform makes what is missing")
        };
        (!wrong.is_empty()).then(failure)
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let Command::Status { settings } = args.command;
    let session = Session::open(global, &settings, Access::Read).await?;
    let parts = look(&session).await;
    let spec = session.spec.clone();
    session.finish().await;
    let (deployment, set, versions, unverified) = (spec.name.clone(), spec.platform_name.clone(), versions(&spec), unverified_of_platform(&spec));
    let answer = Answer { kind: "platform", deployment, set, versions, unverified, parts: parts? };
    ui::answer(global.manner(), &answer);
    answer.failure().map_or(Ok(()), Err)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_that_does_not_answer_is_told_by_the_exit_code_and_what_nemo_does_not_install_is_not() {
        let part = |part: &str, state: &str, ok| PartStanding { part: part.into(), wanted: None, there: None, state: state.into(), ok };
        let answer = |webhooks: PartStanding| Answer {
            kind: "platform",
            deployment: "nemo".into(),
            set: "1.6".into(),
            versions: Vec::new(),
            unverified: Vec::new(),
            parts: vec![part("definition podcliquesets.grove.io", "not there: it comes with Grove, which nemo does not install", true), webhooks],
        };
        let failure = answer(part("webhooks", "failed calling webhook: connection refused", false)).failure().unwrap();
        assert_eq!((failure.kind.exit_code(), failure.message.as_str()), (16, "1 of 2 parts of the platform are not ready: webhooks: failed calling webhook: connection refused"));
        assert!(answer(part("webhooks", "ready", true)).failure().is_none());
    }
}
