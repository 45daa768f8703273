//! The xDS cases (docs/rules.md, xDS cases), each a test with its number: requests, snapshots and the time in,
//! responses and events out, without a socket. Cases that need an Envoy or a connection are tested elsewhere.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod client;
mod convergence;
mod crossings;
mod extensions;
mod incremental;
mod nacks;
mod order;
mod refused_first;
mod several_streams;
mod streams;
mod virtual_hosts;
mod wildcards;
mod world;
