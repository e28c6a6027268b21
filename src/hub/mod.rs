//! The Hugging Face hub: whose a token is, what a repository holds at a commit, whether its files may be read.

mod client;

pub use client::{Commit, File, Hub};
