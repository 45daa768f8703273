//! The protocol state of one stream (state of the world), free of I/O: requests and snapshots in, responses and events
//! out. It owns nonces, subscriptions and the rule of what to send; it does not own sockets, clocks or status.

use std::collections::BTreeMap;

use crate::{
    digest::Digest,
    snapshot::{ResourceSet, ResourceType, Selection, Snapshot},
};

/// How many rejected versions of a type a node's memory keeps: enough for any real series of attempts.
const MOST_REJECTED: usize = 64;

/// What a client said about one type.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The version that it has.
    pub version: String,
    /// The nonce of the response that it answers, or nothing.
    pub nonce: String,
    /// The resources that it wants from now on.
    pub names: Vec<String>,
    /// Why it refused that response, if it did.
    pub error: Option<String>,
}

/// What a client is to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The type of its resources.
    pub kind: ResourceType,
    /// What the client must answer with. Unique in the stream.
    pub nonce: String,
    /// The resources and their version.
    pub set: ResourceSet,
}

/// Where a client turns out to stand with a version of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The type.
    pub kind: ResourceType,
    /// The version.
    pub version: Digest,
    /// Where the client stands with it.
    pub outcome: Outcome,
}

/// What a client made of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It runs it, and should.
    Acked,
    /// It is back on it, its last good one, after it had refused another.
    Restored,
    /// It refused it, in these words.
    Nacked(String),
}

/// What comes of a request or a new snapshot.
#[derive(Debug, Default, PartialEq)]
pub struct Reaction {
    /// What to send, in order.
    pub responses: Vec<Response>,
    /// What to record.
    pub events: Vec<Event>,
}

/// What is known of a node beyond one stream.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    good: BTreeMap<ResourceType, ResourceSet>,
    rejected: BTreeMap<ResourceType, Vec<Digest>>,
}

impl Memory {
    fn reject(&mut self, kind: ResourceType, version: Digest) {
        let rejected = self.rejected.entry(kind).or_default();
        if rejected.len() >= MOST_REJECTED {
            rejected.remove(0);
        }
        rejected.push(version);
    }

    fn has_rejected(&self, kind: ResourceType, version: &Digest) -> bool {
        self.rejected.get(&kind).is_some_and(|versions| versions.contains(version))
    }
}

/// One stream.
#[derive(Debug, Default)]
pub struct Session {
    subscriptions: BTreeMap<ResourceType, Subscription>,
    memory: Memory,
    nonces: u64,
}

/// Whether a set is what the node should run, or what it must make do with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Current,
    LastGood,
}

#[derive(Debug)]
struct Subscription {
    selection: Selection,
    nonce: String,
    sent: Option<Sent>,
    /// The version of each resource that the client has or is being sent.
    known: BTreeMap<String, Digest>,
    /// Whether the client refused what it should run, and has not got past it since.
    refused: bool,
}

#[derive(Debug)]
struct Sent {
    set: ResourceSet,
    standing: Standing,
    answered: bool,
}

impl Session {
    /// A stream of a node of which this is known.
    pub fn new(memory: Memory) -> Self {
        Self { memory, ..Self::default() }
    }

    /// What is known of the node now, for its next stream.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// The client asks, accepts or refuses.
    pub fn on_request(&mut self, kind: ResourceType, request: Request, snapshot: Option<&Snapshot>) -> Reaction {
        let selection = select(kind, &request.names);
        let event = match self.subscriptions.get_mut(&kind) {
            // The first request of a type on this stream: a nonce in it is of another stream and says nothing.
            None => self.subscribe(kind, selection, &request.version, snapshot),
            // Stale, or never issued: the answer to the latest response is still to come.
            Some(subscription) if subscription.nonce != request.nonce => return Reaction::default(),
            Some(subscription) => {
                subscription.select(selection);
                subscription.answer(kind, request.error, &mut self.memory)
            }
        };
        let mut reaction = Reaction { events: event.into_iter().collect(), ..Reaction::default() };
        self.update(kind, snapshot, &mut reaction);
        reaction
    }

    /// There is another snapshot: every subscription that it changes is sent its part, in the order of pushes.
    pub fn on_snapshot(&mut self, snapshot: &Snapshot) -> Reaction {
        let mut reaction = Reaction::default();
        for kind in ResourceType::ALL {
            self.update(kind, Some(snapshot), &mut reaction);
        }
        reaction
    }

