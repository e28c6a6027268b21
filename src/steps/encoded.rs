//! Was a picture encoded by the workers that are there for it? Asked with one picture, between two looks at what they count.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use kube::Client;

use super::engines::{Engine, engines};
use super::facts::ServeFacts;
use crate::endpoint::encoded::{Encoded, QUESTION, picture};
use crate::endpoint::moved::sum;
use crate::endpoint::{Endpoint, TestResult, Verdict};
use crate::engine::clock;
use crate::error::ServiceError;

/// Encode workers, in every form.
const ENCODE: &str = "app.kubernetes.io/name in (vllm-encode,encode)";
/// Of vLLM's own, and of Dynamo's, which has no other endpoint than the one that takes pictures.
const FINISHED: [&str; 2] = ["vllm:request_success_total", "dynamo_component_requests_total"];
/// A reasoning model thinks first; this question needs little of it.
const TOKENS: u32 = 1024;
/// The engine counts a little after it has answered. Assumed: a step of the engine takes some milliseconds.
const COUNTED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(250);

/// The encoders; none where the engines that answer encode pictures themselves.
pub(super) async fn encoders(client: &Client, serve: &ServeFacts) -> Result<Vec<Engine>, ServiceError> {
    engines(client, serve, ENCODE).await
}

/// The test. What cannot be asked is a test that failed.
pub(super) async fn test(client: &Client, serve: &ServeFacts, endpoint: &Endpoint, encoders: &[Engine]) -> TestResult {
    let began = Instant::now();
    match encoded(client, serve, endpoint, encoders).await {
        Ok(encoded) => Encoded { seconds: began.elapsed().as_secs_f64(), ..encoded }.result(),
        Err(error) => TestResult {
            id: "picture-encoded".into(),
            asked: "which colour a picture has".into(),
            expected: "an answer, and a request more at the encode workers".into(),
            got: error.to_string(),
            verdict: Verdict::Failed,
            seconds: began.elapsed().as_secs_f64(),
        },
    }
}

async fn encoded(client: &Client, serve: &ServeFacts, endpoint: &Endpoint, encoders: &[Engine]) -> Result<Encoded, ServiceError> {
    let before = finished(client, encoders).await?;
    let picture = picture(clock::now().as_millisecond().unsigned_abs()).unwrap_or_default();
    let chat = endpoint.see(&serve.model, QUESTION, &picture, TOKENS).await?;
    let mut encoded = Encoded { before, after: before, answer: chat.content.unwrap_or_default().trim().to_owned(), seconds: 0.0 };
    let answered = Instant::now();
    loop {
        encoded.after = finished(client, encoders).await?;
        if encoded.by_them() || answered.elapsed() > COUNTED {
            return Ok(encoded);
        }
        clock::sleep(LOOK).await;
    }
}

/// Of all encoders together: any of them may have had it.
async fn finished(client: &Client, encoders: &[Engine]) -> Result<f64, ServiceError> {
    let each = try_join_all(encoders.iter().map(|encoder| async move { Ok::<_, ServiceError>(counted(&encoder.metrics(client).await?)) })).await?;
    Ok(each.iter().sum())
}

fn counted(page: &str) -> f64 {
    FINISHED.iter().find_map(|name| sum(page, name)).unwrap_or(0.0)
}
