//! What the parts before know, shown to people: [`explain`], [`difference`], [`simulate`], users' own tests, references.

pub mod difference;
pub mod eval;
pub mod explain;
pub mod reference;
pub mod simulate;
pub mod user_test;
pub mod validate;
