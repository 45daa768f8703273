//! The base layer of the control plane: small parts that all other layers use, such as digests, YAML trees, diagnostics
//! and node identity. It knows neither the kinds of resources nor Envoy's configuration.

pub mod accept;
pub mod bounded;
pub mod derived;
pub mod diagnostic;
pub mod digest;
pub mod disposal;
pub mod durations;
pub mod node;
pub mod open_files;
pub mod regular_file;
pub mod resource_type;
pub mod seal;
pub mod secret_file;
pub mod terminal;
pub mod uri;
pub mod via_cache;
pub mod yaml;
