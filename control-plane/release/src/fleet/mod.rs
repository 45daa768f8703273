//! The fleet: which node runs which version of what, and why it refused another. Free of I/O; time is an argument.
//!
//! Streams report what their clients do ([`Fleet::connect`], [`Fleet::record`], [`Fleet::disconnect`]). Readers ask
//! ([`Fleet::report`], [`Fleet::sightings`], [`Fleet::progress`]) and are notified of changes by [`Fleet::changes`].

mod event;
mod live;
mod memory;
mod report;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use postern_base::{digest::Digest, node::NodeIdentity, via_cache::ViaCache};
use postern_compile::{
    snapshot::ResourceType,
    support::{Unsupported, unsupported},
};
use tokio::sync::watch;

pub use event::Event;
pub use live::LiveFleet;
pub use memory::{Remembered, StreamMemory};
use report::seconds;
pub use report::{Nack, NodeReport, RevisionProgress, Sighting, TypeStatus};

use crate::journal::{Happening, Journal};

/// The maximum number of disconnected nodes that are remembered; the first to leave are forgotten first.
const MOST_DISCONNECTED: usize = 10_000;

/// The warning for several nodes that share one identity.
const SHARED: &str =
    "several Envoys use this node id: what one of them says is taken for the other's. Give each an id of its own";

/// All nodes that are connected, or were recently.
#[derive(Debug)]
pub struct Fleet {
    nodes: BTreeMap<String, Node>,
    streams: u64,
    changes: watch::Sender<u64>,
    journal: Arc<Journal>,
}

#[derive(Debug, Default)]
struct Node {
    identity: Arc<NodeIdentity>,
    /// The open streams, each with the revision that it is settled on.
    streams: Vec<(u64, Option<Digest>)>,
    /// The aggregated streams among them, each with the number of the latest such stream when it last received
    /// something. An Envoy has one, and sends nothing on the first after it has opened another.
    aggregated: Vec<(u64, u64)>,
    is_shared: bool,
    /// Why nothing is served to it.
    unsupported: Option<Unsupported>,
    /// The node cache that its latest stream came through.
    cache: Option<ViaCache>,
    since: u64,
    types: BTreeMap<ResourceType, TypeStatus>,
    /// Refusals that the node has not recovered from, by type and stream.
    refusals: BTreeMap<(ResourceType, u64), Arc<Nack>>,
    /// The memory that all of its streams share.
    memory: Remembered,
}

/// The result of opening a stream.
#[derive(Debug)]
pub struct Joined {
    /// The number of the stream, unique in this process.
    pub stream: u64,
    /// The memory that all streams of the node share.
    pub memory: Remembered,
}

/// The events that a stream reports together.
#[derive(Debug, Default)]
pub struct Learnt {
    /// The events, in order.
    pub events: Vec<Event>,
    /// The filter's own reason for a refusal, if the client's message lacks it.
    pub reason: Option<String>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self::noted_in(Arc::default())
    }
}

impl Fleet {
    /// An empty fleet that records connects and disconnects in a journal.
    pub fn noted_in(journal: Arc<Journal>) -> Self {
        Self { nodes: BTreeMap::new(), streams: 0, changes: watch::Sender::new(0), journal }
    }

    /// Records that a node opened a stream. Creates the node if it is new.
    pub fn connect(&mut self, identity: &NodeIdentity, now: SystemTime) -> Joined {
        self.streams = self.streams.wrapping_add(1);
        let node = self.nodes.entry(identity.id.clone()).or_default();
        if *node.identity != *identity {
            node.identity = Arc::new(identity.clone());
        }
        let unsupported = unsupported(identity);
        if let Some(reason) = unsupported.as_ref().filter(|_| node.unsupported != unsupported) {
            tracing::warn!(node = identity.id, "unsupported, and served nothing: {reason}");
        }
        node.unsupported = unsupported;
        if node.streams.is_empty() {
            node.since = seconds(now);
            let NodeIdentity { id, service, .. } = identity.clone();
            self.journal.note(Happening::NodeConnected { node: id, service }, now);
        }
        node.streams.push((self.streams, None));
        let joined = Joined { stream: self.streams, memory: node.memory.clone() };
        self.changed();
        joined
    }

