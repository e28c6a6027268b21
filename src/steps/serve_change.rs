//! What a change of what serves means for those who send requests, in words.

use std::time::Duration;

use crate::config::Form;
use crate::engine::clock;
use crate::error::{Advice, Kind, fail};
use crate::k8s;
use crate::k8s::apply::Found;
use crate::k8s::change::Refused;
use crate::render::Serving;

/// What goes because the settings ask for it no more, and what that means for those who send requests.
pub(super) fn no_longer_wanted(serving: &Serving, stale: &[Found], secrets: &[String]) -> String {
    let titles: Vec<_> = stale.iter().map(Found::title).chain(secrets.iter().map(|name| format!("Secret {}/{name}", serving.namespace))).collect();
    let words = format!("no longer wanted and removed first: {}", titles.join(", "));
    // The frontend and what stands before it come back in seconds, engines do not.
    let engines = stale.iter().any(|found| found.has_pods() && (found.kind != "Deployment" || found.name.starts_with("vllm-")));
    if engines { format!("{words}; {}", downtime(serving)) } else { words }
}

/// Why there is no going on in a namespace that is being deleted: nothing new can be made in it, and what is there goes.
pub(super) async fn goes(client: &kube::Client, namespace: &str) -> anyhow::Result<Option<Advice>> {
    Ok(k8s::holds::going(client, namespace).await?.map(|held| fail(Kind::Conflict, ending(namespace, &held)).hint(after(namespace))))
}

/// A namespace that is being deleted, and what holds it.
pub(super) fn ending(namespace: &str, held: &str) -> String {
    let words = format!("the namespace {namespace} is being deleted, and all that is in it goes");
    if held.is_empty() { words } else { format!("{words}: {held}") }
}

/// What to do about a namespace that is being deleted.
pub(super) fn after(namespace: &str) -> String {
    format!("kubectl wait --for=delete namespace/{namespace} --timeout=10m, then nemo up --to serve makes it anew")
}

/// What goes because it cannot become what the settings ask for.
pub(super) fn made_anew(serving: &Serving, refused: &[Refused]) -> String {
    let words: Vec<_> = refused.iter().map(|refused| format!("{} cannot be changed to this, and is removed and made anew ({})", refused.title, refused.why)).collect();
    format!("{}; {}", words.join("; "), downtime(serving))
}

/// Does a change of the workers stop all of one kind at once?
pub(super) fn stops(serving: &Serving) -> bool {
    serving.form == Form::Deployments || serving.components.iter().any(|component| component.replicas == 1)
}

/// Nodes are taken whole: the old pods go before the new ones can load.
pub(super) fn downtime(serving: &Serving) -> String {
    let load = Duration::from_secs(serving.readers * serving.weights_gb * 1000 / serving.read_mb_s);
    format!("nothing serves until the new workers have loaded (the weights alone take about {})", clock::words(load))
}
