//! The rules for virtual hosts (VHDS) on a stream: a base configuration without a subscription, several names for one
//! resource, and changes of the route configuration.

use std::{collections::BTreeSet, sync::Arc};

use postern_compile::snapshot::ResourceType;

use super::subscription::{Claim, Subscription};
use crate::xds::offer::{Offer, Offers};

impl Subscription {
    /// What is in force of what the client subscribed to.
    pub(super) fn target(&self, snapshot: &Offers) -> Arc<Offer> {
        if self.interest.is_everything() {
            return snapshot.offer(self.kind);
        }
        if self.kind != ResourceType::VirtualHost {
            return snapshot.offer_named(self.kind, self.interest.names());
        }
        let hosts = snapshot.virtual_hosts();
        let named = self.interest.names().iter().filter_map(|name| snapshot.resolve(self.kind, name));
        let named: BTreeSet<_> = named.map(|resource| resource.name.clone()).collect();
        let base = hosts.base().difference(&self.left).filter(|_| self.gets_base);
        let mut wanted: Vec<_> = named.iter().chain(base).collect();
        let mut all = BTreeSet::new();
        // A resource that is added may have a wildcard of its own, and so require others.
        while let Some(name) = wanted.pop() {
            if all.insert(name.clone()) {
                let companions = hosts.companions(name).into_iter().flatten();
                wanted.extend(companions.filter(|name| !self.left.contains(*name)));
            }
        }
        snapshot.offer_named(self.kind, &all)
    }

    /// Unsubscribes the client from virtual hosts. The own name of a resource stands for all names by which it was
    /// subscribed to, and so does a domain that was not subscribed to.
    pub(super) fn leave_hosts(&mut self, unsubscribe: &mut Vec<String>, snapshot: &Offers) {
        let resolved = |name: &str| snapshot.resolve(self.kind, name).map(|resource| resource.name.clone());
        let names = self.interest.names();
        let stands_for_all = |name: &&String| !names.contains(*name) || resolved(name).as_ref() == Some(*name);
        let left: BTreeSet<_> = unsubscribe.iter().filter(stands_for_all).filter_map(|name| resolved(name)).collect();
        let aliases = names.iter().filter(|name| resolved(name).is_some_and(|resource| left.contains(&resource)));
        unsubscribe.extend(aliases.cloned());
        self.left.extend(left);
    }

    /// After a virtual host that the client unsubscribed from was deleted, it counts as new.
    pub(super) fn forget_left_hosts(&mut self, snapshot: &Offers) {
        if !self.left.is_empty() {
            let all = snapshot.offer(self.kind);
            self.left.retain(|name| all.set().get(name).is_some());
        }
    }

    /// Takes over virtual hosts that the client has from an earlier stream. They are not sent again, under whatever
    /// name it asks, and it is told which were deleted meanwhile. So are names that match another virtual host now:
    /// otherwise it would keep the domain on the former one.
    pub(super) fn take_claimed_hosts(&mut self, snapshot: &Offers) {
        if self.kind != ResourceType::VirtualHost || self.begun || self.claim != Claim::Resources {
            return;
        }
        let inventory = &self.inventory;
        let has = |name: &String| snapshot.resolve(self.kind, name).is_some_and(|it| inventory.holds(&it.name));
        self.asked.retain(|name| !has(name));
    }

    /// Marks the virtual hosts of these route configurations as doubtful, so that they are sent again: their route
    /// configuration was replaced, and the client may have dropped them.
    pub(super) fn doubt_hosts(&mut self, is_replaced: impl Fn(&str) -> bool) {
        let within = |host: &&String| host.rsplit_once('/').is_some_and(|(routes, _)| is_replaced(routes));
        let within: Vec<_> = self.inventory.names().filter(within).cloned().collect();
        within.iter().for_each(|host| self.inventory.doubt(host));
        self.stale |= !within.is_empty();
    }
}
