//! Generates the references in `docs/` from the schemas that resources and parameters are checked against.

mod expressions;
mod policies;
mod resources;
mod table;

pub use expressions::expressions;
pub use policies::{example, policies};
pub use resources::resources;
