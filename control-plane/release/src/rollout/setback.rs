//! What follows a rollback by refusals: if the nodes that refused leave, the rollout starts again without them. Pure.
//!
//! It is bounded three ways, so that no node makes a fleet go to and fro. A node that refused and left is never a witness
//! of this rollout again, whatever it says when it returns. There are at most [`ATTEMPTS`] new starts, each of which takes
//! another witness. And nothing starts again later than [`LONGEST_SETBACK`] after the first rollback.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{GRACE_AFTER_RESTART, Observed};

/// How long a node that refused must be away to count as departed, by default: longer than a restart takes.
pub const DEPARTED: Duration = Duration::from_secs(60);
/// How many times a rollout starts again.
pub const ATTEMPTS: u32 = 3;
/// How long after its first rollback a rollout can start again.
pub const LONGEST_SETBACK: Duration = Duration::from_secs(3600);

/// The refusals that took a rollout back, and what has become of the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Setback {
    /// How long a node must be away, in milliseconds.
    departed_after: u64,
    /// When the rollout was first rolled back, in milliseconds since 1970.
    since: Option<u64>,
    /// The witnesses that refused and have not departed.
    refused: BTreeSet<String>,
    /// Since when each of them is disconnected, in milliseconds since 1970.
    away: BTreeMap<String, u64>,
    /// The nodes that refused and departed before a new start.
    departed: BTreeSet<String>,
    /// The number of new starts.
    attempts: u32,
}

impl Default for Setback {
    fn default() -> Self {
        let (since, refused, away, departed, attempts) = Default::default();
        Self { departed_after: milliseconds(DEPARTED), since, refused, away, departed, attempts }
    }
}

impl Setback {
    pub(super) fn departed_after(&mut self, time: Duration) {
        self.departed_after = milliseconds(time);
    }

    /// The nodes that refused and departed before a new start.
    pub(super) fn departed(&self) -> &BTreeSet<String> {
        &self.departed
    }

    /// Records a rollback because these witnesses refused.
    pub(super) fn begin(&mut self, refusing: BTreeSet<String>, now: u64) {
        self.since.get_or_insert(now);
        self.refused = refusing;
        self.away.clear();
    }

    /// Counts a node that refused as departed already: its Envoy was replaced by one that is not supported.
    pub(super) fn excuse(&mut self, node: &str) {
        if self.refused.contains(node) {
            self.away.insert(node.to_owned(), 0);
        }
    }

    /// Whether a new start is still possible.
    pub(super) fn is_open(&self, now: u64) -> bool {
        let late = self.since.is_none_or(|since| now.saturating_sub(since) > milliseconds(LONGEST_SETBACK));
        !self.refused.is_empty() && self.attempts < ATTEMPTS && !late
    }

    /// Forgets since when nodes are away: after a restart nobody is connected yet.
    pub(super) fn forget_absences(&mut self) {
        self.away.clear();
    }

    /// Looks at the fleet. Returns true if so many of those that refused have departed that no more than `tolerated` are
    /// left, and another node is there to answer: then the rollout starts again. `refusing` are the witnesses that refuse
    /// the candidate now.
    pub(super) fn is_over(
        &mut self,
        refusing: BTreeSet<String>,
        nodes: &[Observed],
        tolerated: usize,
        now: u64,
    ) -> bool {
        if !self.is_open(now) {
            return false;
        }
        // Some answer after the rollback only.
        self.refused.extend(refusing);
        let mut seen = BTreeMap::new();
        seen.extend(nodes.iter().map(|node| (node.node.id.as_str(), node.connected)));
        let is_away = |node: &&String| seen.get(node.as_str()).is_none_or(|connected| !connected);
        let away = self.refused.iter().filter(is_away);
        self.away = away.map(|node| (node.clone(), self.away.get(node).copied().unwrap_or(now))).collect();
        let departed = |(node, since): &(&String, &u64)| {
            // A node that was not seen since the start of this process may be reconnecting.
            let least = if seen.contains_key(node.as_str()) { 0 } else { milliseconds(GRACE_AFTER_RESTART) };
            now.saturating_sub(**since) >= self.departed_after.max(least)
        };
        let gone: BTreeSet<_> = self.away.iter().filter(departed).map(|(node, _)| node.clone()).collect();
        let left = self.refused.len().saturating_sub(gone.len());
        let can_answer = nodes.iter().any(|node| node.connected && !self.refused.contains(&node.node.id));
        if gone.is_empty() || left > tolerated || !can_answer {
            return false;
        }
        self.refused.clear();
        self.away.clear();
        self.departed.extend(gone);
        self.attempts = self.attempts.saturating_add(1);
        true
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
