//! The state of one type on one stream: what the client subscribed to, has and is due, and its unanswered responses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use postern_base::digest::Digest;
use postern_compile::snapshot::{Resource, ResourceSet, ResourceType};

use super::{
    interest::Interest,
    inventory::Inventory,
    memory::Memory,
    order::{Hold, may_be_withdrawn},
};
use crate::xds::{
    content::{Content, Variant},
    limits::MOST_NAME_BYTES,
    offer::{Difference, Offer, Offers},
};

/// The maximum number of unanswered responses of a type. At the limit, changes are merged until one is answered.
pub(super) const MOST_UNANSWERED: usize = 16;

/// The maximum number of unanswered responses that are remembered.
pub(super) const MOST_REMEMBERED: usize = 64;

#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) kind: ResourceType,
    /// The number of the stream.
    pub(super) stream: u64,
    pub(super) variant: Variant,
    pub(super) interest: Interest,
    /// Whether the client gets virtual hosts without asking: not if it names hosts in its first request and does not
    /// reconnect.
    pub(super) gets_base: bool,
    /// The virtual hosts that it has unsubscribed from, by the names of resources.
    pub(super) left: BTreeSet<String>,
    pub(super) inventory: Inventory,
    /// Names that must be answered, whatever the client has.
    pub(super) asked: BTreeSet<String>,
    /// What the client reported to have from an earlier stream.
    pub(super) claim: Claim,
    /// Whether the first request has been handled.
    pub(super) begun: bool,
    /// The version of what is in force of what it subscribed to.
    pub(super) target: Option<Digest>,
    pub(super) due: Option<Due>,
    pub(super) difference: Option<Arc<Difference>>,
    /// The names in force that are not due, because the node refused them: a client with another version keeps that.
    pub(super) withheld: BTreeSet<String>,
    /// Unanswered responses, oldest first.
    pub(super) unanswered: Vec<Sent>,
    /// The number of the latest response.
    pub(super) latest: Option<u64>,
    /// The removals that wait.
    pub(super) blocked: Option<Blocked>,
    /// Whether the client refused what it should run, and has not recovered since.
    pub(super) refused: bool,
    /// The version in force when the client refused a response: nothing is pushed until another is in force.
    pub(super) silenced: Option<Digest>,
    /// The removals in a refused response, since what is in force changed.
    pub(super) not_removed: BTreeSet<String>,
    /// State of the world, types with the complete state: what refused responses since then left out. An Envoy has
    /// removed it all the same, so that it is not sent again to be kept.
    pub(super) left_out: BTreeSet<String>,
    /// State of the world, types with the complete state: the last response that the client accepted.
    pub(super) accepted: Option<Arc<Content>>,
    /// Whether something was held back from the last response that the client accepted.
    pub(super) accepted_in_part: bool,
    /// What was refused on this stream, by name and version: the next change sends it again.
    pub(super) refused_here: BTreeSet<(String, Digest)>,
    /// Whether `due` and `difference` must be computed again.
    pub(super) stale: bool,
}

/// What a client reported to have from an earlier stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Nothing,
    /// State of the world: the version of the whole.
    Version(String),
    /// Incremental: resources, which are in the inventory.
    Resources,
}

/// What a client should have.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) offer: Arc<Offer>,
    pub(super) standing: Standing,
}

/// Why a client should have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is in force.
    Current,
    /// What is in force was refused: this is what the node last accepted.
    LastGood,
    /// It was refused, and the client keeps what it has. Nothing is pushed.
    Refused,
    /// It is in force and was refused, but the client has nothing, and there is no other version.
    Again,
}

/// Removals that wait for the resources that may use what is removed.
#[derive(Debug)]
pub(super) struct Blocked {
    /// When the last of them began to wait.
    pub(super) since: Instant,
    names: BTreeSet<String>,
}

