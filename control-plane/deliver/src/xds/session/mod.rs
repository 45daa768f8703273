//! The protocol state of one stream, free of I/O: requests, snapshots and the time in, responses and events out.
//!
//! It owns subscriptions, nonces and the rules of what is sent and when; it does not own sockets, clocks or status.
//! Both variants of the protocol follow the same rules here. They differ only in how a difference is sent
//! ([`delivery`]) and in what a request says ([`Wish`]).

mod answer;
mod blame;
mod compose;
mod delivery;
mod hosts;
mod interest;
mod inventory;
mod memory;
mod message;
mod order;
mod subscription;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

pub use memory::Memory;
pub use message::{Reaction, Request, Response, Wish};
pub use order::{PATIENCE_TO_BREAK, PATIENCE_TO_MAKE, TIME_TO_REJOIN};
use postern_base::digest::Digest;
use postern_compile::snapshot::{Resource, ResourceType};
pub use postern_release::fleet::Event;

use self::{
    order::{Hold, leads_to_clusters, users},
    subscription::{Claim, Sent, Subscription, TypeProgress},
};
use super::{
    content::Variant,
    offer::{Offer, Offers},
};

/// The size of a client's subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscribed {
    /// The number of names of the request's type.
    pub names: usize,
    /// The total length of the names of all types, in bytes.
    pub bytes: usize,
}

/// The protocol state of one stream.
#[derive(Debug)]
pub struct Session {
    variant: Variant,
    /// The number of the stream in this process, which is part of its nonces.
    stream: u64,
    opened: Option<Instant>,
    serving: Option<(Digest, Arc<Offers>)>,
    subscriptions: BTreeMap<ResourceType, Box<Subscription>>,
    /// The route configurations that were sent before any virtual host was asked for, of those that have virtual hosts.
    routes_sent: BTreeSet<String>,
    /// The types that the node is known to have used before this stream.
    used_before: Vec<ResourceType>,
    memory: Memory,
    responses: u64,
    deadline: Option<Instant>,
    settled: Option<Digest>,
}

impl Session {
    /// The state of a new stream of a node with this memory.
    pub fn new(variant: Variant, stream: u64, memory: Memory) -> Self {
        Self {
            variant,
            stream,
            opened: None,
            serving: None,
            subscriptions: BTreeMap::new(),
            routes_sent: BTreeSet::new(),
            used_before: memory.types(),
            memory,
            responses: 0,
            deadline: None,
            settled: None,
        }
    }

    /// The memory of the node.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The node's snapshot.
    pub fn snapshot(&self) -> Option<&Arc<Offers>> {
        self.serving.as_ref().map(|(_, snapshot)| snapshot)
    }

    /// The time at which [`Session::on_deadline`] must be called, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The size of the client's subscriptions after a request.
    pub fn subscribed_after(&self, request: &Request) -> Subscribed {
        let nothing = BTreeSet::new();
        let known = self.subscriptions.get(&request.kind).map_or(&nothing, |known| known.interest.names());
        let bytes = |names: &mut dyn Iterator<Item = &String>| names.map(String::len).sum::<usize>();
        let others = self.subscriptions.values().filter(|other| other.kind != request.kind);
        let others: usize = others.map(|other| bytes(&mut other.interest.names().iter())).sum();
        let (names, size) = match &request.wish {
            Wish::All { names, .. } => (names.len(), bytes(&mut names.iter())),
            Wish::Changes { subscribe, unsubscribe, initial } => {
                let new = || subscribe.iter().filter(|name| !known.contains(*name));
                let gone = || unsubscribe.iter().filter(|name| known.contains(*name));
                let claimed = bytes(&mut initial.keys());
                let size = bytes(&mut known.iter().chain(new())).saturating_add(claimed);
                let number = known.len().saturating_add(new().count()).saturating_sub(gone().count());
                (number, size.saturating_sub(bytes(&mut gone())))
            }
        };
        Subscribed { names, bytes: others.saturating_add(size) }
    }

