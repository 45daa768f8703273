//! The admin API over real HTTP: its description, and its answers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod conformance;
mod events;
mod lifecycle;
mod operators;
mod resources;
mod server;
mod sync;
