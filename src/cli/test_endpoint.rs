//! `nemo test endpoint`: what users of the API rely on, asked now. Notes nothing: what `nemo up` waits for is `nemo test`.

use std::path::PathBuf;

use super::test::{Answer, serving, told};
use super::{Access, Global, Session, Settings, output_file};
use crate::endpoint::export;
use crate::engine::clock;
use crate::error::Failure;
use crate::steps::test::examine;
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo test endpoint\n  nemo test endpoint --junit results.xml --ctrf results.json")]
pub struct Args {
    /// Write the results as JUnit's XML, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the results as CTRF's JSON, too
    #[arg(long, value_name = "FILE")]
    ctrf: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    // A file that cannot be written is better known before minutes of questions.
    for file in [&args.junit, &args.ctrf].into_iter().flatten() {
        output_file::writable(file)?;
    }
    let session = Session::open(global, &args.settings, Access::Read).await?;
    let result = examined(&session, &args).await;
    session.finish().await;
    told(&result?, global)
}

async fn examined(session: &Session, args: &Args) -> Result<Answer, Failure> {
    let (_, client, serve) = serving(session).await?;
    let started = clock::now();
    let mut done = 0;
    let told = |test: &crate::endpoint::TestResult, of| {
        done += 1;
        ui::say(session.manner, format!("{done} of {of}: {} {} ({:.1} s)", test.id, if test.passed() { "ok" } else { "FAIL" }, test.seconds));
    };
    let outcome = examine(&session.spec, &client, &serve, told).await.map_err(anyhow::Error::new)?;
    if let Some(file) = &args.junit {
        output_file::write(file, &export::junit(&outcome))?;
    }
    if let Some(file) = &args.ctrf {
        output_file::write(file, &format!("{:#}\n", export::ctrf(&outcome, started, clock::now())))?;
    }
    Ok(Answer { kind: "test", outcome })
}
