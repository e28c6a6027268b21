//! Did keys and values move from prefill to decode? Asked with one prompt, between two looks at what the decode workers count.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use kube::Client;

use super::engines::{Engine, engines};
use super::facts::ServeFacts;
use crate::config::Spec;
use crate::endpoint::moved::{Counts, Moved, prompt, sum};
use crate::endpoint::{Endpoint, TestResult, Verdict};
use crate::engine::clock;
use crate::error::ServiceError;

/// Decode workers, in every form.
const DECODE: &str = "app.kubernetes.io/name in (vllm-decode,decode)";
const BYTES: &str = "vllm:nixl_bytes_transferred_sum";
/// What comes to an adapter by RDMA, whichever end begins. A node without adapters has no such files.
const EFA: [&str; 3] =
    ["sh", "-c", "cat /sys/class/infiniband/*/ports/1/hw_counters/rdma_read_bytes /sys/class/infiniband/*/ports/1/hw_counters/rdma_write_recv_bytes 2>/dev/null || true"];
/// The engine counts a little after it has answered. Assumed: a step of the engine takes some milliseconds.
const COUNTED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(250);

/// The pods of the decode workers; none where prompts and answers are computed by the same.
pub(super) async fn decode_workers(client: &Client, serve: &ServeFacts) -> Result<Vec<Engine>, ServiceError> {
    engines(client, serve, DECODE).await
}

/// The test. What cannot be asked is a test that failed.
pub(super) async fn test(client: &Client, serve: &ServeFacts, spec: &Spec, endpoint: &Endpoint, decode: &[Engine]) -> TestResult {
    let began = Instant::now();
    match moved(client, serve, spec, endpoint, decode).await {
        Ok(moved) => Moved { seconds: began.elapsed().as_secs_f64(), ..moved }.result(),
        Err(error) => TestResult {
            id: "kv-moved".into(),
            asked: "what a prompt moves from prefill to decode".into(),
            expected: "counters of NIXL and EFA".into(),
            got: error.to_string(),
            verdict: Verdict::Failed,
            seconds: began.elapsed().as_secs_f64(),
        },
    }
}

async fn moved(client: &Client, serve: &ServeFacts, spec: &Spec, endpoint: &Endpoint, decode: &[Engine]) -> Result<Moved, ServiceError> {
    let before = counts(client, decode).await?;
    let prompt = prompt(&clock::now().to_string(), spec.max_model_len());
    // Tokens are words at least.
    let tokens = endpoint.read(&serve.model, &prompt).await?.unwrap_or_else(|| prompt.split(' ').count() as u64);
    let expected = tokens * spec.model.architecture.kv_bytes_a_token(&spec.precision.kv_cache_dtype.value);
    let over_efa = spec.instance.efa.as_ref().is_some_and(|efa| efa.value > 0);
    let mut moved = Moved { before, after: before, tokens, expected, over_efa, log: None, seconds: 0.0 };
    let answered = Instant::now();
    loop {
        moved.after = counts(client, decode).await?;
        if moved.is_whole() {
            return Ok(moved);
        }
        if answered.elapsed() > COUNTED {
            break;
        }
        clock::sleep(LOOK).await;
    }
    moved.log = told(client, decode).await;
    Ok(moved)
}

/// Of all decode workers together: any of them may have answered.
async fn counts(client: &Client, decode: &[Engine]) -> Result<Counts, ServiceError> {
    let each = try_join_all(decode.iter().map(|pod| async move {
        let (metrics, adapters) = futures::try_join!(pod.metrics(client), pod.at.output(client, &EFA))?;
        let counters: Vec<f64> = adapters.split_whitespace().filter_map(|count| count.parse().ok()).collect();
        Ok::<_, ServiceError>(Counts { nixl: sum(&metrics, BYTES).unwrap_or(0.0), efa: (!counters.is_empty()).then(|| counters.iter().sum()) })
    }))
    .await?;
    let efa = each.iter().map(|counts| counts.efa).sum();
    Ok(Counts { nixl: each.iter().map(|counts| counts.nixl).sum(), efa })
}

/// The line of a decode worker's log that tells why nothing came. Without a log there is none: the counters have said enough.
async fn told(client: &Client, decode: &[Engine]) -> Option<String> {
    for pod in decode {
        let lines = pod.at.last_lines(client, 200, false).await.unwrap_or_default();
        if let Some(line) = lines.into_iter().rev().find(|line| line.contains("makeXferReq") || line.contains("NIXL transfer failure")) {
            return Some(line);
        }
    }
    None
}
