//! One file per step. Steps never ask the user, read flags, print, or write the state.

pub mod facts;
