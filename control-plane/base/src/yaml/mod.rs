//! YAML, both ways: the bytes of a file to trees with positions (`parse`, `build`, `tree`), the places of fields (`origin`),
//! and JSON values to text as people write it (`show`). It knows neither kinds nor schemas.

mod build;
mod document;
mod origin;
mod parse;
mod show;
mod tree;

pub use self::{
    build::{MAX_NODES, MAX_TEXT},
    document::{Document, Fault, Parsed},
    origin::Origin,
    parse::{MAX_BYTES, parse},
    show::to_yaml,
    tree::{Key, Node, Position, Value},
};
