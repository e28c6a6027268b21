//! EKS's own add-ons that run on nodes: DNS and the CSI drivers.

use futures::future::try_join_all;

use super::super::{Deps, mark};
use super::part::Part;
use super::standing::{PartStanding, told};
use crate::aws::eks::{Addon, Eks, NewAddon};
use crate::engine::step::{Cx, Digest};
use crate::engine::wait::Look;
use crate::error::{Kind, Resource, ServiceError, fail};

/// An add-on, and the service account of its pods that needs a role.
pub(super) struct Wanted {
    pub name: &'static str,
    account: Option<&'static str>,
}

pub(super) const ADDONS: &[Wanted] = &[
    Wanted { name: "coredns", account: None },
    Wanted { name: "aws-ebs-csi-driver", account: Some("ebs-csi-controller-sa") },
    Wanted { name: "aws-fsx-csi-driver", account: Some("fsx-csi-controller-sa") },
];

fn version<'a>(deps: &'a Deps, name: &str) -> anyhow::Result<&'a str> {
    let pin = deps.pins.addons.get(name).map(|pin| pin.version.as_str());
    pin.ok_or_else(|| fail(Kind::Config, format!("no version of add-on {name} was resolved")).hint("nemo plan resolves the versions and keeps them in the state").into())
}

/// What it says of itself beside its status.
fn words(addon: &Addon) -> String {
    let issues: Vec<_> = addon.issues.iter().map(ToString::to_string).collect();
    format!("add-on {} is {}{}{}", addon.name, addon.status, if issues.is_empty() { "" } else { ": " }, issues.join("; "))
}

fn part(deps: &Deps, name: &str, found: Option<&Addon>) -> anyhow::Result<Part> {
    let Some(addon) = found else { return Ok(Part::Missing) };
    Ok(match addon.status.as_str() {
        _ if !mark::is_ours(&addon.tags, &deps.spec.name) => Part::Foreign(format!("add-on {name}")),
        "CREATE_FAILED" | "UPDATE_FAILED" | "DELETE_FAILED" => Part::Broken(words(addon)),
        "ACTIVE" if addon.version == version(deps, name)? => Part::There,
        "ACTIVE" => Part::Broken(format!("add-on {name} has version {}", addon.version)),
        _ => Part::Pending(words(addon)),
    })
}

async fn find(deps: &Deps, eks: &Eks) -> Result<Vec<Option<Addon>>, ServiceError> {
    try_join_all(ADDONS.iter().map(|wanted| eks.addon(&deps.spec.name, wanted.name))).await
}

/// How each stands.
pub(super) async fn standing(deps: &Deps, eks: &Eks) -> Result<Vec<Part>, ServiceError> {
    let found = find(deps, eks).await?;
    let broken = |error: anyhow::Error| Part::Broken(error.to_string());
    Ok(ADDONS.iter().zip(&found).map(|(wanted, found)| part(deps, wanted.name, found.as_ref()).unwrap_or_else(broken)).collect())
}

/// The same with the versions, to show.
pub(super) async fn standings(deps: &Deps, eks: &Eks) -> anyhow::Result<Vec<PartStanding>> {
    let found = find(deps, eks).await?;
    let of = |(wanted, found): (&Wanted, &Option<Addon>)| {
        let (state, ok) = match (found, part(deps, wanted.name, found.as_ref())) {
            (_, Ok(part)) => told(&part),
            (Some(addon), Err(_)) => (addon.status.clone(), addon.status == "ACTIVE"),
            (None, Err(_)) => ("not there".into(), false),
        };
        let there = found.as_ref().map(|addon| addon.version.clone());
        PartStanding { part: format!("add-on {}", wanted.name), wanted: version(deps, wanted.name).ok().map(str::to_owned), there, state, ok }
    };
    Ok(ADDONS.iter().zip(&found).map(of).collect())
}