/// An unanswered response.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) content: Arc<Content>,
    pub(super) due: Due,
    /// The names that were held back, or were sent in an older version: a client that accepts this does not have them
    /// yet.
    pub(super) held: BTreeSet<String>,
    /// Whether it has resources that are new to the client.
    pub(super) adds: bool,
    pub(super) at: Instant,
}

/// How far a client is with a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TypeProgress {
    /// It has accepted everything that it is due.
    Settled,
    /// Something is still to be sent or answered.
    Waiting,
    /// It refused what is in force.
    Refused,
}

impl Subscription {
    pub(super) fn new(kind: ResourceType, variant: Variant, stream: u64) -> Self {
        Self {
            kind,
            stream,
            variant,
            interest: Interest::new(kind),
            gets_base: false,
            left: BTreeSet::new(),
            inventory: Inventory::new(),
            asked: BTreeSet::new(),
            claim: Claim::Nothing,
            begun: false,
            target: None,
            due: None,
            difference: None,
            withheld: BTreeSet::new(),
            unanswered: Vec::new(),
            latest: None,
            blocked: None,
            refused: false,
            silenced: None,
            not_removed: BTreeSet::new(),
            left_out: BTreeSet::new(),
            accepted: None,
            accepted_in_part: false,
            refused_here: BTreeSet::new(),
            stale: true,
        }
    }

    /// State of the world: replaces the subscriptions. The client drops what it no longer subscribes to.
    pub(super) fn want_all(&mut self, names: Vec<String>) {
        let new = self.interest.replace(names);
        self.asked.extend(new);
        self.drop_unwanted();
    }

    /// Incremental: changes the subscriptions, after the client has handled the response of number `answered`.
    pub(super) fn want_changes(&mut self, subscribe: Vec<String>, unsubscribe: &[String], answered: Option<u64>) {
        let wanted_all = self.interest.is_everything();
        let asked = self.interest.change(subscribe, unsubscribe);
        let all_anew = !wanted_all && self.interest.is_everything();
        self.expect_what_comes_after(answered, |name| all_anew || asked.contains(name));
        self.asked.extend(asked);
        if !unsubscribe.is_empty() {
            self.drop_unwanted();
        }
    }

    /// Records that the client may get resources, which it wants again, from responses that are unanswered still.
    fn expect_what_comes_after(&mut self, answered: Option<u64>, is_wanted_anew: impl Fn(&String) -> bool) {
        let mut coming = BTreeSet::new();
        let later = self.unanswered.iter().filter(|sent| answered.is_none_or(|answered| answered < sent.number));
        for Sent { content, .. } in later {
            let names = content.resources.iter().map(|resource| &resource.name);
            coming.extend(names.filter(|name| is_wanted_anew(name)));
            coming.retain(|name| !content.removed.contains(name));
        }
        coming.into_iter().for_each(|name| self.inventory.not_removed(name));
    }

    /// Incremental: takes over the resources, by name and version, that the client has from an earlier stream.
    pub(super) fn claim(&mut self, initial: BTreeMap<String, String>) {
        self.claim = Claim::Resources;
        for (name, version) in initial {
            self.asked.remove(&name);
            self.inventory.claim(name, version);
        }
        self.drop_unwanted();
    }

    fn drop_unwanted(&mut self) {
        if self.interest.is_everything() {
            return;
        }
        self.asked.retain(|name| self.interest.includes(name));
        // A virtual host has many names; which are still subscribed to is known only after it is looked up.
        if self.kind != ResourceType::VirtualHost {
            self.inventory.retain(|name| self.interest.includes(name));
        }
    }

