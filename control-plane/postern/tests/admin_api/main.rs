//! The admin API over real HTTP: that it is as it describes itself, and what it says.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod conformance;
mod events;
mod operators;
mod resources;
mod server;
