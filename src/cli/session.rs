//! What every command that looks at or changes a deployment begins with: settings, credentials, notes, lock, listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::{Global, Settings};
use crate::aws::{self, Aws};
use crate::check::{self, Report};
use crate::config::{self, Pins, Spec};
use crate::engine::clock;
use crate::engine::event::Events;
use crate::engine::state::{Lock, Place, State};
use crate::engine::step::StepId;
use crate::engine::walk::Walk;
use crate::error::{Failure, Kind, fail};
use crate::secret::Secret;
use crate::steps::certificate::Pair;
use crate::steps::gateway::Given;
use crate::steps::{self, Deps};
use crate::ui::{self, Listening, Manner};

/// Does the command change anything? Then it holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// A deployment, as one command sees it.
pub struct Session {
    pub manner: Manner,
    pub spec: Arc<Spec>,
    pub aws: Aws,
    pub http: reqwest::Client,
    pub hub_token: Option<Secret>,
    gateway: Given,
    pub place: Place,
    /// The notes as they were when the command began.
    pub noted: Option<State>,
    pub events: Events,
    pub stop: CancellationToken,
    listening: Listening,
    _lock: Option<Lock>,
}

impl Session {
    /// Loads settings, credentials and notes; with [`Access::Write`] also takes the lock. No call leaves the machine yet.
    pub async fn open(global: &Global, settings: &Settings, access: Access) -> Result<Self, Failure> {
        let manner = global.manner();
        let folder = std::env::current_dir().context("finding the working folder")?;
        let spec = Arc::new(config::load(&inputs(global, settings)?)?.0);
        let place = Place::new(&folder, &spec.name);
        let lock = if access == Access::Write { Some(place.lock()?) } else { None };
        let noted = place.read()?;
        let hub_token = hub_token()?;
        let gateway = given(&spec, &folder)?;
        let aws = Aws::load(&spec.region).await?;
        if let Some(noted) = &noted {
            is_of(noted, &spec.name, &aws.region, &place.path("toml"))?;
        }
        let (events, receiver) = Events::new();
        let log = (access == Access::Write).then(|| place.path("log"));
        let listening = ui::listen(manner, receiver, log);
        let stop = CancellationToken::new();
        if access == Access::Write {
            stop_on_signal(stop.clone(), manner);
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("nemo/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(std::time::Duration::from_secs(10))
            .build()
            .context("starting the HTTP client")?;
        Ok(Self { manner, spec, aws, http, hub_token, gateway, place, noted, events, stop, listening, _lock: lock })
    }

    /// Refuses a certificate or key for the gateway that cannot be used.
    pub fn usable(&self) -> Result<(), Failure> {
        Ok(self.gateway.usable()?)
    }

    /// The same deployment with other settings, and what those ask of the user's files for the gateway.
    pub fn take(&mut self, spec: Spec) -> Result<(), Failure> {
        let folder = std::env::current_dir().context("finding the working folder")?;
        self.gateway = given(&spec, &folder)?;
        self.spec = Arc::new(spec);
        Ok(())
    }

    /// What was resolved when the deployment was planned; nothing if it never was.
    pub fn pins(&self) -> Result<Option<Pins>, Failure> {
        let Some(state) = self.noted.as_ref().filter(|state| !state.pins.is_empty()) else { return Ok(None) };
        let pins = toml::Value::Table(state.pins.clone())
            .try_into()
            .map_err(|e| Failure::new(Kind::Config, format!("{}: the table pins is not as this version writes it: {e}", self.place.path("toml").display())))?;
        Ok(Some(pins))
    }

    /// Asks every question of the check, and resolves what is not pinned yet.
    pub async fn check(&self) -> Result<(Report, Pins), Failure> {
        let pins = self.pins()?;
        let questions = check::Inputs { spec: &self.spec, aws: &self.aws, http: &self.http, hub_token: self.hub_token.as_ref(), pins: pins.as_ref() };
        let (report, pins) = tokio::select! {
            answered = check::run(questions) => answered,
            () = self.stop.cancelled() => return Err(Failure::new(Kind::Interrupted, "stopped while checking: nothing was done")),
        };
        if let Some(account) = &report.account {
            self.same_account(account)?;
        }
        Ok((report, pins))
    }

    /// Refuses credentials of another account than the notes are about: there nothing of ours would be found, and all of it taken for gone.
    fn same_account(&self, account: &str) -> Result<(), Failure> {
        match &self.noted {
            Some(state) if state.account != account => {
                Err(fail(Kind::Credentials, format!("the deployment {:?} was made in account {}, and these credentials are of account {account}", self.spec.name, state.account))
                    .hint("use the credentials of that account, or another --name")
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// The walk with these pins.
    pub fn walk(&self, pins: Pins, account: &str) -> Result<(Arc<Deps>, Walk), Failure> {
        let mut state = self.noted.clone().unwrap_or_else(|| State::new(&self.spec.name, account, &self.aws.region));
        state.pins = toml::Table::try_from(&pins).context("the pins do not serialise")?;
        let deps = Deps::new(self.spec.clone(), Arc::new(pins), self.aws.clone(), self.http.clone(), self.hub_token.clone());
        let deps = Arc::new(deps.with_gateway(self.gateway.clone()));
        let walk = Walk::new(steps::all(&deps), self.place.clone(), state, self.events.clone(), self.stop.clone());
        Ok((deps, walk))
    }

    /// The walk by the notes alone, for commands that ask no other question of the check than whose credentials these are.
    pub async fn noted_walk(&self) -> Result<(Arc<Deps>, Walk), Failure> {
        let identity = tokio::select! {
            identity = aws::sts::identity(&self.aws) => identity.map_err(anyhow::Error::new)?,
            () = self.stop.cancelled() => return Err(Failure::new(Kind::Interrupted, "stopped: nothing was done")),
        };
        self.same_account(&identity.account)?;
        let pins = self.pins()?;
        let pinned = pins.is_some();
        let (deps, mut walk) = self.walk(pins.unwrap_or_default(), &identity.account)?;
        walk.pinned = pinned;
        Ok((deps, walk))
    }

    /// The walk by the notes and the cluster's client; where the notes are lost, by looking for the cluster.
    pub async fn cluster(&self) -> Result<(Arc<Deps>, Walk, kube::Client), Failure> {
        let (deps, mut walk) = self.noted_walk().await?;
        if walk.facts.table(StepId::Cluster).is_none() {
            walk.plan(&[StepId::Cluster].into()).await?;
        }
        let Ok(cluster) = walk.facts.get(StepId::Cluster) else {
            let message = format!("there is no cluster {:?} in {}", self.spec.name, self.aws.region);
            return Err(fail(Kind::Usage, message).hint("nemo status shows what is there; nemo up --to cluster makes it").into());
        };
        let client = deps.kube_of(&cluster)?;
        Ok((deps, walk, client))
    }

    /// Waits until everything that was said is shown. The walk must be gone by then: it holds a sender.
    pub async fn finish(self) {
        let Self { events, listening, .. } = self;
        drop(events);
        listening.finish().await;
    }
}

/// What the layers of settings are made from.
pub fn inputs(global: &Global, settings: &Settings) -> Result<config::Inputs, Failure> {
    let mut flags = settings.overrides();
    flags.extend(global.name.clone().map(|name| ("name".to_owned(), name)));
    flags.extend(global.region.clone().map(|region| ("region".to_owned(), region)));
    for pair in &global.set {
        let (key, value) = pair.split_once('=').ok_or_else(|| Failure::from(fail(Kind::Usage, format!("--set {pair}: not KEY=VALUE")).hint("--set gpu.nodes=2")))?;
        flags.push((key.to_owned(), value.to_owned()));
    }
    let working_folder = std::env::current_dir().context("finding the working folder")?;
    // `vars` would panic at a variable that is no UTF-8; such a one is no setting.
    let env = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
    Ok(config::Inputs { working_folder, file: global.config.clone(), env, flags })
}

/// Notes about another deployment or region are refused: with them, what is elsewhere would be taken for gone.
fn is_of(noted: &State, name: &str, region: &str, path: &Path) -> Result<(), Failure> {
    if noted.deployment != name {
        let message = format!("{} is about the deployment {:?}, and this is {name:?}", path.display(), noted.deployment);
        return Err(fail(Kind::Config, message).hint(format!("move the file away, or use --name {}", noted.deployment)).into());
    }
    if noted.region != region {
        let message = format!("the deployment {name:?} was made in {}, and the region is {region} now", noted.region);
        return Err(fail(Kind::Config, message).hint(format!("--region {}, or another --name", noted.region)).into());
    }
    Ok(())
}

/// `HF_TOKEN`, or the file where `hf auth login` puts it. One that no header can carry is refused, without being shown.
fn hub_token() -> Result<Option<Secret>, Failure> {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let file = var("HF_TOKEN_PATH")
        .map(PathBuf::from)
        .or_else(|| var("HF_HOME").map(|home| Path::new(&home).join("token")))
        .or_else(|| var("HOME").map(|home| Path::new(&home).join(".cache/huggingface/token")));
    let Some(token) = var("HF_TOKEN").or_else(|| std::fs::read_to_string(file?).ok().filter(|token| !token.trim().is_empty())) else { return Ok(None) };
    if !token.trim().chars().all(|letter| letter.is_ascii_graphic()) {
        return Err(fail(Kind::Credentials, "the Hugging Face token holds a space, a line break or another character that no token has")
            .hint("look at HF_TOKEN, or sign in anew: hf auth login")
            .into());
    }
    Ok(Some(Secret::new(token.trim())))
}

/// For the gateway: `NEMO_API_KEY`, or what is in the file `NEMO_API_KEY_FILE`; and the certificate, from the files in the settings.
fn given(spec: &Spec, folder: &Path) -> Result<Given, Failure> {
    if !spec.exposed() {
        return Ok(Given::default());
    }
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let key = match (var("NEMO_API_KEY"), var("NEMO_API_KEY_FILE")) {
        (Some(key), _) => Some(key),
        (None, Some(file)) => Some(std::fs::read_to_string(&file).with_context(|| format!("reading the API key from {file} (NEMO_API_KEY_FILE)"))?),
        (None, None) => None,
    };
    let key = key.map(|key| Given::checked(&key)).transpose()?;
    let (certificate, private) = (spec.serve.tls_certificate.as_str(), spec.serve.tls_key.as_str());
    let pair = || Pair::read(folder, certificate, private, clock::now());
    Ok(Given { key, certificate: (!certificate.is_empty()).then(pair) })
}

/// Ctrl-C once: finish the call in flight, note it, and say what exists. Twice: leave at once.
fn stop_on_signal(stop: CancellationToken, manner: Manner) {
    tokio::spawn(async move {
        for times in 1.. {
            if !signal().await {
                return;
            }
            if times > 1 {
                std::process::exit(i32::from(Kind::Interrupted.exit_code()));
            }
            stop.cancel();
            ui::say(manner, "stopping: finishing the calls in flight (once more: leave at once)");
        }
    });
}

async fn signal() -> bool {
    use tokio::signal::unix::{SignalKind, signal};
    // A terminal that goes away must not cost the note about the call in flight either.
    let (Ok(mut terminate), Ok(mut hangup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) else { return false };
    tokio::select! {
        got = tokio::signal::ctrl_c() => got.is_ok(),
        got = terminate.recv() => got.is_some(),
        got = hangup.recv() => got.is_some(),
    }
}

/// `-v`, `-vv`: the libraries' own words on stderr. Never bodies, which could hold secrets.
pub fn start_tracing(verbose: u8) {
    let filter = match verbose {
        0 => return,
        1 => "aws_smithy_runtime=info,kube=info",
        _ => "aws_smithy_runtime::client::orchestrator=debug,kube=debug,reqwest=debug",
    };
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().try_init();
}
