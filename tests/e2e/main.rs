//! End to end, on the real parts: `postern`, Envoy and an upstream, as processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "test code"
)]

mod audit_log;
mod commands;
mod decisions;
mod fleet;
mod key_rotation;
mod limits;
mod module;
mod odd_requests;
mod operations;
mod refusals;
mod restarts;
mod rollouts;
mod store;
mod stored;
mod updates;
mod world;
