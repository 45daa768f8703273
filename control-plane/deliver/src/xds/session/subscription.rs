//! One type of resource on one stream: what the client wants, has, and is due, and what it has not answered yet.

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

/// How many responses of a type may be unanswered before changes wait, merged, for an answer.
pub(super) const MOST_UNANSWERED: usize = 16;

/// How many unanswered responses are remembered at all.
pub(super) const MOST_REMEMBERED: usize = 64;

#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) kind: ResourceType,
    /// The number of its stream.
    pub(super) stream: u64,
    pub(super) variant: Variant,
    pub(super) interest: Interest,
    /// Whether the client gets virtual hosts unasked: one that names hosts in its first request, and comes from no earlier
    /// stream, does not.
    pub(super) gets_base: bool,
    /// The virtual hosts that it has unsubscribed from, by the names of resources.
    pub(super) left: BTreeSet<String>,
    pub(super) inventory: Inventory,
    /// Names that must be answered, whatever the client has.
    pub(super) asked: BTreeSet<String>,
    /// What the client says that it has from an earlier stream.
    pub(super) claim: Claim,
    /// Whether the first request has been dealt with.
    pub(super) begun: bool,
    /// The version of what is in force of what it wants.
    pub(super) target: Option<Digest>,
    pub(super) due: Option<Due>,
    pub(super) difference: Option<Arc<Difference>>,
    /// What is in force and not due, because the node refused it: a client that has another version of it keeps that.
    pub(super) withheld: BTreeSet<String>,
    /// What is not answered yet, oldest first.
    pub(super) unanswered: Vec<Sent>,
    /// The number of the latest response.
    pub(super) latest: Option<u64>,
    /// The removals that wait.
    pub(super) blocked: Option<Blocked>,
    /// Whether the client refused what it should run, and has not got past it since.
    pub(super) refused: bool,
    /// The version of what was in force when the client refused what it was sent of it: nothing is pushed in its stead.
    pub(super) silenced: Option<Digest>,
    /// What the client was told to remove in a response that it refused, since what is in force changed.
    pub(super) not_removed: BTreeSet<String>,
    /// State of the world, types of which all is sent: the last response that the client accepted.
    pub(super) accepted: Option<Arc<Content>>,
    /// Whether the last response that the client accepted was without something that was held back.
    pub(super) accepted_in_part: bool,
    /// What was refused on this stream, by name and version: a change brings it again.
    pub(super) refused_here: BTreeSet<(String, Digest)>,
    /// Whether `due` and `difference` have to be found again.
    pub(super) stale: bool,
}

/// What a client brings from an earlier stream.
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

/// Why a client should have something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is in force.
    Current,
    /// What is in force was refused: this is what the node last accepted.
    LastGood,
    /// It was refused, and the client keeps what it has. Nothing of it is pushed.
    Refused,
    /// It is in force and was refused; but the client has nothing, and there is nothing else to give to it.
    Again,
}

/// Removals that wait for those that may use what is removed.
#[derive(Debug)]
pub(super) struct Blocked {
    /// When the last of them began to wait.
    pub(super) since: Instant,
    names: BTreeSet<String>,
}

/// A response that is under way.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) content: Arc<Content>,
    pub(super) due: Due,
    /// What of that it does not bring, or in an older version, by name: whoever accepts this does not have it yet.
    pub(super) held: BTreeSet<String>,
    /// Whether it brings resources that the client had not before.
    pub(super) adds: bool,
    pub(super) at: Instant,
}

