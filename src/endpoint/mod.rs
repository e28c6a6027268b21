//! The model's endpoint as its users see it: an OpenAI-compatible API, four tests with known answers, what a prompt must move, and who must get a picture.

mod client;
pub mod encoded;
mod known;
pub mod moved;
pub mod pictures;

pub use client::{Chat, Endpoint};
pub use known::{Outcome, TestResult, Verdict, run};