    /// Handles a request: subscriptions, an ACK or a NACK.
    pub fn on_request(&mut self, request: Request, now: Instant) -> Reaction {
        let mut reaction = Reaction::default();
        self.opened.get_or_insert(now);
        let Request { kind, nonce, error, wish } = request;
        let number = self.number(&nonce);
        let is_first = !self.subscriptions.contains_key(&kind);
        let make = || Box::new(Subscription::new(kind, self.variant, self.stream));
        let subscription = self.subscriptions.entry(kind).or_insert_with(make);
        match wish {
            // Stale, or never issued: the answer to the latest response is still to come, and has all names.
            Wish::All { .. }
                if !is_first && (number != subscription.latest || number.is_none() != nonce.is_empty()) =>
            {
                return reaction;
            }
            Wish::All { names, version } => {
                subscription.want_all(names);
                if is_first && !version.is_empty() {
                    subscription.claim = Claim::Version(version);
                }
            }
            // Only changes are said, so that they count with any nonce.
            Wish::Changes { subscribe, mut unsubscribe, initial } => {
                let hosts = kind == ResourceType::VirtualHost;
                if is_first {
                    subscription.gets_base = hosts && (subscribe.is_empty() || !initial.is_empty());
                } else if let Some((_, snapshot)) = self.serving.as_ref().filter(|_| hosts) {
                    subscription.leave_hosts(&mut unsubscribe, snapshot);
                }
                subscription.want_changes(subscribe, &unsubscribe, number.filter(|_| !is_first));
                if is_first && !initial.is_empty() {
                    subscription.claim(initial);
                    subscription.doubt_hosts(|routes| self.routes_sent.contains(routes));
                }
            }
        }
        // A nonce in the first request of a type is one of an earlier stream, and is ignored.
        if let Some(sent) = number.filter(|_| !is_first).and_then(|number| subscription.take_answered(number)) {
            let event = subscription.answer(&sent, error, &self.memory);
            let acked = matches!(event, Some(Event::Acked { .. }));
            reaction.events.extend(event);
            if let Some((_, snapshot)) = self.serving.as_ref().filter(|_| acked) {
                reaction.events.extend(subscription.unverified(snapshot));
            }
        }
        subscription.stale = true;
        self.advance(now, &mut reaction);
        reaction
    }

    /// Handles another revision with this snapshot of the node, which may be the same as before.
    pub fn on_snapshot(&mut self, revision: Digest, snapshot: Arc<Offers>, now: Instant) -> Reaction {
        let mut reaction = Reaction::default();
        self.replace_routes(&snapshot);
        self.serving = Some((revision, snapshot));
        self.subscriptions.values_mut().for_each(|subscription| subscription.stale = true);
        self.advance(now, &mut reaction);
        reaction
    }

    /// Handles route configurations that changed and that the client may get on another stream.
    fn replace_routes(&mut self, next: &Offers) {
        const ROUTES: ResourceType = ResourceType::RouteConfiguration;
        let Some((_, current)) = self.serving.as_ref().filter(|_| !self.subscriptions.contains_key(&ROUTES)) else {
            return;
        };
        let Some(hosts) = self.subscriptions.get_mut(&ResourceType::VirtualHost) else { return };
        let version = |snapshot: &Offers, name: &str| Some(snapshot.resolve(ROUTES, name)?.version.clone());
        hosts.doubt_hosts(|routes| version(current, routes) != version(next, routes));
    }

    /// Handles the passing of time: sends what has waited long enough.
    pub fn on_deadline(&mut self, now: Instant) -> Reaction {
        let mut reaction = Reaction::default();
        self.advance(now, &mut reaction);
        reaction
    }