/// Asks for those that are not there or of another version, and waits until all are healthy.
pub(super) async fn ensure(deps: &Deps, cx: &Cx, eks: &Eks, role: &str, inputs: &Digest) -> anyhow::Result<()> {
    try_join_all(ADDONS.iter().map(|wanted| ensure_one(deps, cx, eks, wanted, role, inputs))).await.map(drop)
}

async fn ensure_one(deps: &Deps, cx: &Cx, eks: &Eks, wanted: &Wanted, role: &str, inputs: &Digest) -> anyhow::Result<()> {
    let (cluster, name, version) = (deps.spec.name.as_str(), wanted.name, version(deps, wanted.name)?);
    let found = gone_if_going(deps, cx, eks, name).await?;
    match found {
        Some(addon) if !mark::is_ours(&addon.tags, cluster) => return Err(fail(Kind::Conflict, format!("add-on {name} is there and is not ours")).into()),
        Some(addon) if addon.status.ends_with("_FAILED") || (addon.status == "ACTIVE" && addon.version != version) => eks.update_addon(cluster, name, version).await?,
        Some(_) => {}
        None => {
            let new = NewAddon {
                cluster: cluster.to_owned(),
                name: name.to_owned(),
                version: version.to_owned(),
                identities: wanted.account.iter().map(|account| ((*account).to_owned(), role.to_owned())).collect(),
                configuration: None,
                tags: mark::tags(cluster, inputs),
                token: mark::token(cluster, name, inputs, ""),
            };
            eks.create_addon(&new).await?;
        }
    }
    let look = || async {
        Ok(match eks.addon(cluster, name).await? {
            Some(addon) if addon.status == "ACTIVE" => Look::Ready(()),
            Some(addon) if addon.status.ends_with("_FAILED") => return Err(fail(Kind::Remote, words(&addon)).hint("nemo up tries again").into()),
            Some(addon) => Look::NotYet(words(&addon)),
            None => Look::NotYet("not there yet".into()),
        })
    };
    cx.until(&format!("add-on {name}"), deps.spec.wait.addon, look).await
}

/// One that is being deleted is waited for; then there is none.
async fn gone_if_going(deps: &Deps, cx: &Cx, eks: &Eks, name: &str) -> anyhow::Result<Option<Addon>> {
    let look = || async {
        Ok(match eks.addon(&deps.spec.name, name).await? {
            Some(addon) if addon.status == "DELETING" => Look::NotYet(words(&addon)),
            other => Look::Ready(other),
        })
    };
    cx.until(&format!("deletion of add-on {name}"), deps.spec.wait.addon, look).await
}

/// Deletes those that are ours and waits until they are gone.
pub(super) async fn remove(deps: &Deps, cx: &Cx, eks: &Eks) -> anyhow::Result<()> {
    try_join_all(ADDONS.iter().map(|wanted| remove_one(deps, cx, eks, wanted.name))).await.map(drop)
}

async fn remove_one(deps: &Deps, cx: &Cx, eks: &Eks, name: &str) -> anyhow::Result<()> {
    let found = gone_if_going(deps, cx, eks, name).await?;
    if found.is_some_and(|addon| mark::is_ours(&addon.tags, &deps.spec.name)) && eks.delete_addon(&deps.spec.name, name).await? {
        let look = || async { Ok(eks.addon(&deps.spec.name, name).await?.map_or(Look::Ready(()), |addon| Look::NotYet(words(&addon)))) };
        cx.until(&format!("deletion of add-on {name}"), deps.spec.wait.addon, look).await?;
    }
    Ok(())
}

/// Those that carry our tag.
pub(super) async fn existing(deps: &Deps, eks: &Eks) -> anyhow::Result<Vec<Resource>> {
    let found = find(deps, eks).await?;
    Ok(found.into_iter().flatten().filter(|addon| mark::is_ours(&addon.tags, &deps.spec.name)).map(|addon| Resource::new("EKS add-on", addon.name)).collect())
}
