//! `nemo render`: the manifests as they would be applied, with the reason for each setting, to read or to keep.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::{Access, Global, Session, Settings, output_file, render_all};
use crate::engine::step::{Facts, StepId};
use crate::error::Failure;
use crate::render::Text;
use crate::steps::serve::{Inputs, Serve};
use crate::steps::{Deps, linted, storage};
use crate::ui;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nemo render --out manifests/\n  nemo render | kubectl diff -f -\n  nemo render --topology pipeline-parallel --as lws --nodes 2")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Write the files into this folder instead of stdout
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Every model, precision, topology and form that the settings allow, each in a folder of its own: to read and to check, not to apply, since what only an account knows is made up
    #[arg(long)]
    all: bool,
}

/// The answer of `nemo render`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    kind: &'static str,
    files: Vec<File>,
    /// With `--all`: what cannot be with these settings.
    refused: Vec<Refused>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct File {
    name: String,
    /// Where it was written, with `--out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    text: String,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Refused {
    /// `nemotron-3-ultra-bf16/aggregated-deployments`
    name: String,
    why: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.files.iter().map(|file| match &file.path {
            Some(path) => path.display().to_string(),
            None => format!("---\n# {}\n{}", file.name, file.text.trim_end()),
        });
        f.write_str(&parts.collect::<Vec<_>>().join("\n"))
    }
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let ((rendered, refused), wrong) = if args.all {
        (render_all::manifests(global, &args.settings)?, None)
    } else {
        let session = Session::open(global, &args.settings, Access::Read).await?;
        let rendered = manifests(&session).await;
        session.finish().await;
        let (rendered, wrong) = rendered?;
        ((vec![(String::new(), rendered)], Vec::new()), wrong)
    };
    let mut files = Vec::new();
    for (folder, set) in rendered {
        for Text { file, text, .. } in set {
            files.push(written(Path::new(&folder).join(file), text, args.out.as_deref())?);
        }
    }
    let manner = global.manner();
    if !refused.is_empty() {
        let names: Vec<_> = refused.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        ui::say(manner, format!("cannot be with these settings:\n  {}", names.join("\n  ")));
    }
    let refused = refused.into_iter().map(|(name, why)| Refused { name, why }).collect();
    ui::answer(manner, &Answer { kind: "rendered", files, refused });
    // Shown all the same: who corrects them has to see them.
    wrong.map_or(Ok(()), Err)
}

/// The file as it is answered; with a folder to write to, written.
fn written(name: PathBuf, text: String, out: Option<&Path>) -> Result<File, Failure> {
    let path = out.map(|folder| folder.join(&name));
    if let Some(path) = &path {
        output_file::write(path, &text)?;
    }
    Ok(File { name: name.display().to_string(), path, text })
}

/// The manifests, and why they would not serve, where the lint can tell.
async fn manifests(session: &Session) -> Result<(Vec<Text>, Option<Failure>), Failure> {
    let (deps, _, inputs) = inputs(session, &[]).await?;
    let mut files = storage::rendered(&inputs.storage, &inputs.filesystem)?;
    let (_, serving) = Serve::new(deps).rendered(&inputs)?;
    let wrong = linted::refuse(&serving).err().map(Failure::from);
    files.extend(serving);
    Ok((files.into_iter().map(Text::from).collect(), wrong))
}

/// What the manifests need, from what the steps before have noted; with lost notes, from what their looks find. `more`: steps whose facts are needed, too.
pub(super) async fn inputs(session: &Session, more: &[StepId]) -> Result<(Arc<Deps>, Arc<Facts>, Inputs), Failure> {
    let account = session.noted.as_ref().map(|state| state.account.clone()).unwrap_or_default();
    // Without notes what everything was made from is resolved anew, as far as that goes.
    let pins = match session.pins()? {
        Some(pins) => pins,
        None => session.check().await?.1,
    };
    let (deps, mut walk) = session.walk(pins, &account)?;
    let needed: BTreeSet<StepId> = [StepId::Filesystem, StepId::Images, StepId::Storage, StepId::Weights].into_iter().chain(more.iter().copied()).collect();
    if needed.iter().any(|step| walk.facts.table(*step).is_none()) {
        walk.plan(&needed).await?;
    }
    // A file says where it went by the catalogue because nobody answered.
    if let Ok(client) = walk.facts.get(StepId::Cluster).and_then(|cluster| deps.kube_of(&cluster)) {
        let _ = deps.look_live(&client, deps.spec.controllers()).await;
    }
    let inputs = Inputs::of(&walk.facts)?;
    Ok((deps, walk.facts.clone(), inputs))
}