    /// Computes again what the client is due, and what it lacks of it.
    pub(super) fn refresh(&mut self, snapshot: &Offers, memory: &Memory) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.forget_left_hosts(snapshot);
        let target = self.target(snapshot);
        self.take_claimed_hosts(snapshot);
        let due = self.due_of(Arc::clone(&target), memory);
        let difference = self.inventory.difference(self.kind, &due.offer, snapshot);
        self.difference = difference.map(|difference| self.with_last_good(difference, memory));
        self.withheld = match due.standing {
            Standing::LastGood | Standing::Refused => {
                target.names().filter(|name| due.offer.set().get(name).is_none()).cloned().collect()
            }
            _ => BTreeSet::new(),
        };
        if self.difference.as_ref().is_some_and(|it| it.missing.is_empty()) && !self.tells_removals() {
            // The client keeps what it has without being told, so the inventory is set to what it would be sent.
            self.inventory.settle(Arc::clone(&due.offer), []);
            self.difference = None;
        }
        if self.target.as_ref() != Some(target.version()) {
            self.target = Some(target.version().clone());
            self.not_removed.clear();
        }
        self.due = Some(due);
    }

    /// A difference in which the resources beyond the due are in the versions that the client accepted, not in those
    /// that it refused: they may be sent once more, to be kept.
    fn with_last_good(&self, difference: Arc<Difference>, memory: &Memory) -> Arc<Difference> {
        let keeps = self.variant == Variant::StateOfTheWorld && self.kind.is_full_state();
        if !keeps || !difference.beyond.iter().any(|(name, _)| self.inventory.doubts(name)) {
            return difference;
        }
        let beyond = difference.beyond.iter().map(|(name, resource)| match self.inventory.doubts(name) {
            true if self.left_out.contains(name) => (name.clone(), None),
            true => (name.clone(), memory.accepted(self.stream, self.kind, name)),
            false => (name.clone(), resource.clone()),
        });
        Arc::new(Difference::new(difference.missing.clone(), difference.adds, beyond.collect()))
    }

    /// What is in force or, where the node has refused parts of it, what it last accepted of these, and the rest.
    ///
    /// What was refused on this stream is sent again with the next change. What was refused on another stream of the
    /// node is not, until it changes itself. A refused extension configuration is never sent again.
    fn due_of(&self, target: Arc<Offer>, memory: &Memory) -> Due {
        let kind = self.kind;
        let due = |offer, standing| Due { offer, standing };
        if kind == ResourceType::ExtensionConfig {
            let mended = memory.without_refused(kind, &target, |_| false, |_| None);
            return mended.map_or_else(|| due(target, Standing::Current), |mended| due(mended, Standing::LastGood));
        }
        let comes_empty = !self.begun && self.claim == Claim::Nothing;
        let exempt = |resource: &Resource| {
            self.inventory.knows(resource)
                || self
                    .refused_here
                    .iter()
                    .any(|(name, version)| *name == resource.name && *version == resource.version)
        };
        if let Some(mended) = memory.without_refused(kind, &target, exempt, |name| self.inventory.resource(name)) {
            let is_nothing = mended.set().resources.is_empty();
            let is_silenced = self.silenced.as_ref() == Some(target.version());
            return match () {
                () if is_nothing && comes_empty => due(target, Standing::Again),
                () if self.begun && (is_silenced || memory.has_refused(kind, mended.version())) => {
                    due(mended, Standing::Refused)
                }
                () => due(mended, Standing::LastGood),
            };
        }
        if !memory.has_refused(kind, target.version()) {
            return due(target, Standing::Current);
        }
        // The node has since accepted all of it, in other sets.
        if !self.refused && memory.got_past(kind, &target) {
            memory.forgive(kind, target.version());
            return due(target, Standing::Current);
        }
        // It reports that it has what it refused.
        if !self.begun && self.claim == Claim::Resources && memory.is_blamed(kind, target.version()) {
            return due(target, Standing::Current);
        }
        // A client without resources gets something; one that refused the new version keeps the old.
        match memory.last_good(kind, &self.interest).filter(|_| !self.begun) {
            Some(good) => due(as_it_was(&target, &good), Standing::LastGood),
            None if comes_empty => due(target, Standing::Again),
            None => due(target, Standing::Refused),
        }
    }

    /// Whether this client is ever told that a resource of this type is gone.
    fn tells_removals(&self) -> bool {
        match self.variant {
            Variant::StateOfTheWorld => self.kind.is_full_state(),
            Variant::Incremental => true,
        }
    }

    /// Whether anything must be withdrawn from the client.
    pub(super) fn has_removals(&self) -> bool {
        self.removals().next().is_some()
    }

    /// The names to be withdrawn from the client.
    fn removals(&self) -> impl Iterator<Item = &String> {
        let told = self.tells_removals() && may_be_withdrawn(self.kind);
        let beyond = self.difference.iter().filter(move |_| told).flat_map(|difference| &difference.beyond);
        beyond.map(|(name, _)| name).filter(|name| !self.withheld.contains(*name))
    }

    /// Makes its removals wait. Returns since when. Each removal has the full time limit, so that one that joins
    /// extends the wait of all.
    pub(super) fn block(&mut self, now: Instant) -> Instant {
        let names: BTreeSet<_> = self.removals().cloned().collect();
        let since = match &self.blocked {
            Some(blocked) if names.is_subset(&blocked.names) => blocked.since,
            _ => now,
        };
        self.blocked = Some(Blocked { since, names });
        since
    }

    pub(super) fn has_updates(&self) -> bool {
        self.difference.as_ref().is_some_and(|difference| !difference.missing.is_empty())
    }

    /// The names that a new response leaves out of what is due: what must wait and, of extension configurations, what
    /// is in force and was refused.
    pub(super) fn held_back(&self, due: &Due, hold: Hold, snapshot: &Offers) -> BTreeSet<String> {
        if self.kind == ResourceType::ExtensionConfig && due.standing == Standing::LastGood {
            let current = |it: &Resource| snapshot.resolve(self.kind, &it.name).map(|it| it.version.clone());
            let instead = due.offer.set().resources.iter().filter(|it| current(it).as_ref() != Some(&it.version));
            return instead.map(|it| it.name.clone()).collect();
        }
        let missing = self.difference.iter().filter(|_| hold.updates).flat_map(|difference| &difference.missing);
        missing.map(|resource| resource.name.clone()).collect()
    }

    pub(super) fn progress(&self) -> TypeProgress {
        match &self.due {
            Some(due) if due.standing != Standing::Current => TypeProgress::Refused,
            Some(_) if self.begun && self.unanswered.is_empty() && !self.has_updates() && !self.has_removals() => {
                TypeProgress::Settled
            }
            _ => TypeProgress::Waiting,
        }
    }

    /// Records a response as sent and unanswered.
    pub(super) fn send(&mut self, sent: Sent) {
        self.latest = Some(sent.number);
        self.unanswered.push(sent);
        // All streams share resources, but names that match nothing are a stream's own memory.
        let names =
            |sent: &Sent| sent.content.removed.iter().chain(&sent.content.vacant).map(String::len).sum::<usize>();
        let mut bytes: usize = self.unanswered.iter().map(names).sum();
        while self.unanswered.len() > MOST_REMEMBERED || (bytes > MOST_NAME_BYTES && self.unanswered.len() > 1) {
            let forgotten = self.unanswered.remove(0);
            bytes = bytes.saturating_sub(names(&forgotten));
        }
    }

    /// Takes the response of this number, and forgets those before it.
    pub(super) fn take_answered(&mut self, number: u64) -> Option<Sent> {
        let place = self.unanswered.iter().position(|sent| sent.number == number)?;
        self.unanswered.drain(..=place).next_back()
    }
}

/// What is in force, in the versions that the node last accepted.
fn as_it_was(target: &Offer, good: &Offer) -> Arc<Offer> {
    let known = target.names().filter_map(|name| good.set().get(name).cloned());
    Arc::new(Offer::from(known.collect::<ResourceSet>()))
}
