//! Attachment: which resources concern which nodes and routes, and how overlapping resources are merged (docs/rules.md,
//! "Matching").
//!
//! A [`Scope`] has the resources that concern one group of nodes, by priority. The chains of routes ([`Attachment`]),
//! what `to` entries say of destinations, and access logs are derived from it. Every merged field knows its origin. Nothing here knows plans or
//! Envoy.

mod access_log;
mod candidates;
mod chain;
mod effective;
mod inherit;
mod kinship;
mod merge;
mod outbound;
mod permission;
mod scope;
mod source;
mod tracing;
mod virtual_outbound;

pub use self::kinship::{Kinship, MOST_IMAGINED, Signature, imagined_groups};
pub(crate) use self::virtual_outbound::overlap;
pub use self::{
    access_log::{Logged, Which, access_logs},
    chain::{Attached, Attachment, EffectiveStep, Part, attach, attach_routes},
    effective::Effective,
    inherit::Withheld,
    kinship::{groups, imagined_nodes},
    merge::{Fields, Provided},
    outbound::{Destination, destinations, faults, for_route, for_service, health_check, own_retries},
    permission::Rule,
    scope::Scope,
    source::{Source, shown_source},
    tracing::{EffectiveTracing, tracing},
    virtual_outbound::outbound_name,
};