    /// Records that a node opened an aggregated stream. Otherwise like [`Self::connect`].
    pub fn connect_aggregated(&mut self, identity: &NodeIdentity, now: SystemTime) -> Joined {
        let joined = self.connect(identity, now);
        if let Some(node) = self.nodes.get_mut(&identity.id) {
            node.aggregated.push((joined.stream, joined.stream));
        }
        joined
    }

    /// Records which node cache the latest stream of a node came through, if any. Ignored if the node is unknown.
    pub fn came_via(&mut self, id: &str, cache: Option<ViaCache>) {
        if let Some(node) = self.nodes.get_mut(id).filter(|node| node.cache != cache) {
            node.cache = cache;
            self.changed();
        }
    }

    /// Records that a node's stream ended. Ignored if the node or the stream is unknown.
    pub fn disconnect(&mut self, id: &str, stream: u64, now: SystemTime) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.streams.retain(|(open, _)| *open != stream);
            node.streams.shrink_to_fit();
            node.aggregated.retain(|(open, _)| *open != stream);
            node.is_shared &= node.aggregated.len() > 1;
            if node.streams.is_empty() {
                node.since = seconds(now);
                self.journal.note(Happening::NodeGone { node: id.to_owned() }, now);
            }
            self.changed();
        }
    }

    /// Records what a stream learnt about its node.
    pub fn record(&mut self, id: &str, stream: u64, learnt: Learnt, now: SystemTime) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        let Learnt { events, mut reason } = learnt;
        let answered = events.iter().any(|event| matches!(event, Event::Acked { .. } | Event::Nacked { .. }));
        if answered && node.spoke(stream) {
            tracing::warn!(node = id, "{SHARED}");
        }
        for event in events {
            if let Some(happening) = happening(id, &event, reason.as_deref()) {
                self.journal.note(happening, now);
            }
            match event {
                Event::Acked { kind, version } => node.accepted(kind, version, seconds(now)),
                Event::Restored { kind, version } => {
                    let status = node.types.entry(kind).or_default();
                    (status.running, status.accepted) = (Some(version), Some(seconds(now)));
                }
                Event::Nacked { kind, version, message, resources, carried } => {
                    let (reason, at) = (reason.take(), seconds(now));
                    let refusal = Arc::new(Nack { version, message, resources, carried, reason, at });
                    node.types.entry(kind).or_default().refused = Some(Arc::clone(&refusal));
                    node.refusals.insert((kind, stream), refusal);
                }
                Event::Warned { kind, warning } => node.types.entry(kind).or_default().warning = Some(warning),
                Event::Settled { revision } => node.settle(stream, Some(revision)),
                Event::Unsettled => node.settle(stream, None),
            }
        }
        self.changed();
    }

    /// Forgets nodes that have been disconnected for longer than `keep` and, if there are too many, those that left
    /// first. Nodes for which `is_known` returns true are forgotten last. Returns the number of forgotten nodes.
    pub fn forget(&mut self, keep: Duration, now: SystemTime, is_known: impl Fn(&NodeIdentity) -> bool) -> usize {
        let limit = seconds(now).saturating_sub(keep.as_secs());
        let before = self.nodes.len();
        self.nodes.retain(|_, node| !node.streams.is_empty() || node.since >= limit);
        let away = self.nodes.values().filter(|node| node.streams.is_empty()).count();
        self.forget_first(away.saturating_sub(MOST_DISCONNECTED), is_known);
        let forgotten = before.saturating_sub(self.nodes.len());
        if forgotten > 0 {
            self.changed();
        }
        forgotten
    }

    /// Forgets this many disconnected nodes, those that left first before others.
    fn forget_first(&mut self, number: usize, is_known: impl Fn(&NodeIdentity) -> bool) {
        if number == 0 {
            return;
        }
        let away = self.nodes.iter().filter(|(_, node)| node.streams.is_empty());
        let mut away: Vec<_> = away.map(|(id, node)| (is_known(&node.identity), node.since, id.clone())).collect();
        away.sort();
        for (_, _, id) in away.iter().take(number) {
            self.nodes.remove(id);
        }
    }

    /// The identities of all nodes.
    pub fn identities(&self) -> Vec<NodeIdentity> {
        self.nodes.values().map(|node| NodeIdentity::clone(&node.identity)).collect()
    }

    /// The number of open streams.
    pub fn open_streams(&self) -> usize {
        self.nodes.values().map(|node| node.streams.len()).sum()
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The reports of all nodes, sorted by identity.
    pub fn report(&self) -> Vec<NodeReport> {
        let report = |(id, node): (&String, &Node)| NodeReport {
            id: id.clone(),
            service: node.identity.service.clone(),
            connected: !node.streams.is_empty(),
            since: node.since,
            revision: node.revision().cloned(),
            unsupported: node.unsupported.as_ref().map(ToString::to_string),
            warning: node.is_shared.then_some(SHARED),
            cache: node.cache.clone(),
            types: node.types.clone(),
        };
        self.nodes.iter().map(report).collect()
    }

    /// All nodes as a rollout sees them, sorted by identity.
    pub fn sightings(&self) -> Vec<Sighting> {
        let sighting = |node: &Node| Sighting {
            node: Arc::clone(&node.identity),
            connected: !node.streams.is_empty(),
            unsupported: node.unsupported.is_some(),
            revision: node.revision().cloned(),
            refused: node.refusals().map(|(kind, refusal)| (kind, Arc::clone(refusal))).collect(),
            refused_policies: None,
        };
        self.nodes.values().map(sighting).collect()
    }

    /// How far the connected nodes that are supported are with a revision.
    pub fn progress(&self, revision: &Digest) -> RevisionProgress {
        let mut progress = RevisionProgress::default();
        let counts = |node: &Node| !node.streams.is_empty() && node.unsupported.is_none();
        for (id, node) in self.nodes.iter().filter(|(_, node)| counts(node)) {
            progress.connected += 1;
            if node.revision() == Some(revision) {
                progress.settled += 1;
            } else if node.refusals().next().is_some() {
                progress.refusing.push(id.clone());
            }
        }
        progress
    }

    /// A counter that increases with each change of the fleet.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notifies those who follow [`Self::changes`] of a change outside of the fleet: clients of policy discovery.
    pub(crate) fn ring(&self) {
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// The journal entry for an event, if it has one: what nodes said is recorded, our conclusions are not.
fn happening(id: &str, event: &Event, reason: Option<&str>) -> Option<Happening> {
    let node = id.to_owned();
    match event {
        Event::Acked { kind, version } => Some(Happening::NodeAcked { node, kind: *kind, version: version.clone() }),
        Event::Nacked { kind, version, message, .. } => {
            let reason = reason.unwrap_or(message).to_owned();
            Some(Happening::NodeNacked { node, kind: *kind, version: version.clone(), reason })
        }
        Event::Restored { .. } | Event::Warned { .. } | Event::Settled { .. } | Event::Unsettled => None,
    }
}

impl Node {
    /// Records that a stream received something. Returns whether this shows for the first time that two Envoys share an
    /// identity.
    fn spoke(&mut self, stream: u64) -> bool {
        let Some(latest) = self.aggregated.iter().map(|(stream, _)| *stream).max() else { return false };
        let Some(spoken) = self.aggregated.iter_mut().find(|(open, _)| *open == stream) else { return false };
        spoken.1 = latest;
        let is_news = !self.is_shared && stream < latest;
        self.is_shared |= is_news;
        is_news
    }

    /// Records an accepted version of a type. Refusals of that type on other streams count for as long as the memory of
    /// their sessions says so.
    fn accepted(&mut self, kind: ResourceType, version: Digest, at: u64) {
        self.refusals.retain(|(of, stream), _| *of != kind || self.memory.is_outstanding(kind, *stream));
        let refused = self.refused(kind);
        let status = TypeStatus { running: Some(version), accepted: Some(at), refused, ..TypeStatus::default() };
        self.types.insert(kind, status);
    }

    fn settle(&mut self, stream: u64, revision: Option<Digest>) {
        if let Some((_, settled)) = self.streams.iter_mut().find(|(open, _)| *open == stream) {
            *settled = revision;
        }
        if self.revision().is_none() {
            return;
        }
        // The node runs all that it subscribed to, so refusals of ended streams no longer count.
        let is_open = |stream: u64| self.streams.iter().any(|(open, _)| *open == stream);
        self.memory.settle(is_open);
        if self.refusals.keys().all(|(_, stream)| is_open(*stream)) {
            return;
        }
        self.refusals.retain(|(_, stream), _| self.streams.iter().any(|(open, _)| open == stream));
        let refused: Vec<_> = self.types.keys().map(|kind| (*kind, self.refused(*kind))).collect();
        for (kind, refused) in refused {
            self.types.entry(kind).or_default().refused = refused;
        }
    }

    /// The latest refusal of a type that the node has not recovered from.
    fn refused(&self, kind: ResourceType) -> Option<Arc<Nack>> {
        let of_kind = self.refusals().filter(|(of, _)| *of == kind);
        of_kind.max_by_key(|(_, refusal)| refusal.at).map(|(_, refusal)| Arc::clone(refusal))
    }

    /// The refusals that the node has not recovered from.
    fn refusals(&self) -> impl Iterator<Item = (ResourceType, &Arc<Nack>)> {
        self.refusals.iter().map(|((kind, _), refusal)| (*kind, refusal))
    }

    /// The revision that all of its streams are settled on, or `None` if there is none.
    fn revision(&self) -> Option<&Digest> {
        let mut streams = self.streams.iter().map(|(_, settled)| settled.as_ref());
        let first = streams.next()??;
        streams.all(|settled| settled == Some(first)).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn node(id: &str) -> NodeIdentity {
        NodeIdentity { id: id.to_owned(), ..NodeIdentity::default() }
    }

    fn nobody(_: &NodeIdentity) -> bool {
        false
    }

    fn ids(fleet: &Fleet) -> Vec<String> {
        fleet.report().into_iter().map(|node| node.id).collect()
    }

    #[test]
    fn keeps_a_node_that_went_away_for_a_while_and_a_connected_one_for_ever() {
        let mut fleet = Fleet::default();
        let gone = fleet.connect(&node("gone"), at(0));
        fleet.connect(&node("here"), at(0));
        fleet.disconnect("gone", gone.stream, at(100));
        fleet.forget(Duration::from_secs(60), at(160), nobody);
        assert_eq!(ids(&fleet), ["gone", "here"]);
        fleet.forget(Duration::from_secs(60), at(161), nobody);
        assert_eq!(ids(&fleet), ["here"]);
        fleet.forget(Duration::from_secs(60), at(1_000_000), nobody);
        assert_eq!(ids(&fleet), ["here"]);
    }

    #[test]
    fn forgets_the_first_to_leave_of_too_many() {
        let mut fleet = Fleet::default();
        for number in 0..MOST_DISCONNECTED + 2 {
            let id = format!("{number:06}");
            let joined = fleet.connect(&node(&id), at(0));
            fleet.disconnect(&id, joined.stream, at(number as u64));
        }
        fleet.forget(Duration::from_secs(1_000_000), at(0), nobody);
        let left = ids(&fleet);
        assert_eq!((left.len(), left.first().map(String::as_str)), (MOST_DISCONNECTED, Some("000002")));
    }

    #[test]
    fn forgets_strangers_before_nodes_that_a_target_selects() {
        let mut fleet = Fleet::default();
        for number in 0..MOST_DISCONNECTED + 2 {
            let id = format!("{number:06}");
            let joined = fleet.connect(&node(&id), at(0));
            fleet.disconnect(&id, joined.stream, at(number as u64));
        }
        fleet.forget(Duration::from_secs(1_000_000), at(0), |node| node.id == "000000");
        let left = ids(&fleet);
        assert_eq!((left.len(), &left[..2]), (MOST_DISCONNECTED, &["000000".to_owned(), "000003".to_owned()][..]));
    }

    #[test]
    fn an_unsupported_node_keeps_nobody_waiting() {
        let mut fleet = Fleet::default();
        let old = NodeIdentity { envoy: Some("1.36.4".to_owned()), ..node("old") };
        fleet.connect(&old, at(0));
        let progress = fleet.progress(&Digest::of(b"revision"));
        assert!(progress.is_complete() && progress.connected == 0, "{progress:?}");
        let reason = "Envoy 1.36.4 is older than 1.37, the oldest supported version";
        assert_eq!(fleet.report().first().and_then(|node| node.unsupported.as_deref()), Some(reason));
        // It was replaced by a newer one.
        fleet.connect(&NodeIdentity { envoy: Some("1.37.0".to_owned()), ..old }, at(1));
        assert_eq!(fleet.progress(&Digest::of(b"revision")).connected, 1);
        assert_eq!(fleet.report().first().and_then(|node| node.unsupported.clone()), None);
    }

    #[test]
    fn sees_two_envoys_with_one_identity_and_not_one_that_came_back() {
        let mut fleet = Fleet::default();
        let acked = || {
            let event = Event::Acked { kind: ResourceType::Cluster, version: Digest::of(b"version") };
            Learnt { events: vec![event], reason: None }
        };
        let warned = |fleet: &Fleet| fleet.report().iter().any(|node| node.warning.is_some());
        let first = fleet.connect_aggregated(&node("edge"), at(0)).stream;
        fleet.record("edge", first, acked(), at(0));
        // Its connection broke, which nobody has told yet.
        let again = fleet.connect_aggregated(&node("edge"), at(1)).stream;
        fleet.record("edge", again, acked(), at(1));
        fleet.record("edge", first, Learnt { events: vec![Event::Unsettled], reason: None }, at(1));
        assert!(!warned(&fleet));
        fleet.disconnect("edge", first, at(2));
        // A second one answers beside it.
        let other = fleet.connect_aggregated(&node("edge"), at(3)).stream;
        fleet.record("edge", other, acked(), at(3));
        assert!(!warned(&fleet));
        fleet.record("edge", again, acked(), at(3));
        assert!(warned(&fleet));
        // Streams for single types are several by nature.
        let single = [fleet.connect(&node("parts"), at(4)).stream, fleet.connect(&node("parts"), at(4)).stream];
        single.into_iter().chain(single).for_each(|stream| fleet.record("parts", stream, acked(), at(4)));
        fleet.disconnect("edge", other, at(5));
        assert!(!warned(&fleet));
    }

    #[test]
    fn a_node_of_many_streams_runs_a_revision_once_all_of_them_do() {
        let mut fleet = Fleet::default();
        let revision = Digest::of(b"revision");
        let streams = [fleet.connect(&node("edge"), at(0)).stream, fleet.connect(&node("edge"), at(1)).stream];
        let learnt = |event| Learnt { events: vec![event], reason: None };
        let settled = Event::Settled { revision: revision.clone() };
        let mut changes = fleet.changes();
        for (number, stream) in streams.into_iter().enumerate() {
            assert_eq!(fleet.progress(&revision).settled, 0, "stream {number}");
            changes.mark_unchanged();
            fleet.record("edge", stream, learnt(settled.clone()), at(2));
            assert!(changes.has_changed().is_ok_and(|changed| changed), "whoever follows the fleet is told");
        }
        assert_eq!(fleet.progress(&revision), RevisionProgress { connected: 1, settled: 1, refusing: Vec::new() });
        let [_, second] = streams;
        fleet.record("edge", second, learnt(Event::Unsettled), at(3));
        assert!(!fleet.progress(&revision).is_complete());
    }
}
