//! The journal: the latest events of this process in a ring of bounded size, for clients that follow them. Free of I/O;
//! time is an argument.
//!
//! Events are kept as JSON in one buffer: thousands of small allocations that outlive their streams would fragment the
//! memory.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use postern_base::digest::Digest;
use postern_compile::snapshot::ResourceType;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;

use crate::{rollout::RolloutReport, store::milliseconds};

/// The most events that are remembered, and below the most bytes of their JSON.
const REMEMBERED: usize = 4096;
const LARGEST: usize = 1 << 20;

/// Something that happened.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Happening {
    /// A revision was taken in: it is stored, and spreads from now on.
    RevisionAccepted {
        /// Its number.
        revision: u64,
        /// Who made it.
        author: String,
        /// Why.
        message: String,
    },
    /// A change was refused whole, and what was in force stays.
    ChangeRefused {
        /// Why, a line an error.
        reasons: Vec<String>,
    },
    /// A change of the followed directory is held, and what was in force stays until somebody confirms it.
    ChangeHeld {
        /// The digest that confirms it.
        digest: String,
        /// How many resources it would remove.
        removals: usize,
        /// The first of them.
        resources: Vec<String>,
        /// The routes that would lose their last authentication step.
        routes: Vec<String>,
    },
    /// A deleted resource was removed from the revisions that had it.
    ResourcePurged {
        /// Which one.
        resource: String,
        /// The revisions, which are no longer whole.
        revisions: Vec<u64>,
        /// Who did it.
        author: String,
    },
    /// A rollout started, went a step further, or ended.
    Rollout {
        /// Where it is.
        #[serde(flatten)]
        rollout: RolloutReport,
    },
    /// A node opened its first stream.
    NodeConnected {
        /// Which one.
        node: String,
        /// The service that it belongs to.
        service: String,
    },
    /// A node accepted what it was sent.
    NodeAcked {
        /// Which one.
        node: String,
        /// The type of resource.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// The version.
        version: Digest,
    },
    /// A node refused what it was sent, and goes on with what it had.
    NodeNacked {
        /// Which one.
        node: String,
        /// The type of resource.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// The version.
        version: Digest,
        /// Why: the filter's own reason, or the node's words.
        reason: String,
    },
    /// A node's last stream ended.
    NodeGone {
        /// Which one.
        node: String,
    },
    /// Whoever follows was too slow, or was away for too long: some happenings are no longer remembered.
    Missed {
        /// How many; absent if that is not known.
        #[serde(skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
    },
}

impl Happening {
    /// The name of the event, in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RevisionAccepted { .. } => "revisionAccepted",
            Self::ChangeRefused { .. } => "changeRefused",
            Self::ChangeHeld { .. } => "changeHeld",
            Self::ResourcePurged { .. } => "resourcePurged",
            Self::Rollout { .. } => "rollout",
            Self::NodeConnected { .. } => "nodeConnected",
            Self::NodeAcked { .. } => "nodeAcked",
            Self::NodeNacked { .. } => "nodeNacked",
            Self::NodeGone { .. } => "nodeGone",
            Self::Missed { .. } => "missed",
        }
    }
}

/// A happening and when it was, as it is told.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Event {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

impl Event {
    /// The event as JSON. Serialization of plain data cannot fail.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A remembered event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Its position among all events, from 1.
    pub place: u64,
    /// The name of the event, in one word.
    pub name: &'static str,
    /// The event as JSON.
    pub json: String,
}

/// The ring, oldest event first.
#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Kept>,
    /// The JSON of all events, concatenated.
    text: VecDeque<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    place: u64,
    name: &'static str,
    size: usize,
}

impl Ring {
    fn push(&mut self, Noted { place, name, json }: &Noted) {
        while self.events.len() >= REMEMBERED || self.text.len().saturating_add(json.len()) > LARGEST {
            let Some(oldest) = self.events.pop_front() else { break };
            self.text.drain(..oldest.size);
        }
        self.text.extend(json.as_bytes());
        self.events.push_back(Kept { place: *place, name, size: json.len() });
    }

    /// The events after a position.
    fn after(&self, place: u64) -> Vec<Noted> {
        let start = self.events.partition_point(|event| event.place <= place);
        let before: usize = self.events.iter().take(start).map(|event| event.size).sum();
        let mut text = self.text.iter().skip(before).copied();
        let noted = |Kept { place, name, size }: &Kept| {
            let json = text.by_ref().take(*size).collect();
            Noted { place: *place, name, json: String::from_utf8(json).unwrap_or_default() }
        };
        self.events.iter().skip(start).map(noted).collect()
    }
}

