//! What becomes of a session's events: status of the fleet, and lines in the log.

use std::{sync::Arc, time::SystemTime};

use super::stream::Peer;
use crate::{
    gate,
    serve::Hub,
    snapshot::{ResourceType, Snapshot},
    xds::session::Event,
};

/// Tells the fleet, and the log, what a session learnt about its node.
pub(super) fn record(hub: &Hub, peer: &Peer, events: Vec<Event>) {
    let node = peer.node.id.as_str();
    let now = SystemTime::now();
    for event in events {
        let mut reason = None;
        let kind = match &event {
            Event::Acked { kind, version } => {
                hub.metrics().acks.increment(*kind);
                tracing::debug!(node, %kind, version = version.short(), "accepted");
                Some(*kind)
            }
            Event::Restored { kind, version } => {
                tracing::warn!(node, %kind, version = version.short(), "back on its last good version");
                Some(*kind)
            }
            Event::Nacked { kind, version, message, .. } => {
                hub.metrics().nacks.increment(*kind);
                reason = filter_reason(*kind, peer.session.snapshot());
                let why = reason.as_deref().unwrap_or("not known here");
                tracing::error!(node, %kind, version = version.short(), message, reason = why, "refused");
                Some(*kind)
            }
            Event::Settled { .. } | Event::Unsettled => None,
        };
        let memory = kind.and_then(|kind| Some((kind, Arc::clone(peer.session.memory().of(kind)?))));
        let mut fleet = hub.fleet();
        fleet.record(node, peer.stream, event, reason, now);
        if let Some((kind, memory)) = memory {
            fleet.remember(node, kind, memory);
        }
    }
}

/// Envoy's words for a refused filter do not say why; the filter's own do, and the engine has them here too.
fn filter_reason(kind: ResourceType, snapshot: Option<&Arc<Snapshot>>) -> Option<String> {
    let snapshot = snapshot.filter(|_| kind == ResourceType::ExtensionConfig)?;
    Some(gate::diagnose(snapshot.plan())?.to_string())
}
