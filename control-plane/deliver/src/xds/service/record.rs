//! Passes a session's events on to the fleet and the log.

use std::{sync::Arc, time::SystemTime};

use postern_compile::{gate, snapshot::ResourceType};
use postern_release::fleet::Learnt;

use super::{Shared, peer::Peer};
use crate::xds::{offer::Offers, session::Event};

/// Records in the fleet, and logs, what a session learnt about its node.
pub(super) fn record(shared: &Shared, peer: &Peer, events: Vec<Event>) {
    let node = peer.node.id.as_str();
    let mut reason = None;
    for event in &events {
        match event {
            Event::Acked { kind, version } => {
                shared.traffic.acks.increment(*kind);
                tracing::debug!(node, %kind, version = version.short(), "accepted");
            }
            Event::Restored { kind, version } => {
                tracing::warn!(node, %kind, version = version.short(), "back on its last good version");
            }
            Event::Nacked { kind, version, message, .. } => {
                shared.traffic.nacks.increment(*kind);
                reason = filter_reason(*kind, peer.session.snapshot());
                let why = reason.as_deref().unwrap_or("not known here");
                tracing::error!(node, %kind, version = version.short(), message, reason = why, "refused");
            }
            Event::Warned { kind, warning } => tracing::warn!(node, %kind, "{warning}"),
            Event::Settled { .. } | Event::Unsettled => {}
        }
    }
    shared.fleet.record(node, peer.stream, Learnt { events, reason }, SystemTime::now());
}

/// The filter's own reason for a refused plan, which Envoy's message does not have: the engine loads the plan here and
/// gives the same reason.
fn filter_reason(kind: ResourceType, snapshot: Option<&Arc<Offers>>) -> Option<String> {
    let snapshot = snapshot.filter(|_| kind == ResourceType::ExtensionConfig)?;
    Some(gate::diagnose(snapshot.plan())?.to_string())
}