    /// Sends everything that may be sent, in the order of types.
    fn advance(&mut self, now: Instant, reaction: &mut Reaction) {
        self.deadline = None;
        let Some((revision, snapshot)) = self.serving.clone() else { return };
        for subscription in self.subscriptions.values_mut() {
            // What waited is decided again: the node may have refused it on another stream meanwhile.
            subscription.stale |= subscription.has_updates() || subscription.has_removals();
            subscription.refresh(&snapshot, &self.memory);
            reaction.events.extend(subscription.honour_claim(&self.memory));
        }
        for kind in ResourceType::ALL {
            if self.subscriptions.contains_key(&kind) {
                self.update(kind, &snapshot, now, reaction);
            }
        }
        let mut progress = self.subscriptions.values().map(|subscription| subscription.progress());
        let settled = !self.subscriptions.is_empty() && progress.all(|progress| progress == TypeProgress::Settled);
        if settled && self.settled.as_ref() != Some(&revision) {
            self.settled = Some(revision.clone());
            reaction.events.push(Event::Settled { revision });
        } else if !settled && self.settled.take().is_some() {
            reaction.events.push(Event::Unsettled);
        }
    }

    /// Sends what may be sent of one type.
    fn update(&mut self, kind: ResourceType, snapshot: &Offers, now: Instant, reaction: &mut Reaction) {
        let hold = self.hold(kind, now);
        let (memory, responses) = (&self.memory, self.responses);
        let Some(subscription) = self.subscriptions.get_mut(&kind) else { return };
        subscription.refresh(snapshot, memory);
        let difference = subscription.difference.clone();
        let refused = |offer: &Offer| memory.has_refused(kind, offer.version());
        let Some(content) = subscription.compose(hold, snapshot, refused) else {
            reaction.events.extend(subscription.recover(memory));
            return;
        };
        // For clusters that are asked for again before their first response is answered: if that is refused, they are
        // new.
        let is_cluster = kind == ResourceType::Cluster && self.variant == Variant::Incremental;
        let brought =
            |it: &Resource| subscription.unanswered.iter().any(|sent| sent.content.carries(&it.name, &it.version));
        let crossing = content.resources.iter().filter(|it| is_cluster && brought(it)).map(|it| it.name.clone());
        let crossing: Vec<_> = crossing.collect();
        let number = responses.wrapping_add(1);
        if !hold.removals {
            // Later removals have the full time limit again.
            subscription.blocked = None;
        }
        let due = subscription.due.clone();
        subscription.refresh(snapshot, memory);
        if let Some(due) = due {
            let adds = difference.as_ref().is_some_and(|difference| difference.adds);
            let held = subscription.held_back(&due, hold, snapshot);
            subscription.send(Sent { number, content: Arc::clone(&content), due, held, adds, at: now });
        }
        self.responses = number;
        let nonce = self.nonce(number);
        reaction.responses.push(Response { nonce, content: Arc::clone(&content) });
        let carried = |name: &str| content.resources.binary_search_by(|it| it.name.as_str().cmp(name)).is_ok();
        let changed = difference.iter().flat_map(|difference| &difference.missing);
        let changed = changed.map(|resource| resource.name.clone()).filter(|name| carried(name));
        for name in changed.chain(crossing).collect::<BTreeSet<_>>() {
            self.send_again_after(kind, &name, snapshot);
        }
    }

    /// Sends resources again, unchanged, that a changed resource makes its client forget or wait for: an Envoy warms a
    /// changed cluster until its endpoints come, and drops the virtual hosts of a changed route table.
    fn send_again_after(&mut self, kind: ResourceType, name: &str, snapshot: &Offers) {
        match kind {
            ResourceType::Cluster => {
                let Some(endpoints) = self.subscriptions.get_mut(&ResourceType::Endpoints) else { return };
                let name = snapshot.endpoints_of(name);
                let current = snapshot.resolve(ResourceType::Endpoints, name);
                if current.is_some_and(|current| endpoints.inventory.knows(&current)) {
                    endpoints.inventory.doubt(name);
                    endpoints.stale = true;
                }
            }
            ResourceType::RouteConfiguration => match self.subscriptions.get_mut(&ResourceType::VirtualHost) {
                Some(hosts) => hosts.doubt_hosts(|routes| routes == name),
                None if snapshot.virtual_hosts().has(name) => drop(self.routes_sent.insert(name.to_owned())),
                None => {}
            },
            _ => {}
        }
    }

