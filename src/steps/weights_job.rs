//! The Job that fetches weights as it stands in the cluster, what its pods say, and the note that is left when it is done.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::facts::WeightsFacts;
use crate::agent::fetch::{ReadRate, Said};
use crate::engine::step::Digest;
use crate::error::{Advice, Kind, ServiceError, fail};
use crate::k8s::ready::{self, Readiness};
use crate::k8s::{Answer, Container, LABEL_DEPLOYMENT};
use crate::render::Rendered;

/// Of the ConfigMap that says that every file is there.
pub(super) const NOTE: &str = "weights-done";
/// Lines of a pod's log that are read in one look: one a second is written, and one for each retry.
const LINES: i64 = 60;

/// One Job by its name.
pub(super) struct WeightsJob {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What is noted about the volume.
pub(super) enum Note {
    Absent,
    Foreign(String),
    Made { inputs: Digest, filesystem: String, facts: WeightsFacts },
}

/// Something that a pod tried again.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Retry {
    pub(super) what: String,
    pub(super) why: String,
    pub(super) attempt: u32,
}

/// What the pods said last, of all workers together.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Progress {
    pub(super) done: u64,
    pub(super) total: u64,
    pub(super) bytes_per_second: u64,
    pub(super) retries: Vec<Retry>,
    /// What a read of the files gave, if one was made.
    pub(super) read: ReadRate,
    failed: Option<Said>,
}

impl Progress {
    /// How fast it goes, and how long it will take at that.
    pub(super) fn words(&self) -> Option<String> {
        let left = self.total.checked_sub(self.done)?.checked_div(self.bytes_per_second)?;
        Some(format!("{} MB/s, {} to go", self.bytes_per_second / 1_000_000, crate::engine::clock::words(std::time::Duration::from_secs(left))))
    }

    /// Why a worker gave up, in its own words.
    pub(super) fn failure(&self) -> Option<Advice> {
        let Some(Said::Failed { exit_code, why, hints }) = &self.failed else { return None };
        let kinds = [Kind::Config, Kind::Credentials, Kind::Capacity, Kind::Verification, Kind::LocalIo];
        let kind = kinds.into_iter().find(|kind| kind.exit_code() == *exit_code).unwrap_or(Kind::Remote);
        Some(hints.iter().fold(fail(kind, format!("fetching the weights: {why}")), |advice, hint| advice.hint(hint.clone())))
    }

    /// Adds the last lines of one worker.
    fn add(&mut self, lines: &[String]) {
        let said: Vec<Said> = lines.iter().filter_map(|line| serde_json::from_str(line.trim()).ok()).collect();
        for said in &said {
            match said {
                Said::Retrying { what, why, attempt } => self.retries.push(Retry { what: what.clone(), why: why.clone(), attempt: *attempt }),
                Said::Failed { .. } => self.failed = Some(said.clone()),
                Said::Read(rate) => self.read = rate.clone(),
                Said::Progress { .. } | Said::Done { .. } => {}
            }
        }
        match said.iter().rev().find(|said| matches!(said, Said::Progress { .. } | Said::Done { .. })) {
            Some(Said::Progress { done, total, bytes_per_second, .. }) => {
                self.done += done;
                self.total += total;
                self.bytes_per_second += bytes_per_second;
            }
            Some(Said::Done { bytes, .. }) => {
                self.done += bytes;
                self.total += bytes;
            }
            _ => {}
        }
    }
}

impl WeightsJob {
    pub(super) async fn standing(&self) -> Result<Readiness, ServiceError> {
        ready::job(&self.client, &self.namespace, &self.name).await
    }

    /// What the newest pod of each index said last.
    pub(super) async fn said(&self) -> Result<Progress, ServiceError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut pods = api.list(&ListParams::default().labels(&format!("batch.kubernetes.io/job-name={}", self.name))).await.answer("LIST pods")?.items;
        pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone().map(|time| time.0));
        let index = |pod: &Pod| pod.labels().get("batch.kubernetes.io/job-completion-index").cloned().unwrap_or_default();
        let newest: BTreeMap<String, String> = pods.iter().map(|pod| (index(pod), pod.name_any())).collect();
        let mut progress = Progress::default();
        for pod in newest.into_values() {
            let container = Container { namespace: self.namespace.clone(), pod, container: "fetch".into() };
            progress.add(&container.last_lines(&self.client, LINES, false).await?);
        }
        Ok(progress)
    }

    /// The note, if it is there and ours.
    pub(super) async fn noted(&self, deployment: &str) -> Result<Note, ServiceError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(found) = api.get_opt(NOTE).await.answer(&format!("GET configmaps/{NOTE}"))? else { return Ok(Note::Absent) };
        if found.labels().get(LABEL_DEPLOYMENT).map(String::as_str) != Some(deployment) {
            return Ok(Note::Foreign(format!("ConfigMap {}/{NOTE}", self.namespace)));
        }
        let data = found.data.unwrap_or_default();
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        let number = |key: &str| text(key).parse().unwrap_or_default();
        let read = ReadRate { mb_s: number("read_mb_s"), streams: text("read_streams").parse().unwrap_or_default(), on: text("read_on") };
        let facts = WeightsFacts { path: text("path"), revision: text("revision"), files: number("files"), bytes: number("bytes"), read };
        Ok(Note::Made { inputs: Digest(text("inputs")), filesystem: text("filesystem"), facts })
    }

    /// The note as it is written once every file is there.
    pub(super) fn note(&self, inputs: &Digest, filesystem: &str, facts: &WeightsFacts) -> anyhow::Result<Rendered> {
        let manifest = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NOTE, "namespace": self.namespace},
            "data": {
                "inputs": inputs.0, "filesystem": filesystem, "path": facts.path, "revision": facts.revision,
                "files": facts.files.to_string(), "bytes": facts.bytes.to_string(),
                "read_mb_s": facts.read.mb_s.to_string(), "read_streams": facts.read.streams.to_string(), "read_on": facts.read.on,
            },
        });
        Ok(Rendered { file: "weights.yaml", text: serde_json::to_string_pretty(&manifest)?, manifests: vec![manifest], overlays: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(said: &[Said]) -> Vec<String> {
        said.iter().map(|said| serde_json::to_string(said).unwrap()).collect()
    }

    #[test]
    fn the_last_words_of_all_workers_add_up() {
        let progress = |done, bytes_per_second| Said::Progress { done, total: 3_000_000_000, files: 1, of: 2, bytes_per_second };
        let mut all = Progress::default();
        all.add(&lines(&[progress(1, 5), progress(1_000_000_000, 400_000_000)]));
        all.add(&lines(&[progress(7, 1), Said::Done { bytes: 3_000_000_000, files: 2, seconds: 1.0, complete: true }]));
        all.add(&["a runtime's own words".into(), "{\"half".into()]);
        assert_eq!((all.done, all.total), (4_000_000_000, 6_000_000_000));
        assert_eq!(all.words().unwrap(), "400 MB/s, 5s to go");
        assert!(Progress::default().words().is_none() && all.failure().is_none());
    }

    #[test]
    fn a_failure_keeps_its_kind_and_hint() {
        let mut all = Progress::default();
        all.add(&lines(&[Said::Failed { exit_code: 11, why: "403 GatedRepo".into(), hints: vec!["ask for access".into()] }]));
        let failure = crate::error::Failure::from(all.failure().unwrap());
        assert_eq!((failure.kind, failure.hints), (Kind::Credentials, vec!["ask for access".to_owned()]));
        assert!(failure.message.contains("GatedRepo"));
    }
}
