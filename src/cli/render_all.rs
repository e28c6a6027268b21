//! `nemo render --all`: the serving manifests of every model, precision, topology and form, without notes or account.

use super::{Global, Settings, cores, session};
use crate::config::{self, Spec};
use crate::error::Failure;
use crate::render::{self, Facts, Gateway, Serving, Text};

/// The manifests by the name of their folder, and what cannot be with the reason.
pub(super) type All = (Vec<(String, Vec<Text>)>, Vec<(String, String)>);

pub(super) fn manifests(global: &Global, settings: &Settings) -> Result<All, Failure> {
    let config::Every { specs, refused } = config::every(&session::inputs(global, settings)?)?;
    let part = |part: &[(String, Spec)]| part.iter().map(|(name, spec)| Ok((name.clone(), one(spec)?))).collect::<anyhow::Result<Vec<_>>>();
    let parts = cores::spread(&specs, part).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok((parts.into_iter().flatten().collect(), refused))
}

fn one(spec: &Spec) -> anyhow::Result<Vec<Text>> {
    let facts = Facts::stand_in(spec)?;
    let file_system = "fs-00000000000000000";
    let mut files = vec![render::storage_text(&render::Storage {
        namespace: spec.serve.namespace.clone(),
        volume: format!("{}-{}", spec.name, facts.claim),
        claim: facts.claim.clone(),
        capacity_gib: facts.capacity_gib,
        file_system_id: file_system.to_owned(),
        dns_name: format!("{file_system}.fsx.us-east-2.amazonaws.com"),
        mount_name: "standin".to_owned(),
    })?];
    let image = facts.image.replace("/vllm-runtime@", "/gateway@");
    let serving = Serving::new(spec, facts);
    let gateway = spec.exposed().then(|| Gateway::new(spec, &serving, image));
    files.extend(render::texts(&serving, gateway.as_ref(), &spec.overlay)?);
    Ok(files)
}
