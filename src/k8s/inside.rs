//! Asking what runs in a pod: a page of one of its ports, a command in one of its containers.

use kube::Client;
use kube::api::AttachParams;
use tokio::io::AsyncReadExt;

use super::error::{Answer, describe};
use super::logs::Container;
use crate::error::ServiceError;

impl Container {
    /// What the pod answers to a GET, asked through the API server, so that nothing has to be exposed.
    pub async fn page(&self, client: &Client, port: u16, path: &str) -> Result<String, ServiceError> {
        let operation = format!("GET {path} of pods/{}:{port}", self.pod);
        let request = http::Request::get(format!("/api/v1/namespaces/{}/pods/{}:{port}/proxy{path}", self.namespace, self.pod));
        let request = request.body(Vec::new()).map_err(|error| describe(&operation, &kube::Error::HttpError(error)))?;
        client.request_text(request).await.answer(&operation)
    }

    /// What a command in the container writes. That it ended with an error is an error.
    pub async fn output(&self, client: &Client, command: &[&str]) -> Result<String, ServiceError> {
        let operation = format!("EXEC {} in pods/{}", command.first().unwrap_or(&""), self.pod);
        let failed =
            |message: String| ServiceError { service: "kubernetes".into(), operation: operation.clone(), code: "ExecFailed".into(), message, request_id: None, status: None };
        let params = AttachParams::default().container(&self.container).stdout(true).stderr(false);
        let mut process = self.api(client).exec(&self.pod, command.iter().copied(), &params).await.answer(&operation)?;
        let mut text = String::new();
        if let Some(mut stdout) = process.stdout() {
            stdout.read_to_string(&mut text).await.map_err(|error| failed(error.to_string()))?;
        }
        let status = match process.take_status() {
            Some(status) => status.await,
            None => None,
        };
        match status {
            Some(status) if status.status.as_deref() == Some("Failure") => Err(failed(status.message.unwrap_or_default())),
            _ => Ok(text),
        }
    }
}
