//! Another apply in between: what was applied here has gone, or was made from other manifests, while this one waits for it.
//!
//! The lock is a file of the folder, so that two folders, or two machines, may apply to one cluster at once: each takes away what the other
//! made, and the one that was there first would wait for what never comes.

use super::objects::Objects;
use crate::engine::wait::Look;
use crate::error::{Advice, Kind, fail};
use crate::k8s::apply::{Found, Live};
use crate::k8s::{self, Document};

/// What was applied, for who waits for it.
pub(super) struct Applied<'a> {
    pub objects: Objects<'a>,
    pub client: &'a kube::Client,
    pub documents: &'a [Document],
}

impl Applied<'_> {
    /// The look, or an end of the waiting: what is not ready any more because it was taken away will not become it.
    pub async fn watched<T>(&self, look: impl Future<Output = anyhow::Result<Look<T>>>) -> anyhow::Result<Look<T>> {
        match look.await {
            Ok(Look::Ready(value)) => Ok(Look::Ready(value)),
            other => match self.taken().await? {
                Some(taken) => Err(taken.into()),
                None => other,
            },
        }
    }

    /// Is all of it still there as it was applied?
    pub async fn kept(&self) -> anyhow::Result<()> {
        self.taken().await?.map_or(Ok(()), |taken| Err(taken.into()))
    }

    async fn taken(&self) -> anyhow::Result<Option<Advice>> {
        let standing = k8s::apply::look(self.client, self.documents).await?;
        let Some((document, how)) = self.documents.iter().zip(&standing).find_map(|(document, live)| Some((document, lost(live)?))) else { return Ok(None) };
        let others = self.objects.stale(self.client, self.documents).await?;
        Ok(Some(words(&self.objects.deps.spec.name, &document.title(), how, &others)))
    }
}

/// How it stands where it is no more what was applied; what others have changed of it is still ours.
fn lost(live: &Live) -> Option<&'static str> {
    match live {
        Live::Same | Live::Changed(_) => None,
        Live::Absent => Some("is gone"),
        Live::Going => Some("is being deleted"),
        Live::Differs => Some("was made from another set of manifests"),
        Live::Foreign => Some("carries another's mark"),
    }
}

fn words(deployment: &str, title: &str, how: &str, others: &[Found]) -> Advice {
    let mut message = format!("{title} was applied here and {how} since");
    if !others.is_empty() {
        let titles: Vec<_> = others.iter().map(Found::title).collect();
        message = format!("{message}; there is now, from another apply: {}", titles.join(", "));
    }
    let who = format!("another nemo applies to {deployment:?} from another folder or machine, or somebody took it away");
    let hint = "wait until the other has ended; then nemo diff shows what this one would change, and the same command again applies it";
    fail(Kind::Conflict, format!("{message}: {who}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;

    #[test]
    fn what_another_apply_took_away_is_told_with_what_is_there_instead() {
        let found = Found {
            kind: "LeaderWorkerSet",
            namespace: Some("nemo".into()),
            name: "vllm-worker".into(),
            uid: None,
            going: false,
            made: false,
            kept: false,
            finalizers: Vec::new(),
        };
        let failure = Failure::from(words("nemo", "Deployment nemo/vllm-worker", lost(&Live::Absent).unwrap(), &[found]));
        assert_eq!(failure.kind, Kind::Conflict);
        assert!(
            failure
                .message
                .starts_with("Deployment nemo/vllm-worker was applied here and is gone since; there is now, from another apply: LeaderWorkerSet nemo/vllm-worker: another nemo"),
            "{failure}"
        );
        assert!(failure.hints.concat().contains("nemo diff"));
        assert!(lost(&Live::Differs).unwrap().contains("another set") && lost(&Live::Going).is_some() && lost(&Live::Foreign).is_some());
        assert_eq!((lost(&Live::Same), lost(&Live::Changed(".spec.replicas by hpa".into()))), (None, None), "what others changed is still what was applied");
    }
}
