//! Decides what is sent of one type now. Deciding changes nothing; [`compose`](super::compose) carries it out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use postern_compile::snapshot::{Resource, ResourceType};

use super::{
    order::{Hold, may_be_withdrawn},
    subscription::{Due, MOST_UNANSWERED, Standing, Subscription},
};
use crate::xds::{
    content::Variant,
    offer::{Difference, Offer, Offers},
};

/// What the next response of a type has.
pub(super) enum Delivery {
    /// No response now.
    Nothing,
    /// State of the world: everything that the client is due.
    Whole,
    /// State of the world: everything that the client is due, and what it has beyond that, because removals wait.
    WholeAndKept(Arc<Offer>),
    /// Incremental: the difference between what the client has and what it is due. Clients with the same set share the
    /// response.
    Difference,
    /// Incremental: all changes, with the answers and removals that do not wait.
    Changes(Parts),
    /// Incremental: answers and removals only, because changes wait or are not pushed.
    Answers(Parts),
}

/// The parts of an incremental response for one client.
#[derive(Default)]
pub(super) struct Parts {
    /// Resources by name.
    pub(super) resources: BTreeMap<String, Arc<Resource>>,
    /// The names that the client must drop.
    pub(super) removed: BTreeSet<String>,
    /// The names that the client asked for and that match no virtual host.
    pub(super) vacant: BTreeSet<String>,
}

/// What a client in the state of the world waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// Nothing: a change is sent, but may have to wait.
    No,
    /// Its first request names nothing that exists: a change is sent at once.
    Opening,
    /// A response, whether anything has changed or not.
    Response,
    /// A response, because it asks by name for something that exists: it is sent that even if it refused it.
    Resources,
}

impl Subscription {
    /// What is sent now. `refused` says whether the node has refused a set as a whole.
    pub(super) fn decide(
        &self,
        due: &Due,
        difference: &Difference,
        hold: Hold,
        snapshot: &Offers,
        refused: impl Fn(&Offer) -> bool,
    ) -> Delivery {
        let is_push = self.begun && self.asked.is_empty();
        if is_push && self.unanswered.len() >= MOST_UNANSWERED {
            return Delivery::Nothing;
        }
        match self.variant {
            Variant::StateOfTheWorld => self.decide_whole(due, difference, hold, snapshot, refused),
            Variant::Incremental => self.decide_changes(due, difference, self.hold_for(due, hold), snapshot),
        }
    }

    fn decide_whole(
        &self,
        due: &Due,
        difference: &Difference,
        hold: Hold,
        snapshot: &Offers,
        refused: impl Fn(&Offer) -> bool,
    ) -> Delivery {
        let demand = self.demand(due, snapshot);
        // Only a response with the complete state can tell that a resource is gone, by leaving it out.
        let has_beyond = self.kind.is_full_state() && !difference.beyond.is_empty();
        let has_news = !difference.missing.is_empty() || (has_beyond && !hold.removals);
        let is_sent = match demand {
            Demand::Resources => true,
            _ if due.standing == Standing::Refused => false,
            Demand::Response => true,
            Demand::Opening => has_news,
            Demand::No => has_news && !hold.updates,
        };
        if !is_sent {
            return Delivery::Nothing;
        }
        if !has_beyond || !hold.removals {
            return Delivery::Whole;
        }
        let kept = difference.kept(&due.offer);
        if demand != Demand::Resources && refused(&kept) {
            return Delivery::Nothing;
        }
        Delivery::WholeAndKept(kept)
    }

    fn demand(&self, due: &Due, snapshot: &Offers) -> Demand {
        let names_any = self.asked.iter().any(|name| self.found(name, due, snapshot).is_some());
        match (self.begun, self.kind.is_full_state()) {
            (true, _) if names_any => Demand::Resources,
            (true, true) if !self.asked.is_empty() => Demand::Response,
            (true, _) => Demand::No,
            (false, is_full) if is_full || names_any => Demand::Response,
            (false, _) => Demand::Opening,
        }
    }

