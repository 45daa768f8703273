//! How nodes get what is published, and how their answers come back: [`xds`], policy [`discovery`], [`rest`] polling
//! and [`files`]; and the [`node_cache`] that stands in for a control plane that is gone. What is published is decided in `postern-release`.

pub mod discovery;
pub mod files;
pub mod node_cache;
pub mod redirect;
pub mod rest;
pub mod xds;
