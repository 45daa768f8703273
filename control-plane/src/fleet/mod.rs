//! The fleet: which node runs which version of what, and why it refused another. Free of I/O; time is an argument.
//!
//! Streams tell it what their clients do ([`Fleet::connect`], [`Fleet::record`], [`Fleet::disconnect`]); all others ask
//! ([`Fleet::report`], [`Fleet::progress`]) and learn by [`Fleet::changes`] when to ask again.

mod report;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::sync::watch;

use report::seconds;
pub use report::{NodeReport, Progress, Refusal, TypeStatus};

use crate::{
    digest::Digest,
    node::NodeIdentity,
    snapshot::ResourceType,
    xds::session::{Event, Memory, TypeMemory},
};

/// How many nodes that went away are remembered at most; the ones that left first are forgotten first.
const MOST_DISCONNECTED: usize = 10_000;

/// Every node that is connected, or was not long ago.
#[derive(Debug)]
pub struct Fleet {
    nodes: BTreeMap<String, Node>,
    streams: u64,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Node {
    service: String,
    /// The streams that are open, each with the revision that it is settled on.
    streams: Vec<(u64, Option<Digest>)>,
    since: u64,
    types: BTreeMap<ResourceType, TypeStatus>,
    memory: Memory,
}

/// A stream that a node opened.
#[derive(Debug)]
pub struct Joined {
    /// Its number, unique in this process.
    pub stream: u64,
    /// What earlier streams taught about the node.
    pub memory: Memory,
}

impl Default for Fleet {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), streams: 0, changes: watch::Sender::new(0) }
    }
}

impl Fleet {
    /// A node opened a stream.
    pub fn connect(&mut self, identity: &NodeIdentity, now: SystemTime) -> Joined {
        self.streams = self.streams.wrapping_add(1);
        let node = self.nodes.entry(identity.id.clone()).or_default();
        identity.service.clone_into(&mut node.service);
        if node.streams.is_empty() {
            node.since = seconds(now);
        }
        node.streams.push((self.streams, None));
        let joined = Joined { stream: self.streams, memory: node.memory.clone() };
        self.changed();
        joined
    }

    /// A node's stream ended.
    pub fn disconnect(&mut self, id: &str, stream: u64, now: SystemTime) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.streams.retain(|(open, _)| *open != stream);
            node.streams.shrink_to_fit();
            if node.streams.is_empty() {
                node.since = seconds(now);
            }
            self.changed();
        }
    }

    /// A stream learnt something about its node. `reason` is the filter's own, for a refusal that leaves it out.
    pub fn record(&mut self, id: &str, stream: u64, event: Event, reason: Option<String>, now: SystemTime) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        match event {
            Event::Acked { kind, version } => {
                let status = TypeStatus { running: Some(version), accepted: Some(seconds(now)), refused: None };
                node.types.insert(kind, status);
            }
            Event::Restored { kind, version } => {
                let status = node.types.entry(kind).or_default();
                (status.running, status.accepted) = (Some(version), Some(seconds(now)));
            }
            Event::Nacked { kind, version, message, resources } => {
                let refusal = Refusal { version, message, resources, reason, at: seconds(now) };
                node.types.entry(kind).or_default().refused = Some(Box::new(refusal));
            }
            Event::Settled { revision } => node.settle(stream, Some(revision)),
            Event::Unsettled => node.settle(stream, None),
        }
        self.changed();
    }

    /// A stream learnt something that counts for the node's next streams too.
    pub fn remember(&mut self, id: &str, kind: ResourceType, memory: Arc<TypeMemory>) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.memory.learn(kind, memory);
        }
    }

    /// Forgets nodes that have been away for longer than `keep`, and the first to leave of too many.
    pub fn forget(&mut self, keep: Duration, now: SystemTime) {
        let limit = seconds(now).saturating_sub(keep.as_secs());
        let before = self.nodes.len();
        self.nodes.retain(|_, node| !node.streams.is_empty() || node.since >= limit);
        let away = self.nodes.values().filter(|node| node.streams.is_empty()).count();
        self.forget_first(away.saturating_sub(MOST_DISCONNECTED));
        if self.nodes.len() != before {
            self.changed();
        }
    }

    /// Forgets some of the nodes that are away: those that left first.
    fn forget_first(&mut self, number: usize) {
        if number == 0 {
            return;
        }
        let away = self.nodes.iter().filter(|(_, node)| node.streams.is_empty());
        let mut away: Vec<_> = away.map(|(id, node)| (node.since, id.clone())).collect();
        away.sort();
        for (_, id) in away.iter().take(number) {
            self.nodes.remove(id);
        }
    }

    /// All nodes, in the order of their identities.
    pub fn report(&self) -> Vec<NodeReport> {
        let report = |(id, node): (&String, &Node)| NodeReport {
            id: id.clone(),
            service: node.service.clone(),
            connected: !node.streams.is_empty(),
            since: node.since,
            revision: node.revision().cloned(),
            types: node.types.clone(),
        };
        self.nodes.iter().map(report).collect()
    }

    /// How far the connected nodes are with a revision.
    pub fn progress(&self, revision: &Digest) -> Progress {
        let mut progress = Progress::default();
        for (id, node) in self.nodes.iter().filter(|(_, node)| !node.streams.is_empty()) {
            progress.connected += 1;
            if node.revision() == Some(revision) {
                progress.settled += 1;
            } else if node.types.values().any(|status| status.refused.is_some()) {
                progress.refusing.push(id.clone());
            }
        }
        progress
    }

    /// Counts the changes of the fleet: whoever follows it asks again when it moves.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Node {
    fn settle(&mut self, stream: u64, revision: Option<Digest>) {
        if let Some((_, settled)) = self.streams.iter_mut().find(|(open, _)| *open == stream) {
            *settled = revision;
        }
    }

    /// The revision that all of its streams are settled on.
    fn revision(&self) -> Option<&Digest> {
        let mut streams = self.streams.iter().map(|(_, settled)| settled.as_ref());
        let first = streams.next()??;
        streams.all(|settled| settled == Some(first)).then_some(first)
    }
}
