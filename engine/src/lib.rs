//! The engine: loads a plan and evaluates policy chains. Values in, values out: no I/O, no clock.
//!
//! A request passes through [`event`] (what a host says) → [`plan`] (route → chain) → [`chain`] → [`run`] (a chain under
//! way) → [`policy`] (steps) → [`verdict`].
//!
//! Dependencies point one way: `context` (what a step sees) ← [`attributes`] ← [`policy`] ← [`chain`] ← [`plan`] ←
//! [`run`]. What a step looks up in its plan is in `directory`, so that policies know neither plans nor chains.
//!
//! Waiting is a value. A [`Run`] goes as far as it can and then either is done or asks for something: headers, a
//! property, the body, an agent's answer, some time. Whoever drives it answers, now or later. What answers at once, like a
//! value that workers share, is called ([`host`]).

#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, reason = "request data must not be able to overflow anything")]

pub mod agent;
pub mod answers;
pub mod ask;
pub mod attributes;
pub mod budget;
pub mod cel;
pub mod chain;
pub mod consumers;
mod context;
mod deny_with;
mod directory;
pub mod edited;
pub mod edits;
pub mod event;
pub mod header;
pub mod host;
pub mod json;
pub mod json_schema;
pub mod jwt;
mod load_error;
pub mod matching;
pub mod message_signature;
mod on_failure;
mod password;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod protobuf;
mod rare;
pub mod record;
mod redaction;
pub mod replays;
pub mod route_record;
pub mod run;
pub mod schema;
mod secret;
mod selector;
mod site;
mod strings;
mod text;
pub mod verdict;

/// Origins of browsers, and which of them a rule means.
pub mod origin {
    pub use crate::text::origin::{Origin, OriginRule};
}

pub use ask::{Answer, Ask, Turn};
pub use edited::EditedHeaders;
pub use event::{Headers, Inputs, Needs, Phase, Property};
pub use host::Host;
pub use load_error::{LoadError, PlanPart};
pub use placement::Placement;
pub use plan::Plan;
pub use record::{Collector, GrpcRecord, Record};
pub use run::Run;
pub use site::Site;
pub use verdict::{Decision, Response, Verdict};
