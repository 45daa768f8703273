//! What the layers below know, shown to people: [`explain`], [`difference`], [`simulate`], users' own tests,
//! references. It computes from the same values that are served, and changes nothing.

pub mod difference;
pub mod eval;
pub mod explain;
pub mod reference;
pub mod simulate;
pub mod user_test;
pub mod validate;