/// The journal of this process.
#[derive(Debug)]
pub struct Journal {
    /// The start time of the process: positions of another process are not valid in this one.
    epoch: u64,
    ring: Mutex<Ring>,
    /// The position of the latest event.
    latest: watch::Sender<u64>,
}

impl Default for Journal {
    fn default() -> Self {
        Self { epoch: milliseconds(SystemTime::now()), ring: Mutex::default(), latest: watch::Sender::new(0) }
    }
}

impl Journal {
    /// Records an event.
    pub fn note(&self, what: Happening, now: SystemTime) {
        let event = Event { at: milliseconds(now), what };
        let (name, json) = (event.what.name(), event.to_json());
        let mut ring = self.ring();
        // Positions are assigned under the lock, so that the ring is sorted by them.
        self.latest.send_modify(|latest| {
            *latest += 1;
            ring.push(&Noted { place: *latest, name, json });
        });
    }

    /// The number of events so far.
    pub fn count(&self) -> u64 {
        *self.latest.borrow()
    }

    /// A receiver of the position of the latest event.
    pub fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// The remembered events after a position, and before them the number of events that are no longer remembered.
    pub fn after(&self, place: u64) -> (u64, Vec<Noted>) {
        let ring = self.ring();
        let first = ring.events.front().map_or(place, |event| event.place.saturating_sub(1));
        (first.saturating_sub(place), ring.after(place))
    }

    /// The id of an event, from which a client can resume.
    pub fn id(&self, place: u64) -> String {
        format!("{:x}-{place}", self.epoch)
    }

    /// The position that an id names, or `None` if the id is malformed or from another process.
    pub fn place(&self, id: &str) -> Option<u64> {
        let (epoch, place) = id.split_once('-')?;
        let place = place.parse().ok().filter(|place| *place <= self.count())?;
        (u64::from_str_radix(epoch, 16).ok()? == self.epoch).then_some(place)
    }

    /// Locks the ring. A poisoned lock is ignored: every statement leaves the ring consistent.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn gone(journal: &Journal, node: usize) {
        journal.note(Happening::NodeGone { node: node.to_string() }, UNIX_EPOCH);
    }

    #[test]
    fn goes_on_after_any_place() {
        let journal = Journal::default();
        (1..=3).for_each(|node| gone(&journal, node));
        let (missed, events) = journal.after(1);
        assert_eq!((missed, events.iter().map(|event| event.place).collect::<Vec<_>>()), (0, vec![2, 3]));
        assert_eq!(events[1].json, r#"{"at":0,"event":"nodeGone","node":"3"}"#);
        assert_eq!(events[1].name, "nodeGone");
        assert!(journal.after(3).1.is_empty());
        assert_eq!(journal.place(&journal.id(2)), Some(2));
    }

    #[test]
    fn says_how_much_it_has_forgotten() {
        let journal = Journal::default();
        (0..REMEMBERED + 10).for_each(|node| gone(&journal, node));
        let (missed, events) = journal.after(4);
        assert_eq!((missed, events.len(), events.first().map(|event| event.place)), (6, REMEMBERED, Some(11)));
        assert_eq!(journal.after(10).0, 0);
    }

    #[test]
    fn is_bounded_in_size_too() {
        let journal = Journal::default();
        for number in 0..10 {
            let reasons = vec![number.to_string().repeat(LARGEST / 3)];
            journal.note(Happening::ChangeRefused { reasons }, UNIX_EPOCH);
        }
        let (missed, events) = journal.after(0);
        assert_eq!((missed, events.len()), (8, 2));
        assert!(events[1].json.ends_with(r#"999"]}"#));
    }

    #[test]
    fn knows_nothing_of_another_process() {
        let (journal, other) = (Journal::default(), Journal { epoch: 1, ..Journal::default() });
        gone(&journal, 1);
        assert_eq!(journal.place(&other.id(1)), None);
        assert_eq!((journal.place("x"), journal.place(&journal.id(2))), (None, None));
    }

    #[test]
    fn is_written_flat() {
        let what = Happening::NodeNacked {
            node: "edge-1".to_owned(),
            kind: ResourceType::Cluster,
            version: Digest::of(b""),
            reason: "no".to_owned(),
        };
        let json = serde_json::to_value(Event { at: 1, what }).unwrap();
        assert_eq!((&json["event"], &json["type"], &json["at"]), (&"nodeNacked".into(), &"cluster".into(), &1.into()));
    }
}