    /// What of a type must wait now, and until when.
    fn hold(&mut self, kind: ResourceType, now: Instant) -> Hold {
        let updates = self.wait_for_clusters(kind, now);
        let removals = self.wait_for_users(kind, now);
        let first = [updates, removals].into_iter().flatten().filter_map(Wait::until).min();
        self.deadline = self.deadline.into_iter().chain(first).min();
        Hold { updates: updates.is_some(), removals: removals.is_some() }
    }

    /// Whether changes of a type wait for new clusters that the client has not accepted yet.
    fn wait_for_clusters(&self, kind: ResourceType, now: Instant) -> Option<Wait> {
        let waits = leads_to_clusters(kind) && self.subscriptions.get(&kind)?.has_updates();
        let clusters = self.subscriptions.get(&ResourceType::Cluster).filter(|_| waits)?;
        let sent = clusters.unanswered.iter().rfind(|sent| sent.adds)?;
        Wait::within(sent.at + PATIENCE_TO_MAKE, now)
    }

    /// Whether removals of a type wait for the resources that may use what is removed.
    fn wait_for_users(&mut self, kind: ResourceType, now: Instant) -> Option<Wait> {
        let progress = users(kind).iter().filter_map(|user| self.subscriptions.get(user));
        let progress = progress.map(|user| user.progress()).max().unwrap_or(TypeProgress::Settled);
        let rejoined = self.opened.unwrap_or(now) + TIME_TO_REJOIN;
        let may_name_more = self.may_name_more(kind);
        let subscription = self.subscriptions.get_mut(&kind)?;
        if !subscription.has_removals() {
            subscription.blocked = None;
            return None;
        }
        let rejoins = subscription.claim == Claim::Resources && may_name_more;
        match progress {
            TypeProgress::Refused => {
                // After a recovery the full time limit applies again.
                subscription.blocked = None;
                Some(Wait::UntilAccepted)
            }
            TypeProgress::Waiting => Wait::within(subscription.block(now) + PATIENCE_TO_BREAK, now),
            TypeProgress::Settled => Wait::within(rejoined, now).filter(|_| rejoins),
        }
    }

    /// Whether a client that reconnects may still subscribe to a type that uses this one: one that it is known to have
    /// used, or any if nothing is known of it.
    fn may_name_more(&self, kind: ResourceType) -> bool {
        let mut unnamed = users(kind).iter().filter(|user| !self.subscriptions.contains_key(user));
        unnamed.any(|user| self.used_before.is_empty() || self.used_before.contains(user))
    }

    /// The nonce of a response. It differs from those of all earlier streams.
    fn nonce(&self, number: u64) -> String {
        format!("{:x}-{number}", self.stream)
    }

    /// The number of the response that has this nonce; `None` if it is not of this stream.
    fn number(&self, nonce: &str) -> Option<u64> {
        let (stream, number) = nonce.split_once('-')?;
        let own = u64::from_str_radix(stream, 16).is_ok_and(|stream| stream == self.stream);
        number.parse().ok().filter(|number| own && self.nonce(*number) == nonce)
    }
}

/// How long something waits.
#[derive(Debug, Clone, Copy)]
enum Wait {
    Until(Instant),
    UntilAccepted,
}

impl Wait {
    /// A wait until a time; `None` if that has passed.
    fn within(until: Instant, now: Instant) -> Option<Self> {
        (now < until).then_some(Self::Until(until))
    }

    fn until(self) -> Option<Instant> {
        match self {
            Self::Until(until) => Some(until),
            Self::UntilAccepted => None,
        }
    }
}
