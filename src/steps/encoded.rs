//! Do the encode workers get pictures? Asked with one picture, between two looks at what they count.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use kube::Client;

use super::engines::{Engine, engines};
use super::facts::ServeFacts;
use crate::endpoint::encoded::{Encoded, QUESTION, Taken, picture};
use crate::endpoint::moved::sum;
use crate::endpoint::{Endpoint, TestResult, Verdict};
use crate::engine::clock;
use crate::error::ServiceError;

/// Encode workers, in every form.
const ENCODE: &str = "app.kubernetes.io/name in (vllm-encode,encode)";
/// Of Dynamo's runtime, for each endpoint that the worker has: an encode worker has no other than the one that takes pictures.
const REQUESTS: &str = "dynamo_component_requests_total";
const BYTES: &str = "dynamo_component_request_bytes_total";
/// It counts when it has answered, which is before the whole answer is there. Assumed: a look later is late enough.
const COUNTED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(250);

/// The pods of Dynamo's encode workers; none where pictures are encoded by others.
pub(super) async fn encode_workers(client: &Client, serve: &ServeFacts) -> Result<Vec<Engine>, ServiceError> {
    Ok(engines(client, serve, ENCODE).await?.into_iter().filter(|engine| !engine.by_vllm()).collect())
}

/// The test. What cannot be asked is a test that failed.
pub(super) async fn test(client: &Client, serve: &ServeFacts, endpoint: &Endpoint, encode: &[Engine]) -> TestResult {
    let began = Instant::now();
    let failed = |why: String| TestResult {
        id: "picture-encoded".into(),
        asked: "about a picture".into(),
        expected: "a request to an encode worker".into(),
        got: why,
        verdict: Verdict::Failed,
        seconds: began.elapsed().as_secs_f64(),
    };
    match encoded(client, serve, endpoint, encode).await {
        Ok(encoded) => Encoded { seconds: began.elapsed().as_secs_f64(), ..encoded }.result(),
        Err(error) => failed(format!("{error:#}")),
    }
}

async fn encoded(client: &Client, serve: &ServeFacts, endpoint: &Endpoint, encode: &[Engine]) -> anyhow::Result<Encoded> {
    let picture = picture(&clock::now().to_string())?;
    let before = taken(client, encode).await?;
    endpoint.look(&serve.model, QUESTION, &picture).await?;
    let answered = Instant::now();
    loop {
        let encoded = Encoded { before, after: taken(client, encode).await?, bytes: picture.len(), seconds: 0.0 };
        if encoded.has_come() || answered.elapsed() > COUNTED {
            return Ok(encoded);
        }
        clock::sleep(LOOK).await;
    }
}

/// By all encode workers together: any of them may have been asked.
async fn taken(client: &Client, encode: &[Engine]) -> Result<Taken, ServiceError> {
    let pages = try_join_all(encode.iter().map(|pod| pod.metrics(client))).await?;
    let all = |name: &str| pages.iter().filter_map(|page| sum(page, name)).sum();
    Ok(Taken { requests: all(REQUESTS), bytes: all(BYTES) })
}
