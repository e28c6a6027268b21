//! SDK errors become [`ServiceError`]: the service's code, message and request id; "not found" is `Ok(None)`.

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::error::ServiceError;

/// The error of a call, in the service's words.
pub fn describe<E>(service: &str, operation: &str, error: &SdkError<E, HttpResponse>) -> ServiceError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let status = error.raw_response().map(|response| response.status().as_u16());
    let metadata = error.as_service_error().map(ProvideErrorMetadata::meta);
    let header = |name| error.raw_response().and_then(|response| response.headers().get(name)).map(str::to_owned);
    let request_id = header("x-amzn-requestid").or_else(|| header("x-amz-request-id"));
    let code = metadata.and_then(|meta| meta.code()).map(str::to_owned).unwrap_or_else(|| match error {
        SdkError::TimeoutError(_) => "Timeout".into(),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => "Timeout".into(),
        SdkError::DispatchFailure(_) if chain(error).contains("credentials") => "CredentialsNotLoaded".into(),
        SdkError::DispatchFailure(_) => "Unreachable".into(),
        SdkError::ResponseError(_) => "NoAnswer".into(),
        _ => status.map_or_else(|| "Error".into(), |status| format!("HTTP {status}")),
    });
    let message = metadata.and_then(|meta| meta.message()).map(str::to_owned).unwrap_or_else(|| {
        let body = error.raw_response().and_then(|response| response.body().bytes()).map(String::from_utf8_lossy).unwrap_or_default();
        let start: String = body.trim().chars().take(120).collect();
        if body.trim_start().starts_with('<') && !body.trim_start().starts_with("<?xml") {
            format!("the endpoint answered HTML, not an AWS answer: {start}")
        } else if start.is_empty() {
            chain(error)
        } else {
            format!("{}: {start}", chain(error))
        }
    });
    ServiceError { service: service.into(), operation: operation.into(), code, message, request_id, status }
}

/// The causes in one line; the SDK's own outermost words ("service error") say nothing.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !line.contains(&words) {
            line = if line.is_empty() { words } else { format!("{line}: {words}") };
        }
        cause = error.source();
    }
    if line.is_empty() { error.to_string() } else { line }
}

/// What a call came to: `answer("eks", "DescribeCluster", result)?`, or `.or_none(&["ResourceNotFoundException"])`.
pub trait Answer<T> {
    /// The answer, or the error in the service's words.
    fn answer(self, service: &str, operation: &str) -> Result<T, ServiceError>;

    /// As [`Answer::answer`], with `None` when the error is one of the codes that mean "not there".
    fn or_none(self, service: &str, operation: &str, codes: &[&str]) -> Result<Option<T>, ServiceError>;
}

impl<T, E> Answer<T> for Result<T, SdkError<E, HttpResponse>>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    fn answer(self, service: &str, operation: &str) -> Result<T, ServiceError> {
        self.map_err(|error| describe(service, operation, &error))
    }

    fn or_none(self, service: &str, operation: &str, codes: &[&str]) -> Result<Option<T>, ServiceError> {
        match self.answer(service, operation) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is(codes) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
