//! `nemo check`: every question that is asked before something is made; changes nothing.

use super::{Access, Global, Session, Settings};
use crate::check;
use crate::error::Failure;
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo check --instance p5en.48xlarge --region us-east-2\n  nemo check --output json")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let session = Session::open(global, &args.settings, Access::Read).await?;
    // What is pinned is asked again here: who runs the check wants to know how things are now.
    let questions = check::Inputs { spec: &session.spec, aws: &session.aws, http: &session.http, hub_token: session.hub_token.as_ref(), pins: None };
    let (report, _) = check::run(questions).await;
    session.finish().await;
    ui::answer(global.manner(), &report);
    report.failure().map_or(Ok(()), Err)
}
