//! The fleet: which node runs which version of what, and why it refused another. Free of I/O; time is an argument.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

use crate::{digest::Digest, snapshot::ResourceType, xds::session::Memory};

/// Every node that was ever seen by this process.
#[derive(Debug, Default)]
pub struct Fleet {
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug, Default)]
struct Node {
    service: String,
    streams: usize,
    since: u64,
    types: BTreeMap<ResourceType, TypeStatus>,
    memory: Memory,
}

/// Where a node stands with one type of resource.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TypeStatus {
    /// The version that it runs, if it told us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Digest>,
    /// The version that it refused and has not got past since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

/// A NACK.
#[derive(Debug, Clone, Serialize)]
pub struct Refusal {
    /// What was refused.
    pub version: Digest,
    /// In the node's words.
    pub message: String,
    /// The filter's own reason, where the node's words leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When, in seconds since 1970.
    pub at: u64,
}

impl Refusal {
    /// A refusal at a time.
    pub fn new(version: Digest, message: String, reason: Option<String>, now: SystemTime) -> Self {
        Self { version, message, reason, at: seconds(now) }
    }
}

/// What is shown of a node.
#[derive(Debug, Serialize)]
pub struct NodeReport {
    /// Its identity.
    pub id: String,
    /// The service that it belongs to.
    pub service: String,
    /// Whether it has a stream open.
    pub connected: bool,
    /// Since when it is connected, or not, in seconds since 1970.
    pub since: u64,
    /// By type of resource.
    pub types: BTreeMap<ResourceType, TypeStatus>,
}

impl Fleet {
    /// A node opened a stream. Returns what earlier streams taught about it.
    pub fn connect(&mut self, id: &str, service: &str, now: SystemTime) -> Memory {
        let node = self.nodes.entry(id.to_owned()).or_default();
        service.clone_into(&mut node.service);
        node.streams = node.streams.saturating_add(1);
        node.since = seconds(now);
        node.memory.clone()
    }

    /// A node's stream ended, with what it taught.
    pub fn disconnect(&mut self, id: &str, memory: Memory, now: SystemTime) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.streams = node.streams.saturating_sub(1);
            node.since = seconds(now);
            node.memory = memory;
        }
    }

    /// A node runs what it should.
    pub fn acked(&mut self, id: &str, kind: ResourceType, version: Digest) {
        *self.status(id, kind) = TypeStatus { running: Some(version), refused: None };
    }

    /// A node went back to its last good version; what it refused stays on record.
    pub fn restored(&mut self, id: &str, kind: ResourceType, version: Digest) {
        self.status(id, kind).running = Some(version);
    }

    /// A node refused a version.
    pub fn nacked(&mut self, id: &str, kind: ResourceType, refusal: Refusal) {
        self.status(id, kind).refused = Some(refusal);
    }

    /// All nodes, in the order of their identities.
    pub fn report(&self) -> Vec<NodeReport> {
        let report = |(id, node): (&String, &Node)| NodeReport {
            id: id.clone(),
            service: node.service.clone(),
            connected: node.streams > 0,
            since: node.since,
            types: node.types.clone(),
        };
        self.nodes.iter().map(report).collect()
    }

    fn status(&mut self, id: &str, kind: ResourceType) -> &mut TypeStatus {
        self.nodes.entry(id.to_owned()).or_default().types.entry(kind).or_default()
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
