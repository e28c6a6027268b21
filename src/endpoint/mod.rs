//! The model's endpoint as its users see it: an OpenAI-compatible API, four tests with known answers, and what a prompt must move.

mod client;
mod known;
pub mod moved;

pub use client::{Chat, Endpoint};
pub use known::{Outcome, TestResult, Verdict, run};
