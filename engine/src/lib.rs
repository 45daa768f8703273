//! The engine: loads a plan and evaluates policy chains. Values in, values out: no I/O, no clock, no host calls.
//!
//! The modules stand in the order in which a request passes through them:
//! [`event`] → [`plan`] (route → chain) → [`chain`] → [`policy`] (steps) → [`verdict`].

#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, reason = "request data must not be able to overflow anything")]

pub mod cel;
pub mod chain;
pub mod edits;
pub mod event;
pub mod plan;
pub mod policy;
pub mod schema;
pub mod verdict;

pub use chain::Chain;
pub use event::Headers;
pub use plan::{LoadError, Plan};
pub use policy::Needs;
pub use verdict::{Decision, Response, Verdict};
