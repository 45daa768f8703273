//! What is sent of one type now: the difference between what a client has and what it is due, told in its variant of the
//! protocol, without what must wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    order::{Hold, may_be_withdrawn},
    subscription::{Due, MOST_UNANSWERED, Standing, Subscription},
};
use crate::{
    snapshot::{Resource, ResourceType, Snapshot},
    xds::{
        content::{Content, Variant},
        offer::{Difference, Offer},
    },
};

impl Subscription {
    /// The response that is to be sent now, if any. The inventory then counts it as had.
    pub(super) fn compose(
        &mut self,
        hold: Hold,
        snapshot: &Snapshot,
        refused: impl Fn(&Offer) -> bool,
    ) -> Option<Arc<Content>> {
        let due = self.due.clone()?;
        let difference = self.difference.take().unwrap_or_default();
        let urgent = !self.begun || !self.asked.is_empty();
        let content = if self.unanswered.len() >= MOST_UNANSWERED && !urgent {
            None
        } else {
            match self.variant {
                Variant::StateOfTheWorld => self.world(&due, &difference, hold, snapshot, refused),
                Variant::Incremental => self.changes(&due, &difference, hold, snapshot),
            }
        };
        (self.begun, self.stale) = (true, self.stale || content.is_some());
        self.asked.clear();
        if content.is_none() && !difference.is_empty() {
            self.difference = Some(difference);
        }
        content
    }

    fn world(
        &mut self,
        due: &Due,
        difference: &Difference,
        hold: Hold,
        snapshot: &Snapshot,
        refused: impl Fn(&Offer) -> bool,
    ) -> Option<Arc<Content>> {
        let is_full = self.kind.is_full_state();
        let found = |name: &String| self.found(name, due, snapshot).is_some();
        // Whoever asks for it by name is sent what it refused, too.
        let insists = self.begun && self.asked.iter().any(found);
        let asked = !self.begun && is_full || self.asked.iter().any(|name| is_full || found(name));
        let urgent = asked || !self.begun;
        let withdraws = is_full && !difference.beyond.is_empty() && !hold.removals;
        let updates = !difference.missing.is_empty();
        if due.standing == Standing::Refused && !insists
            || !(asked || updates || withdraws)
            || (hold.updates && !urgent)
        {
            return None;
        }
        let keeps = is_full && hold.removals && !difference.beyond.is_empty();
        let offer = if keeps { difference.kept(&due.offer) } else { Arc::clone(&due.offer) };
        if keeps && refused(&offer) && !insists {
            return None;
        }
        let content = offer.whole(Variant::StateOfTheWorld, self.kind);
        self.inventory.settle(offer, []);
        Some(content)
    }

    fn changes(&mut self, due: &Due, difference: &Difference, hold: Hold, snapshot: &Snapshot) -> Option<Arc<Content>> {
        let keeps_updates = due.standing == Standing::Refused || (hold.updates && self.begun);
        let keeps_removals = hold.removals || !may_be_withdrawn(self.kind);
        let beyond = || difference.beyond.iter().map(|(name, _)| name);
        let plain = self.kind != ResourceType::VirtualHost;
        // A client that wants whatever there is and has nothing is told even that there is nothing.
        let wants = self.interest.is_everything() || !plain;
        let greets =
            !self.begun && wants && self.interest.names().is_empty() && self.inventory.names().next().is_none();
        let all = !keeps_updates && (!keeps_removals || difference.beyond.is_empty()) && self.withheld.is_empty();
        if self.asked.is_empty() && plain && all {
            if difference.is_empty() && !greets {
                return None;
            }
            self.inventory.settle(Arc::clone(&due.offer), []);
            return Some(difference.changes(self.kind, &due.offer));
        }

        let (mut send, mut absent) = self.answers(due, snapshot);
        if !keeps_updates {
            send.extend(difference.missing.iter().map(|resource| (resource.name.clone(), Arc::clone(resource))));
        }
        // Something else may have been refused: what is to be removed is told once all the same.
        let is_refused = |name: &String| due.standing == Standing::Refused && self.not_removed.contains(name);
        let removable = beyond().filter(|name| !keeps_removals && !self.withheld.contains(*name) && !is_refused(name));
        let mut removed: BTreeSet<String> = removable.cloned().collect();
        let vacant = if plain { BTreeSet::new() } else { std::mem::take(&mut absent) };
        removed.extend(absent);
        if send.is_empty() && removed.is_empty() && vacant.is_empty() && !greets {
            return None;
        }
        let whole = plain && removed.is_empty() && send.len() == due.offer.set().resources.len();
        let send: Vec<_> = send.into_values().collect();
        let content = if whole {
            due.offer.whole(Variant::Incremental, self.kind)
        } else {
            self.own_content(due, send, removed, vacant, snapshot)
        };
        if keeps_updates {
            content.resources.iter().for_each(|resource| self.inventory.sent(resource));
            content.removed.iter().for_each(|name| self.inventory.gone(name));
        } else {
            let kept = beyond().filter(|name| !content.removed.contains(name));
            self.inventory.settle(Arc::clone(&due.offer), kept);
        }
        Some(content)
    }

    /// What the names that the client asked for stand for, and the names that stand for nothing.
    fn answers(&self, due: &Due, snapshot: &Snapshot) -> (BTreeMap<String, Arc<Resource>>, BTreeSet<String>) {
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

    fn own_content(
        &self,
        due: &Due,
        send: Vec<Arc<Resource>>,
        removed: BTreeSet<String>,
        vacant: BTreeSet<String>,
        snapshot: &Snapshot,
    ) -> Arc<Content> {
        let mut content = Content::new(Variant::Incremental, self.kind, due.offer.version().clone(), send);
        content.removed = removed.into_iter().collect();
        content.vacant = vacant.into_iter().collect();
        if self.kind == ResourceType::VirtualHost {
            let aliases = |name: &str| snapshot.virtual_hosts().aliases(name, self.interest.names());
            let names = content.resources.iter().map(|resource| &resource.name);
            content.aliases = names.map(|name| (name.clone(), aliases(name))).collect();
        }
        Arc::new(content)
    }

    /// What a name that the client asked for stands for, in what it is due.
    fn found(&self, name: &str, due: &Due, snapshot: &Snapshot) -> Option<Arc<Resource>> {
        if let Some(resource) = due.offer.set().get(name) {
            return Some(Arc::clone(resource));
        }
        let resource = snapshot.resolve(self.kind, name)?;
        due.offer.set().get(&resource.name).cloned()
    }
}
