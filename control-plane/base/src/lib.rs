//! What every layer of the control plane shares. Nothing here knows what users write, or what Envoy is.

pub mod accept;
pub mod bounded;
pub mod counter;
pub mod diagnostic;
pub mod digest;
pub mod node;
pub mod open_files;
pub mod regular_file;
pub mod resource_type;
pub mod secret_file;
pub mod terminal;
pub mod uri;
pub mod yaml;
