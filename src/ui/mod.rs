//! Turns events and answers into text: the only module that prints.

mod failure;

pub use failure::failure;