    /// Begins a subscription. A client that comes back with the very version that it is due is up to date.
    fn subscribe(
        &mut self,
        kind: ResourceType,
        selection: Selection,
        version: &str,
        snapshot: Option<&Snapshot>,
    ) -> Option<Event> {
        let subscription = self.subscriptions.entry(kind).or_insert_with(|| Subscription::new(selection));
        let (set, standing) = subscription.due(kind, snapshot?, &self.memory)?;
        if set.version.as_str() != version {
            return None;
        }
        subscription.send(set, standing, String::new());
        subscription.answer(kind, None, &mut self.memory)
    }

    /// Sends what the client is due and has not got.
    fn update(&mut self, kind: ResourceType, snapshot: Option<&Snapshot>, reaction: &mut Reaction) {
        let (Some(subscription), Some(snapshot)) = (self.subscriptions.get_mut(&kind), snapshot) else {
            return;
        };
        let Some((set, standing)) = subscription.due(kind, snapshot, &self.memory) else {
            return;
        };
        if !subscription.has(kind, &set) {
            self.nonces = self.nonces.wrapping_add(1);
            let nonce = self.nonces.to_string();
            subscription.send(set.clone(), standing, nonce.clone());
            reaction.responses.push(Response { kind, nonce, set });
        } else if subscription.recovers(standing) {
            // The snapshot went back to what the node runs: nothing to send, and nothing refused any more.
            reaction.events.push(Event { kind, version: set.version, outcome: Outcome::Acked });
        }
    }
}

impl Subscription {
    fn new(selection: Selection) -> Self {
        Self { selection, nonce: String::new(), sent: None, known: BTreeMap::new(), refused: false }
    }

    /// What the client should run: the snapshot's part or, if the node has refused that, its last good one.
    fn due(&self, kind: ResourceType, snapshot: &Snapshot, memory: &Memory) -> Option<(ResourceSet, Standing)> {
        let current = snapshot.select(kind, &self.selection);
        if !memory.has_rejected(kind, &current.version) {
            return Some((current, Standing::Current));
        }
        let good = memory.good.get(&kind)?.resources.iter();
        let good = good.filter(|resource| self.selection.includes(&resource.name)).cloned().collect();
        Some((good, Standing::LastGood))
    }

    fn has(&self, kind: ResourceType, set: &ResourceSet) -> bool {
        if kind.is_full_state() {
            return self.sent.as_ref().is_some_and(|sent| sent.set.version == set.version);
        }
        set.resources.iter().all(|resource| self.known.get(&resource.name) == Some(&resource.version))
    }

    fn send(&mut self, set: ResourceSet, standing: Standing, nonce: String) {
        self.known.extend(set.resources.iter().map(|resource| (resource.name.clone(), resource.version.clone())));
        self.sent = Some(Sent { set, standing, answered: false });
        self.nonce = nonce;
    }

    /// The client answers the latest response for the first time; `None` if it only changes what it wants.
    fn answer(&mut self, kind: ResourceType, error: Option<String>, memory: &mut Memory) -> Option<Event> {
        let sent = self.sent.as_mut().filter(|sent| !sent.answered)?;
        sent.answered = true;
        let version = sent.set.version.clone();
        if let Some(message) = error {
            self.refused = true;
            memory.reject(kind, version.clone());
            return Some(Event { kind, version, outcome: Outcome::Nacked(message) });
        }
        memory.good.insert(kind, sent.set.clone());
        let outcome = match sent.standing {
            Standing::Current => {
                self.refused = false;
                Outcome::Acked
            }
            Standing::LastGood => Outcome::Restored,
        };
        Some(Event { kind, version, outcome })
    }

    /// Whether a node that had refused something turns out to run what it should, now that that has changed.
    fn recovers(&mut self, standing: Standing) -> bool {
        let answered = self.sent.as_ref().is_none_or(|sent| sent.answered);
        standing == Standing::Current && answered && std::mem::take(&mut self.refused)
    }

    /// Takes over what the client wants now, and forgets what it no longer wants: asked for again, it is sent again.
    fn select(&mut self, selection: Selection) {
        self.known.retain(|name, _| selection.includes(name));
        self.selection = selection;
    }
}

fn select(kind: ResourceType, names: &[String]) -> Selection {
    let everything = names.iter().any(|name| name == "*") || (names.is_empty() && kind.is_full_state());
    if everything { Selection::Everything } else { Selection::Named(names.iter().cloned().collect()) }
}
