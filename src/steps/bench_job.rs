//! The benchmark's Job as it stands in the cluster, and what its pods say.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::bench::result::RunResult;
use crate::bench::said::Said;
use crate::error::ServiceError;
use crate::k8s::apply::KindOf;
use crate::k8s::ready::{self, Readiness};
use crate::k8s::{Answer, Container, LABEL_DEPLOYMENT};

/// What the step makes.
pub(super) const KINDS: &[KindOf] = &[KindOf::new("batch", "v1", "Job"), KindOf::new("", "v1", "ConfigMap")];

/// Lines of the pod's log that are read in one look: one a second is written at most.
const LINES: i64 = 100;

/// One Job by its name.
pub(super) struct BenchJob<'a> {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) deployment: &'a str,
}

/// How it stands.
#[derive(Debug)]
pub(super) enum Standing {
    Absent,
    /// It is being deleted.
    Going,
    Foreign,
    Working {
        words: String,
        said: Vec<Said>,
    },
    /// It ended, with this result.
    Ended(RunResult),
    /// It ended, and its log is gone with the pod or the node.
    Lost,
    Failed(String),
}

impl BenchJob<'_> {
    /// `nemo/bench-1234`
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reads the Job, and the log of its pod.
    pub(super) async fn standing(&self) -> Result<Standing, ServiceError> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(job) = api.get_opt(&self.name).await.answer(&format!("GET jobs/{}", self.name))? else { return Ok(Standing::Absent) };
        if job.labels().get(LABEL_DEPLOYMENT).map(String::as_str) != Some(self.deployment) {
            return Ok(Standing::Foreign);
        }
        if job.metadata.deletion_timestamp.is_some() {
            return Ok(Standing::Going);
        }
        Ok(match ready::job(&self.client, &self.namespace, &self.name).await? {
            Readiness::Ready => match self.log("Succeeded").await? {
                Some(log) => Said::result_in(&log.join("\n")).map_or(Standing::Lost, Standing::Ended),
                None => Standing::Lost,
            },
            Readiness::Failed(why) => Standing::Failed(why),
            Readiness::Absent => Standing::Absent,
            Readiness::Waiting(words) => {
                let log = self.log("Running").await?.unwrap_or_default();
                Standing::Working { words, said: log.iter().filter_map(|line| Said::read(line)).collect() }
            }
        })
    }

    /// The last lines of the newest pod in this phase.
    async fn log(&self, phase: &str) -> Result<Option<Vec<String>>, ServiceError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut pods = api.list(&ListParams::default().labels(&format!("batch.kubernetes.io/job-name={}", self.name))).await.answer("LIST pods")?.items;
        pods.retain(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase));
        pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone().map(|time| time.0));
        let Some(pod) = pods.last() else { return Ok(None) };
        let container = Container { namespace: self.namespace.clone(), pod: pod.name_any(), container: "bench".into() };
        container.last_lines(&self.client, LINES, false).await.map(Some)
    }
}
