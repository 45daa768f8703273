//! From resources to what an Envoy is served: [`attach`] (who gets what) → [`lower`] (the plan) → [`gate`] (the filter's own
//! bytes load it) → [`snapshot`] (resources of Envoy). [`pipeline`] is the line through them.
//!
//! It keeps nothing, and knows no revision that was or is to come.

// But for `wasm/sealed.rs`, which says why.
#![deny(unsafe_code)]

pub mod attach;
pub mod expression;
pub mod gate;
pub mod keys;
pub mod lint;
pub mod lower;
pub mod pipeline;
pub mod review;
pub mod revision;
pub mod route_match;
pub mod snapshot;
pub mod support;
pub mod wasm;
