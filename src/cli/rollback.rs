//! `nemo rollback`: back to a set of serving manifests that has served before, as the cluster keeps it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::up::Summary;
use super::{Access, Global, Session, Settings, session};
use crate::config::{self, Pins};
use crate::engine::event::EventKind;
use crate::engine::step::StepId;
use crate::error::{Failure, Kind, fail};
use crate::steps::apart;
use crate::steps::history::{self, Revision};
use crate::steps::serve::Serve;
use crate::ui;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Go back to this revision [default: the last one that has served and is not what is there]
    #[arg(long, value_name = "N")]
    to: Option<u32>,
    /// Show the revisions and change nothing
    #[arg(long, conflicts_with_all = ["to", "yes"])]
    list: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// The answer of `nemo rollback --list`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    deployment: String,
    /// The newest first.
    revisions: Vec<Shown>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Shown {
    revision: u32,
    /// Numbers that it had before it was gone back to; they still lead to it.
    was: Vec<u32>,
    /// What sets it apart from the one below it.
    apart: Vec<String>,
    /// When it served first.
    served: String,
    /// It is what the cluster has now.
    there: bool,
    model: String,
    topology: String,
    form: String,
    digest: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in &self.revisions {
            let there = if one.there { ", which is there now" } else { "" };
            let was: Vec<_> = one.was.iter().map(u32::to_string).collect();
            let was = if was.is_empty() { String::new() } else { format!(" (was {})", was.join(", ")) };
            writeln!(f, "{}{was}: {} {} as {}, served first on {}{there}", one.revision, one.model, one.topology, one.form, one.served)?;
            if !one.apart.is_empty() {
                writeln!(f, "    unlike the one below: {}", one.apart.join("; "))?;
            }
        }
        write!(f, "{} kept", self.revisions.len())
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let access = if args.list { Access::Read } else { Access::Write };
    let mut session = Session::open(global, &Settings::default(), access).await?;
    if args.list {
        let answer = listed(&session).await;
        session.finish().await;
        ui::answer(global.manner(), &answer?);
        return Ok(());
    }
    let result = back(&mut session, global, &args).await;
    session.finish().await;
    if let Some(summary) = result? {
        ui::answer(global.manner(), &summary);
    }
    Ok(())
}

/// What is kept, and whether the newest of it is what the cluster has now.
struct Known {
    client: kube::Client,
    revisions: Vec<Revision>,
    there: bool,
    /// Digest of what the settings render now, where they can be rendered.
    wanted: Option<String>,
}

async fn known(session: &Session) -> Result<Known, Failure> {
    let (deps, walk, client) = session.cluster().await?;
    let revisions = history::list(&client, &session.spec).await.map_err(anyhow::Error::new)?;
    let serve = Serve::new(deps);
    let there = match revisions.first() {
        Some(newest) => serve.is_there(&client, newest).await?,
        None => false,
    };
    let wanted = serve.wanted(&walk.facts).await.ok();
    Ok(Known { client, revisions, there, wanted })
}

async fn listed(session: &Session) -> Result<Answer, Failure> {
    let Known { revisions, there, .. } = known(session).await?;
    let setting = |revision: &Revision, key: &str| revision.settings.get(key).cloned().unwrap_or_default();
    let shown = |(n, revision): (usize, &Revision)| Shown {
        revision: revision.number,
        was: revision.was.clone(),
        apart: revisions.get(n + 1).map(|before| apart(revision, before)).unwrap_or_default(),
        served: revision.served.clone(),
        there: n == 0 && there,
        model: setting(revision, "model"),
        topology: setting(revision, "serve.topology"),
        form: setting(revision, "serve.form"),
        digest: revision.digest.clone(),
    };
    Ok(Answer { kind: "revisions", deployment: session.spec.name.clone(), revisions: revisions.iter().enumerate().map(shown).collect() })
}

