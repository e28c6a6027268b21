//! Log lines of pods: the last ones, or as they come.

use futures::{AsyncBufReadExt, Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, LogParams};

use super::error::{Answer, describe};
use crate::error::ServiceError;

/// A container of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    pub namespace: String,
    pub pod: String,
    pub container: String,
}

impl Container {
    pub(super) fn api(&self, client: &Client) -> Api<Pod> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    fn operation(&self) -> String {
        format!("GET pods/{}/log", self.pod)
    }

    /// The last lines, of the run before the present one with `previous`. A container that has not run has none.
    pub async fn last_lines(&self, client: &Client, lines: i64, previous: bool) -> Result<Vec<String>, ServiceError> {
        let params = LogParams { container: Some(self.container.clone()), tail_lines: Some(lines), previous, ..LogParams::default() };
        match self.api(client).logs(&self.pod, &params).await.or_none(&self.operation()) {
            Ok(text) => Ok(text.unwrap_or_default().lines().map(str::to_owned).collect()),
            // 400: the container has not started, or there is no run before this one.
            Err(error) if error.status == Some(400) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The lines from `seconds` ago on, as they come, until the container ends. An error ends the stream: whoever waits for more follows again.
    pub async fn follow(&self, client: &Client, seconds: Option<i64>) -> Result<impl Stream<Item = Result<String, ServiceError>> + Send + use<>, ServiceError> {
        let params = LogParams { container: Some(self.container.clone()), follow: true, since_seconds: seconds, ..LogParams::default() };
        let lines = self.api(client).log_stream(&self.pod, &params).await.answer(&self.operation())?.lines();
        let operation = self.operation();
        Ok(lines.map_err(move |error| describe(&operation, &kube::Error::ReadEvents(error))).boxed())
    }
}
