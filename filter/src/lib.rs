//! The filter: the engine inside Envoy, as a proxy-wasm module. It is thin on purpose: it fetches the inputs of a
//! chain, lets the engine decide, and carries out the decision.
//!
//! A request passes through `callbacks` (Envoy calls) → `stream` (event, route, chain, verdict) → `host` (we call
//! Envoy).

#![deny(clippy::arithmetic_side_effects, reason = "request data must not be able to overflow anything")]
#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "only Envoy calls in, and only in wasm32"))]

#[cfg(target_arch = "wasm32")]
mod callbacks;
mod header_edit;
mod host;
mod matched;
mod memory;
mod notices;
mod pairs;
mod plugin;
mod records;
mod route_refusal;
mod shared;
mod sightings;
mod signature;
mod stream;
mod tokens;
mod worker;
