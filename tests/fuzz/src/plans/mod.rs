//! Plans: one that has everything in it, and how a script changes it.

mod edit;
mod expressions;
mod policies;
mod steps;
mod whole;

pub use self::{
    edit::edit,
    expressions::{has_body, has_kind, path_starts_with, query_contains, user},
    steps::{digest, key_from, limit, validate},
    whole::whole,
};
