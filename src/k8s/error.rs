//! Errors of the API server and of the way to it become [`ServiceError`]; "not found" is `Ok(None)`.

use std::error::Error as StdError;

use crate::error::ServiceError;

/// The error of a call, in the API server's words. `operation` as `PATCH deployments/vllm-worker`.
pub fn describe(operation: &str, error: &kube::Error) -> ServiceError {
    let made = |code: &str, message: String, status: Option<u16>| ServiceError {
        service: "kubernetes".into(),
        operation: operation.into(),
        code: code.into(),
        message,
        request_id: None,
        status,
    };
    if let kube::Error::Api(status) = error {
        // The second is what the client puts where the answer was plain text.
        let code = if status.reason.is_empty() || status.reason == "Failed to parse error data" { format!("HTTP {}", status.code) } else { status.reason.clone() };
        return made(&code, message_of(status), Some(status.code));
    }
    // A token that could not be signed, or a timeout, comes up through the layers of the client.
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(service) = error.downcast_ref::<ServiceError>() {
            return service.clone();
        }
        if error.is::<tower::timeout::error::Elapsed>() {
            return made("Timeout", "the API server took the call and did not answer".into(), None);
        }
        if let Some(upgrade) = error.downcast_ref::<kube::client::UpgradeConnectionError>() {
            return made("UpgradeFailed", chain(upgrade), None);
        }
        cause = error.source();
    }
    match error {
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
            made("Unreachable", format!("the API server cannot be reached: {}", chain(error)), None)
        }
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => made("NoAnswer", format!("what came is no answer of a Kubernetes API server: {}", chain(error)), None),
        _ => made("Error", chain(error), None),
    }
}

/// The message; for a conflict of server-side apply it names every manager and field.
fn message_of(status: &kube::core::Status) -> String {
    let causes: Vec<_> = status.details.iter().flat_map(|details| &details.causes).filter(|cause| cause.reason == "FieldManagerConflict").collect();
    if causes.is_empty() {
        return status.message.clone();
    }
    let who: Vec<_> = causes.iter().map(|cause| format!("{} ({})", cause.field, cause.message)).collect();
    format!("somebody else owns fields that we set: {}", who.join("; "))
}

fn chain(error: &dyn StdError) -> String {
    let mut words = Vec::<String>::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let line = error.to_string();
        if !words.iter().any(|word| word.contains(&line)) {
            words.push(line);
        }
        cause = error.source();
    }
    if words.is_empty() { error.to_string() } else { words.join(": ") }
}

/// What a call came to.
pub trait Answer<T> {
    /// The answer, or the error in the API server's words.
    fn answer(self, operation: &str) -> Result<T, ServiceError>;

    /// As [`Answer::answer`], with `None` for what is not there.
    fn or_none(self, operation: &str) -> Result<Option<T>, ServiceError>;
}

impl<T> Answer<T> for Result<T, kube::Error> {
    fn answer(self, operation: &str) -> Result<T, ServiceError> {
        self.map_err(|error| describe(operation, &error))
    }

    fn or_none(self, operation: &str) -> Result<Option<T>, ServiceError> {
        match self {
            Ok(answer) => Ok(Some(answer)),
            // A whole API group that is not served is told in plain text, so without a reason.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.code == 404 => Ok(None),
            Err(error) => Err(describe(operation, &error)),
        }
    }
}

/// Will the same call probably work a little later? For those who wait anyway.
pub fn passing(error: &ServiceError) -> bool {
    error.is(&["Unreachable", "Timeout"]) || matches!(error.status, Some(429 | 500 | 502 | 503 | 504))
}
