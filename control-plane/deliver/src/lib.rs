//! How nodes get what is published, and how their answers come back: [`xds`], policy [`discovery`], [`rest`] polling
//! and [`files`]. What is published is decided in `postern-release`.

pub mod discovery;
pub mod files;
pub mod redirect;
pub mod rest;
pub mod xds;
