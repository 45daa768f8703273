//! The xDS server on real connections, with clients that keep to the protocol and clients that do not.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod fleet;
mod limits;
mod node_cache;
mod plans;
mod server;
mod services;
