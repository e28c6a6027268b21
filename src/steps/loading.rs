//! Workers that load: how long they may take, and how far they are.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::engine::step::{Cx, Unit};
use crate::engine::wait::Wait;
use crate::error::ServiceError;
use crate::k8s::{Answer, Container};
use crate::render::Serving;

/// As long as anything that is rolled out, or as long as the workers may take to start, if that is longer.
pub(super) fn patience(rollout: Wait, startup_s: u64) -> Wait {
    Wait { limit_s: rollout.limit_s.max(startup_s), ..rollout }
}

/// Tells how much of the weights the pods of these names have loaded.
pub(super) async fn tell_loading(cx: &Cx, client: &kube::Client, serving: &Serving, names: &[&str]) -> Result<(), ServiceError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &serving.namespace);
    for pod in api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name in ({})", names.join(",")))).await.answer("LIST pods")?.items {
        if pod.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Running") {
            continue;
        }
        // The first of several speaks for all.
        let Some(first) = pod.spec.as_ref().and_then(|spec| spec.containers.first()) else { continue };
        let container = Container { namespace: serving.namespace.clone(), pod: pod.name_any(), container: first.name.clone() };
        let lines = container.last_lines(client, 30, false).await?;
        if let Some((done, total)) = lines.iter().rev().find_map(|line| shards(line)) {
            cx.progress(format!("weights into GPU memory ({})", pod.name_any()), done, total, Unit::Items);
        }
    }
    Ok(())
}

/// `… checkpoint shards:  40% Completed | 18/45 [00:12<…` → (18, 45); the last one of a line that was written over.
fn shards(line: &str) -> Option<(u64, u64)> {
    let (_, rest) = line.rsplit_once("checkpoint shards:")?;
    let (done, rest) = rest.split_once("| ")?.1.split_once('/')?;
    let total: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((done.trim().parse().ok()?, total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_how_many_shards_are_loaded() {
        let line = "Loading safetensors checkpoint shards:  40% Completed | 18/45 [00:12<00:18,  1.50it/s]";
        assert_eq!(shards(line), Some((18, 45)));
        assert_eq!(shards(&format!("{line}\rLoading safetensors checkpoint shards:  42% Completed | 19/45 [00:13<00:17]")), Some((19, 45)));
        assert_eq!(shards("Loading weights took 57.10 seconds"), None);
    }

    #[test]
    fn a_load_that_takes_longer_than_other_rollouts_is_waited_for() {
        let wait = Wait { every_ms: 2000, limit_s: 1800 };
        assert_eq!(patience(wait, 2454).limit_s, 2454);
        assert_eq!(patience(wait, 900), wait);
    }
}
