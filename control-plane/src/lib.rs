//! The control plane: what users write becomes what Envoys run, and what Envoys say about it becomes status.
//!
//! The modules stand in the order in which a policy passes through them:
//! [`source`] (YAML) → [`model`] → [`attach`] → [`lower`] (plan) → [`gate`] → [`revision`] → [`snapshot`] →
//! [`xds`] (session → Envoy → ACK or NACK) → [`fleet`] (status). [`serve`] ties them together; [`http`] shows them.

// But for `wasm/sealed.rs` and `heap.rs`, which say why.
#![deny(unsafe_code)]

mod accept;
pub mod admin;
pub mod attach;
mod bounded;
pub mod catalogue;
pub mod cli;
pub mod condition;
pub mod control_plane;
pub mod counter;
pub mod diagnostic;
pub mod difference;
pub mod digest;
pub mod directory;
pub mod discovery;
pub mod eval;
pub mod explain;
pub mod expression;
pub mod files;
pub mod fleet;
pub mod gate;
mod heap;
pub mod http;
pub mod journal;
pub mod jwk;
pub mod keys;
pub mod lifecycle;
pub mod lint;
pub mod lower;
pub mod metrics;
pub mod model;
pub mod node;
mod open_files;
pub mod owner;
pub mod pipeline;
pub mod protobuf_json;
pub mod publication;
pub mod redirect;
pub mod reference;
mod regular_file;
pub mod releases;
pub mod resource_type;
pub mod rest;
pub mod review;
pub mod revision;
pub mod rollout;
pub mod route_match;
pub mod schema;
mod secret_file;
pub mod serve;
pub mod simulate;
pub mod snapshot;
pub mod source;
pub mod store;
pub mod support;
pub mod terminal;
mod uri;
pub mod user_test;
pub mod validate;
pub mod wasm;
pub mod xds;
pub mod yaml;
