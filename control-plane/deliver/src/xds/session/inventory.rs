//! What a client has of one type, as far as the server can know: a shared set, and the client's differences from it.
//!
//! Thousands of streams have the same set; each costs one pointer.

use std::{collections::BTreeMap, sync::Arc};

use postern_base::digest::Digest;
use postern_compile::snapshot::{Resource, ResourceType};

use crate::xds::offer::{Difference, Offer, Offers};

/// The resources that a client has, or is being sent.
#[derive(Debug)]
pub(super) struct Inventory {
    base: Arc<Offer>,
    deviations: BTreeMap<String, Entry>,
}

/// A client's standing with one resource.
#[derive(Debug)]
enum Entry {
    /// It has none of that name.
    Absent,
    /// It may have one, but its version does not count.
    Doubtful,
    /// It has this version.
    At(Digest),
    /// It reported this version when it reconnected.
    Claimed(String),
}

impl Inventory {
    /// The inventory of a client without resources.
    pub(super) fn new() -> Self {
        Self { base: Offer::nothing(), deviations: BTreeMap::new() }
    }

    /// Records that the client has a resource from an earlier stream.
    pub(super) fn claim(&mut self, name: String, version: String) {
        self.deviations.insert(name, Entry::Claimed(version));
    }

    /// Records that the client may have a resource, which must be sent, or withdrawn, again.
    pub(super) fn doubt(&mut self, name: &str) {
        self.deviations.insert(name.to_owned(), Entry::Doubtful);
    }

    /// Removes the resources for which `wanted` is false: the client drops them.
    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.deviations.retain(|name, _| wanted(name));
        let dropped = self.base.set().resources.iter().filter(|resource| !wanted(&resource.name));
        let dropped: Vec<_> = dropped.map(|resource| (resource.name.clone(), Entry::Absent)).collect();
        self.deviations.extend(dropped);
    }

    /// Whether the client may have a resource of this name.
    pub(super) fn holds(&self, name: &str) -> bool {
        match self.deviations.get(name) {
            Some(entry) => !matches!(entry, Entry::Absent),
            None => self.base.set().get(name).is_some(),
        }
    }

    /// The client's resource of this name, where that is known.
    pub(super) fn resource(&self, name: &str) -> Option<Arc<Resource>> {
        let known = self.base.set().get(name)?;
        let is_it = self.knows(known);
        is_it.then(|| Arc::clone(known))
    }

    /// Whether the client may have a resource whose version does not count.
    pub(super) fn doubts(&self, name: &str) -> bool {
        matches!(self.deviations.get(name), Some(Entry::Doubtful))
    }

    /// Whether the client has exactly this resource.
    pub(super) fn knows(&self, resource: &Resource) -> bool {
        match self.deviations.get(&resource.name) {
            Some(Entry::Absent | Entry::Doubtful) => false,
            Some(Entry::At(version)) => *version == resource.version,
            Some(Entry::Claimed(version)) => version == resource.version.as_str(),
            None => self.base.set().get(&resource.name).is_some_and(|known| known.version == resource.version),
        }
    }

    /// The names of all resources that the client may have.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        let base = self.base.set().resources.iter().map(|resource| &resource.name);
        let base = base.filter(|name| !self.deviations.contains_key(*name));
        let others = self.deviations.iter().filter(|(_, entry)| !matches!(entry, Entry::Absent));
        base.chain(others.map(|(name, _)| name))
    }

    /// What the client lacks of a set, and what it has beyond it. `None` if it has exactly the set.
    pub(super) fn difference(&self, kind: ResourceType, to: &Arc<Offer>, snapshot: &Offers) -> Option<Arc<Difference>> {
        if self.deviations.is_empty() {
            let equal = Arc::ptr_eq(&self.base, to) || self.base.version() == to.version();
            return (!equal).then(|| snapshot.difference(kind, &self.base, to));
        }
        let missing: Vec<_> = to.set().resources.iter().filter(|resource| !self.knows(resource)).cloned().collect();
        let adds = missing.iter().any(|resource| !self.holds(&resource.name));
        let beyond = self.names().filter(|name| to.set().get(name).is_none());
        let beyond = beyond.map(|name| (name.clone(), self.base.set().get(name).cloned())).collect();
        let difference = Difference::new(missing, adds, beyond);
        (!difference.is_empty()).then(|| Arc::new(difference))
    }

    /// Records that the client has, or is being sent, exactly this set and, beyond it, what it had of the names in
    /// `kept`.
    pub(super) fn settle<'a>(&mut self, set: Arc<Offer>, kept: impl IntoIterator<Item = &'a String>) {
        let mut deviations = BTreeMap::new();
        for name in kept {
            let entry = match self.deviations.remove(name) {
                Some(entry) => entry,
                None => self.base.set().get(name).map_or(Entry::Doubtful, |known| Entry::At(known.version.clone())),
            };
            deviations.insert(name.clone(), entry);
        }
        *self = Self { base: set, deviations };
    }

    /// Records that the client is being sent a resource.
    pub(super) fn sent(&mut self, resource: &Resource) {
        self.deviations.insert(resource.name.clone(), Entry::At(resource.version.clone()));
    }

    /// Records that the client is being told that a name does not exist.
    pub(super) fn gone(&mut self, name: &str) {
        if self.base.set().get(name).is_some() {
            self.deviations.insert(name.to_owned(), Entry::Absent);
        } else {
            self.deviations.remove(name);
        }
    }

    /// Records that the client refused a resource; what it was sent later still counts.
    pub(super) fn refused(&mut self, resource: &Resource) {
        if self.knows(resource) {
            self.doubt(&resource.name);
        }
    }

    /// Records that the client may still have a resource that it was told to remove.
    pub(super) fn not_removed(&mut self, name: &str) {
        if !self.holds(name) {
            self.doubt(name);
        }
    }
}