async fn back(session: &mut Session, global: &Global, args: &Args) -> Result<Option<Summary>, Failure> {
    let Known { client, revisions, there, wanted } = known(session).await?;
    let target = chosen(&revisions, there, args.to)?.clone();
    session.take(spec_of(global, &target)?)?;
    let (pins, account) = pinned(session).await?;
    let (deps, mut walk) = session.walk(pins, &account)?;
    walk.replace(Arc::new(Serve { deps, kept: Some(Arc::new(target.clone())) }));
    let steps = [StepId::Serve].into();
    let plan = walk.plan(&steps).await?;
    session.events.send(None, EventKind::Planned { plan: plan.planned.clone() });
    if let Some(refusal) = walk.unmet(&plan, &steps).or_else(|| plan.refusal()) {
        return Err(refusal);
    }
    if !plan.acts() {
        ui::say(session.manner, format!("revision {} is what is there: nothing to do", target.number));
    } else {
        ui::say(session.manner, ui::plan(&plan.planned));
        ui::say(session.manner, format!("back to revision {}, which served first on {}", target.number, target.served));
        if !args.yes {
            ui::confirm(session.manner, "Go back to it?", &session.stop).await?;
        }
        // What is left behind, for the next walk to know it again: the set that is there, or the one that was begun and never served.
        let behind = if there { revisions.first().map(|newest| newest.digest.as_str()) } else { wanted.as_deref() };
        history::raise(&client, &session.spec, &target, behind.filter(|behind| *behind != target.digest)).await.map_err(anyhow::Error::new)?;
    }
    let planned = plan.planned.clone();
    let exists = walk.run(plan).await?;
    if wanted.as_ref() != Some(&target.digest) {
        ui::say(session.manner, "the settings are as before: nemo up would apply them again, and says so; let them say what serves now");
    }
    Ok(Some(Summary::new(&walk, &planned, exists)))
}

/// As noted; without notes, resolved anew as `nemo up` does.
async fn pinned(session: &Session) -> Result<(Pins, String), Failure> {
    if let (Some(pins), Some(state)) = (session.pins()?, &session.noted) {
        return Ok((pins, state.account.clone()));
    }
    let (report, pins) = session.check().await?;
    match report.failure() {
        Some(failure) => {
            ui::say(session.manner, &report);
            Err(failure)
        }
        None => Ok((pins, report.account.unwrap_or_default())),
    }
}

fn chosen(revisions: &[Revision], there: bool, to: Option<u32>) -> Result<&Revision, Failure> {
    let kept = || revisions.iter().map(|revision| revision.number.to_string()).collect::<Vec<_>>().join(", ");
    match (to, history::previous(revisions, there)) {
        (Some(number), _) => revisions
            .iter()
            .find(|revision| revision.is(number))
            .ok_or_else(|| fail(Kind::Usage, format!("there is no revision {number}: kept are {}", kept())).hint("nemo rollback --list").into()),
        (None, Some(previous)) => Ok(previous),
        (None, None) => Err(fail(Kind::Usage, "there is nothing to go back to: no other set of manifests has served yet").hint("nemo rollback --list; nemo apply").into()),
    }
}

/// The settings of now, with those that shaped the revision over them. Its manifests need no overlay any more.
fn spec_of(global: &Global, target: &Revision) -> Result<config::Spec, Failure> {
    let mut inputs = session::inputs(global, &Settings::default())?;
    let (_, layers) = config::load(&inputs)?;
    // Another version may have had other settings. Where the certificate is now, whoever goes back may say.
    let typed: Vec<String> = inputs.flags.iter().map(|(key, _)| key.clone()).filter(|key| key.starts_with("serve.tls_")).collect();
    let recorded = target.settings.iter().filter(|(key, _)| layers.get(key).is_some() && !typed.contains(key));
    inputs.flags.extend(recorded.map(|(key, value)| (key.clone(), value.clone())));
    inputs.flags.extend(["render.templates", "render.patches"].map(|key| (key.to_owned(), String::new())));
    Ok(config::load(&inputs)?.0)
}
