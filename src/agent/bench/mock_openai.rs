//! A small OpenAI server on loopback with a latency that is known, for tests with the real aiperf.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::engine::clock;

/// How it behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) ttft: Duration,
    pub(super) itl: Duration,
    /// Answers in one piece to who asked for a stream.
    pub(super) in_one_piece: bool,
    /// From the request of this number on nothing is answered any more.
    pub(super) hangs_from: usize,
}

/// Stops when it is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _serving: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                connection.set_nodelay(true).unwrap();
                let asked = asked.clone();
                connections.spawn(async move {
                    // An error is a client that went away.
                    let _ = answer(connection, manner, &asked).await;
                });
            }
        });
        Self { address, _serving: serving }
    }
}

async fn answer(connection: TcpStream, manner: Manner, asked: &AtomicUsize) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    let (mut first, mut length) = (String::new(), 0);
    connection.read_line(&mut first).await?;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    if first.starts_with("GET") {
        return send(&mut connection, "application/json", &json!({"object": "list", "data": [{"id": "m", "object": "model"}]}).to_string()).await;
    }
    if asked.fetch_add(1, Ordering::SeqCst) >= manner.hangs_from {
        std::future::pending::<()>().await;
    }
    let body: Value = serde_json::from_slice(&body).unwrap();
    let tokens = body["max_completion_tokens"].as_u64().unwrap();
    assert_eq!((&body["stream"], &body["ignore_eos"]), (&json!(true), &json!(true)));
    let prompt = body["messages"][0]["content"].to_string().len();
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt as u64 + tokens});
    let chunk = |choices: Value, usage: Value| json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, "usage": usage});
    if manner.in_one_piece {
        clock::sleep(manner.ttft + manner.itl * u32::try_from(tokens).unwrap()).await;
        let message = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": usage,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "a".repeat(usize::try_from(tokens).unwrap())}, "finish_reason": "length"}]});
        return send(&mut connection, "application/json", &message.to_string()).await;
    }
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n").await?;
    clock::sleep(manner.ttft).await;
    for n in 0..tokens {
        let delta = json!([{"index": 0, "delta": {"content": "a"}, "finish_reason": if n + 1 == tokens { json!("length") } else { Value::Null }}]);
        connection.write_all(format!("data: {}\n\n", chunk(delta, Value::Null)).as_bytes()).await?;
        clock::sleep(manner.itl).await;
    }
    connection.write_all(format!("data: {}\n\ndata: [DONE]\n\n", chunk(json!([]), usage)).as_bytes()).await?;
    connection.shutdown().await
}

async fn send(connection: &mut BufReader<TcpStream>, kind: &str, body: &str) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    connection.write_all(format!("{head}{body}").as_bytes()).await?;
    connection.shutdown().await
}

/// A byte-level tokenizer: one token a byte.
pub(super) fn tokenizer() -> (String, String) {
    let printable = |byte: u32| (0x21..0x7F).contains(&byte) || (0xA1..0xAD).contains(&byte) || (0xAE..0x100).contains(&byte);
    let mut spare = 0x100..;
    let vocabulary: serde_json::Map<String, Value> = (0..256_u32)
        .map(|byte| char::from_u32(if printable(byte) { byte } else { spare.next().unwrap() }).unwrap().to_string())
        .enumerate()
        .map(|(id, token)| (token, json!(id)))
        .collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let model = json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
        "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": []});
    let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "pre_tokenizer": bytes,
        "post_processor": null, "decoder": bytes, "model": model});
    (tokenizer.to_string(), json!({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32768}).to_string())
}
