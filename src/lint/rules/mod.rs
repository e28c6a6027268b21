//! The rules by what they are about.

pub(super) mod engine;
pub(super) mod fabric;
pub(super) mod live;
pub(super) mod placement;
mod strings;
pub(super) mod text;
pub(super) mod time;
pub(super) mod transfer;
pub(super) mod versions;

#[cfg(test)]
mod cases;
