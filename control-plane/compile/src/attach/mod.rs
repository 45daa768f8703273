//! Attachment: who gets which policy, and what becomes of policies that overlap.
//!
//! A [`Scope`] is what concerns one group of nodes, sorted by priority. From it follow the chains of routes
//! ([`Attachment`]), the time-outs and the access logs. Everything merged knows where it comes from.

mod access_log;
mod candidates;
mod chain;
mod inherit;
mod kinship;
mod merge;
mod permission;
mod scope;
mod source;
mod timeout;

pub use self::kinship::{Kinship, MOST_IMAGINED, Signature, imagined_groups};
pub use self::{
    access_log::{Logged, Which, access_logs},
    chain::{Attached, Attachment, EffectiveStep, Part, attach, attach_routes},
    inherit::Withheld,
    kinship::{groups, imagined_nodes},
    merge::{Fields, Provided},
    permission::Rule,
    scope::Scope,
    source::Source,
    timeout::{EffectiveTimeouts, for_route, for_service},
};