/// How far a client is with a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// It has accepted all that it is due.
    Settled,
    /// Something is still to be sent, or to be answered.
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
            accepted: None,
            accepted_in_part: false,
            refused_here: BTreeSet::new(),
            stale: true,
        }
    }

    /// State of the world: this is all that the client wants. What it no longer wants, it will drop.
    pub(super) fn want_all(&mut self, names: Vec<String>) {
        let new = self.interest.replace(names);
        self.asked.extend(new);
        self.drop_unwanted();
    }

    /// Incremental: the client wants more, and less, once it has dealt with the response of this number.
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

    /// Responses that are not answered yet may bring the client what it did not want for a while, and wants anew.
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

    /// Incremental: the client has these resources, by name and version, from an earlier stream.
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
        // A virtual host goes by many names: which of them are still wanted shows when it is looked up.
        if self.kind != ResourceType::VirtualHost {
            self.inventory.retain(|name| self.interest.includes(name));
        }
    }

    /// Finds again what the client is due, and what it lacks of it.
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
            // The client keeps what it has, and is not told: what counts is what it would be sent.
            self.inventory.settle(Arc::clone(&due.offer), []);
            self.difference = None;
        }
        if self.target.as_ref() != Some(target.version()) {
            self.target = Some(target.version().clone());
            self.not_removed.clear();
        }
        self.due = Some(due);
    }

    /// A difference in which what the client has beyond its due is what it accepted, and not what it refused: it may be
    /// told of it once more, to keep it.
    fn with_last_good(&self, difference: Arc<Difference>, memory: &Memory) -> Arc<Difference> {
        let keeps = self.variant == Variant::StateOfTheWorld && self.kind.is_full_state();
        if !keeps || !difference.beyond.iter().any(|(name, _)| self.inventory.doubts(name)) {
            return difference;
        }
        let beyond = difference.beyond.iter().map(|(name, resource)| match self.inventory.doubts(name) {
            true => (name.clone(), memory.accepted(self.stream, self.kind, name)),
            false => (name.clone(), resource.clone()),
        });
        Arc::new(Difference::new(difference.missing.clone(), difference.adds, beyond.collect()))
    }

    /// What is in force or, where the node has refused some of that, what it last accepted of it, and the rest.
    ///
    /// What was refused on this stream comes again with the next change; what was refused on another stream of the node
    /// does not, until it changes itself. An extension configuration never does.
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
        // It has got past all of it since, in other sets.
        if !self.refused && memory.got_past(kind, &target) {
            memory.forgive(kind, target.version());
            return due(target, Standing::Current);
        }
        // It says that it has what was refused of it.
        if !self.begun && self.claim == Claim::Resources && memory.is_blamed(kind, target.version()) {
            return due(target, Standing::Current);
        }
        // A client that has nothing yet gets something; one that refused the new keeps the old.
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

    /// Whether there is something to withdraw from the client.
    pub(super) fn has_removals(&self) -> bool {
        self.removals().next().is_some()
    }

    /// The names of what is to be withdrawn from the client.
    fn removals(&self) -> impl Iterator<Item = &String> {
        let told = self.tells_removals() && may_be_withdrawn(self.kind);
        let beyond = self.difference.iter().filter(move |_| told).flat_map(|difference| &difference.beyond);
        beyond.map(|(name, _)| name).filter(|name| !self.withheld.contains(*name))
    }

    /// Its removals wait. Returns since when: each has all the time, so one that joins them makes the others wait longer.
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

    /// The names of what a response that has just been made of what is due does not bring: what must wait and, of extension
    /// configurations, what is in force and was refused.
    pub(super) fn held_back(&self, due: &Due, hold: Hold, snapshot: &Offers) -> BTreeSet<String> {
        if self.kind == ResourceType::ExtensionConfig && due.standing == Standing::LastGood {
            let current = |it: &Resource| snapshot.resolve(self.kind, &it.name).map(|it| it.version.clone());
            let instead = due.offer.set().resources.iter().filter(|it| current(it).as_ref() != Some(&it.version));
            return instead.map(|it| it.name.clone()).collect();
        }
        let missing = self.difference.iter().filter(|_| hold.updates).flat_map(|difference| &difference.missing);
        missing.map(|resource| resource.name.clone()).collect()
    }

    pub(super) fn progress(&self) -> Progress {
        match &self.due {
            Some(due) if due.standing != Standing::Current => Progress::Refused,
            Some(_) if self.begun && self.unanswered.is_empty() && !self.has_updates() && !self.has_removals() => {
                Progress::Settled
            }
            _ => Progress::Waiting,
        }
    }

    /// The response of this number is under way.
    pub(super) fn send(&mut self, sent: Sent) {
        self.latest = Some(sent.number);
        self.unanswered.push(sent);
        // Resources are shared by all streams; names that stand for nothing are a stream's own.
        let names =
            |sent: &Sent| sent.content.removed.iter().chain(&sent.content.vacant).map(String::len).sum::<usize>();
        let mut bytes: usize = self.unanswered.iter().map(names).sum();
        while self.unanswered.len() > MOST_REMEMBERED || (bytes > MOST_NAME_BYTES && self.unanswered.len() > 1) {
            let forgotten = self.unanswered.remove(0);
            bytes = bytes.saturating_sub(names(&forgotten));
        }
    }

    /// Takes the response that this number answers, and forgets the ones before it.
    pub(super) fn take_answered(&mut self, number: u64) -> Option<Sent> {
        let place = self.unanswered.iter().position(|sent| sent.number == number)?;
        self.unanswered.drain(..=place).next_back()
    }
}

/// What is in force, as the node last accepted it.
fn as_it_was(target: &Offer, good: &Offer) -> Arc<Offer> {
    let known = target.names().filter_map(|name| good.set().get(name).cloned());
    Arc::new(Offer::from(known.collect::<ResourceSet>()))
}
