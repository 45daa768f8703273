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

mod access_logs;
mod another_route;
mod audit_log;
mod bench_xds;
mod buckets;
mod calls;
mod certificates;
mod chains;
mod commands;
mod cpu_without_a_bound;
mod crashes;
mod decisions;
mod discovery;
mod driven;
mod edge;
mod endpoint_health;
mod envoy_resources;
mod files;
mod fleet;
mod framing_headers;
mod from_mesh;
mod gateway;
mod grpc_client;
mod hardening;
mod hosts;
mod identity_headers;
mod key_rotation;
mod limits;
mod loopback;
mod matching;
mod memory;
mod module;
mod module_sharing;
mod mtls;
mod names;
mod node_cache;
mod odd_files;
mod odd_requests;
mod oldest_envoy;
mod on_demand;
mod open_by_a_slip;
mod operations;
mod overlay_edge;
mod overlay_match;
mod path_spellings;
mod permissions;
mod permissive_start;
mod polling;
mod prometheus;
mod raw;
mod refusals;
mod refused_resources;
mod replays;
mod restarts;
mod rollouts;
mod route_names;
mod secrets;
mod simulated;
mod single_types;
mod source_address;
mod store;
mod stored;
mod stories;
mod strangers;
mod streamless;
mod tour;
mod tutorials;
mod updates;
mod virtual_hosts;
mod virtual_outbound;
mod ways_back;
mod world;
mod xds;