    /// What must wait for this client. Changes never wait in its first response; what it refused always does.
    fn hold_for(&self, due: &Due, hold: Hold) -> Hold {
        Hold {
            updates: due.standing == Standing::Refused || (hold.updates && self.begun),
            removals: hold.removals || !may_be_withdrawn(self.kind),
        }
    }

    fn decide_changes(&self, due: &Due, difference: &Difference, hold: Hold, snapshot: &Offers) -> Delivery {
        if self.is_sent_all(difference, hold) {
            let is_told = !difference.is_empty() || self.awaits_first();
            return if is_told { Delivery::Difference } else { Delivery::Nothing };
        }
        let parts = self.parts(due, difference, hold, snapshot);
        if parts.is_empty() && !self.awaits_first() {
            return Delivery::Nothing;
        }
        if hold.updates { Delivery::Answers(parts) } else { Delivery::Changes(parts) }
    }

    /// Whether the difference is sent unchanged: no part of it waits, and nothing else must be said. Responses with
    /// virtual hosts depend on the names that the client used, and are never shared.
    fn is_sent_all(&self, difference: &Difference, hold: Hold) -> bool {
        let is_complete = !hold.updates && (!hold.removals || difference.beyond.is_empty()) && self.withheld.is_empty();
        is_complete && self.asked.is_empty() && self.kind != ResourceType::VirtualHost
    }

    /// Whether a client with a wildcard has nothing yet: it gets a response even if that is empty.
    fn awaits_first(&self) -> bool {
        let wants_any = self.interest.is_everything() || self.kind == ResourceType::VirtualHost;
        let has_none = || self.interest.names().is_empty() && self.inventory.names().next().is_none();
        !self.begun && wants_any && has_none()
    }

    fn parts(&self, due: &Due, difference: &Difference, hold: Hold, snapshot: &Offers) -> Parts {
        let (resources, absent) = self.answers(due, snapshot);
        let mut parts = Parts { resources, ..Parts::default() };
        if !hold.updates {
            let missing = difference.missing.iter().map(|resource| (resource.name.clone(), Arc::clone(resource)));
            parts.resources.extend(missing);
        }
        if !hold.removals {
            parts.removed.extend(self.removable(due, difference).cloned());
        }
        match self.kind {
            ResourceType::VirtualHost => parts.vacant = absent,
            _ => parts.removed.extend(absent),
        }
        parts
    }

    /// The names that the client has beyond its due and must drop.
    fn removable<'d>(&self, due: &Due, difference: &'d Difference) -> impl Iterator<Item = &'d String> {
        // A removal in a response that was refused for something else is repeated once.
        let is_refused = |name: &String| due.standing == Standing::Refused && self.not_removed.contains(name);
        let beyond = difference.beyond.iter().map(|(name, _)| name);
        beyond.filter(move |name| !self.withheld.contains(*name) && !is_refused(name))
    }

    /// The resources that the requested names match, and the names that match nothing.
    fn answers(&self, due: &Due, snapshot: &Offers) -> (BTreeMap<String, Arc<Resource>>, BTreeSet<String>) {
        let (mut found, mut absent) = (BTreeMap::new(), BTreeSet::new());
        for name in &self.asked {
            match self.found(name, due, snapshot) {
                Some(resource) => {
                    found.insert(resource.name.clone(), resource);
                }
                // It must not be withdrawn, not even by the answer to a request.
                None if !may_be_withdrawn(self.kind) && self.inventory.holds(name) => {}
                // It exists, but was refused.
                None if snapshot.resolve(self.kind, name).is_some() => {}
                None => {
                    absent.insert(name.clone());
                }
            }
        }
        (found, absent)
    }

    /// The resource that a requested name matches, in what the client is due.
    fn found(&self, name: &str, due: &Due, snapshot: &Offers) -> Option<Arc<Resource>> {
        if let Some(resource) = due.offer.set().get(name) {
            return Some(Arc::clone(resource));
        }
        let resource = snapshot.resolve(self.kind, name)?;
        due.offer.set().get(&resource.name).cloned()
    }
}

impl Parts {
    fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.removed.is_empty() && self.vacant.is_empty()
    }
}
