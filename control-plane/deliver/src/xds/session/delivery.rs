//! What is sent of one type now, as a value. Deciding changes nothing; [`compose`](super::compose) carries it out.

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

/// What the next response of a type brings.
pub(super) enum Delivery {
    /// There is no response now.
    Nothing,
    /// State of the world: all that the client is due.
    Whole,
    /// State of the world: all that the client is due, and what it has beyond that, since removals wait.
    WholeAndKept(Arc<Offer>),
    /// Incremental: the difference between what the client has and what it is due. All clients that come from the same set
    /// share the response.
    Difference,
    /// Incremental: all changes, with the answers and the removals that need not wait.
    Changes(Parts),
    /// Incremental: answers and removals alone, since changes wait or are not pushed.
    Answers(Parts),
}

/// The parts of an incremental response that is made for one client.
#[derive(Default)]
pub(super) struct Parts {
    /// By name.
    pub(super) resources: BTreeMap<String, Arc<Resource>>,
    /// The names that the client is to drop.
    pub(super) removed: BTreeSet<String>,
    /// The names that the client asked for and that stand for no virtual host.
    pub(super) vacant: BTreeSet<String>,
}

/// How much a client in the state of the world waits for a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// It asked for nothing: a change is sent, but may have to wait.
    No,
    /// Its first request names nothing that is there: a change is sent at once.
    Opening,
    /// It gets a response whether something has changed or not.
    Response,
    /// So it does, and asks by name for something that is there: it is sent that even if it refused it.
    Resources,
}

impl Subscription {
    /// What is sent now. `refused` tells whether the node has refused a set as a whole.
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
        // Only where all is sent does the absence of a resource tell that it is gone.
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

    /// What must wait for this client: nothing of its first response but removals, and all that it refused.
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

    /// Whether the difference is sent as it is: nothing of it waits, and nothing else is to be said. What is said of virtual
    /// hosts depends on the names that the client knows them by.
    fn is_sent_all(&self, difference: &Difference, hold: Hold) -> bool {
        let is_complete = !hold.updates && (!hold.removals || difference.beyond.is_empty()) && self.withheld.is_empty();
        is_complete && self.asked.is_empty() && self.kind != ResourceType::VirtualHost
    }

    /// Whether a client that wants whatever there is has nothing yet: it is told even that there is nothing.
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

    /// The names of what the client has beyond its due and is to drop.
    fn removable<'d>(&self, due: &Due, difference: &'d Difference) -> impl Iterator<Item = &'d String> {
        // Something else may have been refused: what is to be removed is told once all the same.
        let is_refused = |name: &String| due.standing == Standing::Refused && self.not_removed.contains(name);
        let beyond = difference.beyond.iter().map(|(name, _)| name);
        beyond.filter(move |name| !self.withheld.contains(*name) && !is_refused(name))
    }

    /// What the names that the client asked for stand for, and the names that stand for nothing.
    fn answers(&self, due: &Due, snapshot: &Offers) -> (BTreeMap<String, Arc<Resource>>, BTreeSet<String>) {
        let (mut found, mut absent) = (BTreeMap::new(), BTreeSet::new());
        for name in &self.asked {
            match self.found(name, due, snapshot) {
                Some(resource) => {
                    found.insert(resource.name.clone(), resource);
                }
                // Not to be withdrawn, not even by the answer to a question.
                None if !may_be_withdrawn(self.kind) && self.inventory.holds(name) => {}
                // It is there, and was refused.
                None if snapshot.resolve(self.kind, name).is_some() => {}
                None => {
                    absent.insert(name.clone());
                }
            }
        }
        (found, absent)
    }

    /// What a name that the client asked for stands for, in what it is due.
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
