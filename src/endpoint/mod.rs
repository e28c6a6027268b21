//! The model's endpoint as its users see it: an OpenAI-compatible API, tests with known answers, what a prompt must move, and who must encode a picture.

mod client;
pub mod encoded;
pub mod export;
mod known;
pub mod moved;
mod stream;
pub mod suite;

pub use client::{Chat, Endpoint, Refusal};
pub use known::{Outcome, TestResult, Verdict, run};
