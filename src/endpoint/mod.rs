//! The model's endpoint as its users see it: an OpenAI-compatible API, four tests with known answers, what a prompt must move, and who must encode a picture.

mod client;
pub mod encoded;
mod known;
pub mod moved;

pub use client::{Chat, Endpoint};
pub use known::{Outcome, TestResult, Verdict, run};
