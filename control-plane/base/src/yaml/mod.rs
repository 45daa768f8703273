//! YAML, both ways: reads a file into trees with positions (`parse`, `build`, `tree`), remembers where fields are
//! (`origin`), and writes JSON values as text (`show`). It knows neither kinds nor schemas.

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
