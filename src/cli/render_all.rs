//! `nemo render --all`: the serving manifests of every model, precision, topology and form, without notes or account.

use super::{Global, Settings, cores, session};
use crate::config::{self, Spec};
use crate::error::Failure;
use crate::render::{self, Facts, Gateway, Rendered, Serving};

/// What only an account knows stands in, so that the manifests are whole: nobody takes them for something to apply.
const ACCOUNT: &str = "000000000000";
const REVISION: &str = "0000000000000000000000000000000000000000";
const CLAIM: &str = "shared";

/// The manifests by the name of their folder, and what cannot be with the reason.
pub(super) type All = (Vec<(String, Vec<Rendered>)>, Vec<(String, String)>);

pub(super) fn manifests(global: &Global, settings: &Settings) -> Result<All, Failure> {
    let config::Every { specs, refused } = config::every(&session::inputs(global, settings)?)?;
    let part = |part: &[(String, Spec)]| part.iter().map(|(name, spec)| Ok((name.clone(), one(spec)?))).collect::<anyhow::Result<Vec<_>>>();
    let parts = cores::spread(&specs, part).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok((parts.into_iter().flatten().collect(), refused))
}

fn one(spec: &Spec) -> anyhow::Result<Vec<Rendered>> {
    let bytes = u64::from(spec.precision.weights_gb.value) * 1_000_000_000;
    let capacity_gib = config::capacity_gib(spec.storage.capacity_gib, bytes).map_err(anyhow::Error::msg)?;
    let region = if spec.region.is_empty() { "us-east-2" } else { &spec.region };
    let facts = Facts {
        image: format!("{ACCOUNT}.dkr.ecr.{region}.amazonaws.com/{}/vllm-runtime@sha256:{:064}", spec.name, 0),
        claim: CLAIM.to_owned(),
        model_path: format!("models/{}/{REVISION}", spec.precision.repository),
        weight_bytes: bytes,
        capacity_gib,
        efa: None,
        controllers: spec.controllers(),
    };
    let file_system = "fs-00000000000000000";
    let mut files = render::storage(&render::Storage {
        namespace: spec.serve.namespace.clone(),
        volume: format!("{}-{CLAIM}", spec.name),
        claim: CLAIM.to_owned(),
        capacity_gib,
        file_system_id: file_system.to_owned(),
        dns_name: format!("{file_system}.fsx.{region}.amazonaws.com"),
        mount_name: "standin".to_owned(),
    })?;
    let image = facts.image.replace("/vllm-runtime@", "/gateway@");
    let serving = Serving::new(spec, facts);
    let gateway = spec.exposed().then(|| Gateway::new(spec, &serving, image));
    files.extend(render::overlaid(&serving, gateway.as_ref(), &spec.overlay)?);
    Ok(files)
}
