//! `nemo connect`: a port of this machine that leads to the frontend, for as long as the command runs.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{Access, Global, Session, Settings};
use crate::engine::step::StepId;
use crate::error::Failure;
use crate::k8s::{Target, forward};
use crate::steps::facts::{ClusterFacts, ServeFacts};
use crate::ui;

/// The port of this machine, unless another is asked for.
pub(super) const PORT: u16 = 8000;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo connect\n  nemo connect --port 9000")]
pub struct Args {
    /// Port on 127.0.0.1; 0: any that is free
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
}

/// The answer of `nemo connect`, given once the port is open.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    url: String,
    model: String,
    curl: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.curl)
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let manner = global.manner();
    let session = Session::open(global, &Settings::default(), Access::Read).await?;
    let found = find(&session).await;
    session.finish().await;
    let (client, serve) = found?;
    let target = Target { namespace: serve.namespace.clone(), service: serve.service.clone(), port: serve.port };
    let tell = Arc::new(move |text: String| ui::say(manner, text));
    let forward = forward(client, target, args.port, tell).await.map_err(anyhow::Error::new)?;
    let url = format!("http://{}", forward.address());
    let curl = serve.curl(&url);
    ui::say(manner, format!("{url} leads to {} until Ctrl-C; pods may come and go meanwhile. Try:", serve.model));
    ui::answer(manner, &Answer { kind: "connected", url, model: serve.model, curl });
    // Ended by the user, as asked: no failure.
    let _ = tokio::signal::ctrl_c().await;
    Ok(())
}

/// The client and where the frontend is: by the notes, or with lost notes by looking.
async fn find(session: &Session) -> Result<(kube::Client, ServeFacts), Failure> {
    let (deps, mut walk) = session.noted_walk().await?;
    if walk.facts.table(StepId::Serve).is_none() {
        let steps = walk.up_to(StepId::Serve);
        walk.plan(&steps).await?;
    }
    let serve: ServeFacts = walk.facts.get(StepId::Serve)?;
    let cluster: ClusterFacts = walk.facts.get(StepId::Cluster)?;
    Ok((deps.kube_of(&cluster)?, serve))
}
