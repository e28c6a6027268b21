//! `nemo cluster`: the cluster's part of the walk, and the token that kubectl asks for.

use std::fmt;

use serde_json::{Value, json};

use super::up::{self, Selection};
use super::{Global, Session, Settings, cleanup, status};
use crate::aws::{Aws, Token};
use crate::config;
use crate::engine::clock;
use crate::engine::step::StepId;
use crate::error::{Failure, Kind, fail};
use crate::k8s::kubeconfig;
use crate::steps::facts::ClusterFacts;
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo cluster create --instance p5en.48xlarge\n  nemo cluster delete")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make network, control plane, system nodes and GPU nodes
    Create {
        #[command(flatten)]
        settings: Box<Settings>,
        #[command(flatten)]
        go: up::Go,
    },
    /// Show the state of network, control plane and nodes, and what they cost
    Status,
    /// Remove the control plane, its nodes and all that stands on them; network, images and file system stay
    Delete {
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Print a token for the cluster, as kubectl asks for it through the kubeconfig entry
    Token,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    match args.command {
        Command::Create { settings, go } => up::go(global, &settings, &go, Selection::Only(STEPS.into())).await,
        Command::Status => status::show(global, &Settings::default(), &STEPS).await,
        Command::Delete { yes } => cleanup::run(cleanup::Args { from: Some(StepId::Cluster), yes }, global).await,
        Command::Token => token(global).await,
    }
}

/// What `nemo cluster` is about.
const STEPS: [StepId; 4] = [StepId::Network, StepId::Cluster, StepId::SystemNodes, StepId::GpuNodes];

/// The answer to kubectl: an ExecCredential. It holds a secret, and printing it is what the command is for.
struct Credential(Value);

impl Credential {
    fn of(token: &Token) -> Self {
        Self(json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "spec": {},
            "status": {"expirationTimestamp": token.expires.to_string(), "token": token.value.reveal()},
        }))
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl serde::Serialize for Credential {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

async fn token(global: &Global) -> Result<(), Failure> {
    // kubectl calls from any folder: with both flags no settings file is read.
    let (name, region) = match (&global.name, &global.region) {
        (Some(name), Some(region)) => (name.clone(), region.clone()),
        _ => {
            let spec = config::load(&super::session::inputs(global, &Settings::default())?)?.0;
            (spec.name, spec.region)
        }
    };
    let token = Aws::load(&region).await?.cluster_token(&name, clock::now()).await.map_err(anyhow::Error::new)?;
    ui::answer(global.manner(), &Credential::of(&token));
    Ok(())
}

/// Name of our entry in the kubeconfig.
fn context(name: &str, region: &str) -> String {
    format!("{name}.{region}")
}

/// Enters the cluster into the kubeconfig; says so when something changed.
pub fn enter_kubeconfig(session: &Session, cluster: &ClusterFacts) -> Result<(), Failure> {
    let region = session.aws.region.as_str();
    let path = kubeconfig::path().ok_or_else(|| fail(Kind::Config, "there is no place for a kubeconfig").hint("set KUBECONFIG or HOME"))?;
    let program = std::env::current_exe().map_err(|error| Failure::new(Kind::LocalIo, format!("finding this program: {error}")))?;
    let arguments = ["cluster", "token", "--name", &cluster.name, "--region", region];
    let variables = ["AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"];
    let entry = kubeconfig::Entry {
        name: context(&cluster.name, region),
        server: cluster.endpoint.clone(),
        certificate_authority: cluster.certificate_authority.clone(),
        namespace: session.spec.serve.namespace.clone(),
        command: std::iter::once(program.display().to_string()).chain(arguments.map(str::to_owned)).collect(),
        env: variables.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect(),
    };
    if kubeconfig::enter(&path, &entry)? {
        ui::say(session.manner, format!("kubectl --context {} works now (written to {})", entry.name, path.display()));
    }
    Ok(())
}

/// Takes the cluster out of the kubeconfig.
pub fn leave_kubeconfig(session: &Session) -> Result<(), Failure> {
    if let Some(path) = kubeconfig::path() {
        kubeconfig::remove(&path, &context(&session.spec.name, &session.aws.region))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn is_what_kubectl_reads() {
        let token = Token { value: Secret::new("k8s-aws-v1.abc"), expires: "2026-11-30T12:14:00Z".parse().unwrap() };
        let credential: Value = serde_json::from_str(&Credential::of(&token).to_string()).unwrap();
        assert_eq!(credential["status"], json!({"expirationTimestamp": "2026-11-30T12:14:00Z", "token": "k8s-aws-v1.abc"}));
        assert_eq!((credential["kind"].as_str(), credential["apiVersion"].as_str()), (Some("ExecCredential"), Some("client.authentication.k8s.io/v1")));
    }
}
