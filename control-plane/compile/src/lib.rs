//! The compile layer: from resources to what an Envoy is served. [`attach`] (which resources concern whom) → [`lower`]
//! (the plan) → [`gate`] (loads the plan in the filter's bytes) → [`snapshot`] (Envoy's resources). [`pipeline`] runs
//! these steps.
//!
//! It stores nothing, and knows neither earlier revisions nor connected nodes' state.

// Except in `wasm/sealed.rs`, which has the reason.
#![deny(unsafe_code)]

pub mod attach;
pub mod expression;
pub mod gate;
pub mod keys;
pub mod lint;
pub mod lower;
mod params;
pub mod pipeline;
mod port;
pub mod review;
pub mod revision;
pub mod route_match;
pub mod snapshot;
pub mod support;
pub mod wasm;
