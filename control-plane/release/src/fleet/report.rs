//! The fleet as it is shown by the API and seen by rollouts.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use postern_base::{digest::Digest, node::NodeIdentity, via_cache::ViaCache};
use postern_compile::snapshot::{ResourceType, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

/// Where a node stands with one type of resource.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct TypeStatus {
    /// The version that it runs, if it told us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Digest>,
    /// When it accepted that, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// The version that it refused and has not got past since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Arc<Nack>>,
    /// Why it runs that version only in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<&'static str>,
}

/// A NACK.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Nack {
    /// What was refused.
    pub version: Digest,
    /// In the node's words.
    pub message: String,
    /// The resources of that version that the node's words name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// What the refused response carried, by name and version, up to a limit.
    #[serde(skip)]
    pub carried: Vec<(String, Digest)>,
    /// The filter's own reason, where the node's words leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When, in seconds since 1970.
    pub at: u64,
}

impl Nack {
    /// Whether this refuses what a snapshot has: the whole type, or the resources that the node asked for.
    pub(crate) fn is_of(&self, kind: ResourceType, snapshot: &Snapshot) -> bool {
        let whole = snapshot.whole(kind);
        let has = |(name, version): &(String, Digest)| whole.get(name).is_some_and(|it| it.version == *version);
        whole.version == self.version || (!self.carried.is_empty() && self.carried.iter().all(has))
    }
}

/// What is shown of a node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodeReport {
    /// Its identity.
    pub id: String,
    /// The service that it belongs to.
    pub service: String,
    /// Whether it has a stream open.
    pub connected: bool,
    /// Since when it is connected, or not, in seconds since 1970.
    pub since: u64,
    /// The revision that it runs in all that it subscribed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Digest>,
    /// Why it is not served: its Envoy does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// What is odd about it as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<&'static str>,
    /// The node cache that it is connected through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<ViaCache>,
    /// By type of resource.
    pub types: BTreeMap<ResourceType, TypeStatus>,
}

/// A node as a rollout sees it. Rollouts look at thousands of nodes many times, so a sighting is made without deep
/// copies, and holds no lock.
#[derive(Debug, Clone)]
pub struct Sighting {
    /// The node's identity.
    pub node: Arc<NodeIdentity>,
    /// Whether the node has an open stream.
    pub connected: bool,
    /// Whether the node is [unsupported](postern_compile::support::unsupported), so that nothing is served to it.
    pub unsupported: bool,
    /// The revision that the node runs in all that it subscribed to.
    pub revision: Option<Digest>,
    /// The refusals that the node has not recovered from.
    pub refused: Vec<(ResourceType, Arc<Nack>)>,
    /// For a client of policy discovery: the revision whose policies it refused, and its reason.
    pub refused_policies: Option<(Digest, String)>,
}

/// How far the connected nodes that are supported are with a revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RevisionProgress {
    /// The number of connected nodes.
    pub connected: usize,
    /// The number of connected nodes that run the revision in all that they subscribed to.
    pub settled: usize,
    /// The identities of the connected nodes that have not recovered from a refusal.
    pub refusing: Vec<String>,
}

impl RevisionProgress {
    /// Whether every connected node runs the revision.
    pub fn is_complete(&self) -> bool {
        self.settled == self.connected
    }
}

/// A time in seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
