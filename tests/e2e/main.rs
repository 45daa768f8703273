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
mod bench_xds;
mod commands;
mod crashes;
mod decisions;
mod envoy_resources;
mod files;
mod fleet;
mod gateway;
mod grpc_client;
mod key_rotation;
mod limits;
mod matching;
mod module;
mod mtls;
mod odd_requests;
mod open_by_a_slip;
mod operations;
mod permissions;
mod polling;
mod refusals;
mod restarts;
mod rollouts;
mod store;
mod stored;
mod stories;
mod streamless;
mod tour;
mod updates;
mod world;
mod xds;
