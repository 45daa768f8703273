//! A cache of compiled groups with a limit. When it is full, the least recently used group is evicted that no stream is
//! served from; groups that no resource foresees are evicted first.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use postern_compile::attach::Signature;
use postern_compile::{snapshot::Snapshot, support::Support};

/// The maximum number of groups, besides those that streams are served from.
pub(super) const MOST_GROUPS: usize = 1024;

/// The snapshot of a group; empty until it is compiled.
pub(super) type SharedSnapshot = Arc<OnceLock<Arc<Snapshot>>>;

/// The key of a group: the targets that select its nodes, and what the bootstraps of these allow.
pub(super) type Key = (Signature, Support);

/// The cache: groups by key.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    groups: HashMap<Key, Group>,
    /// The number of lookups so far.
    asked: u64,
}

#[derive(Debug)]
struct Group {
    place: SharedSnapshot,
    /// The number of the last lookup of this group.
    asked: u64,
    /// Whether the group was compiled when the resources were admitted.
    foreseen: bool,
}

impl Compiled {
    /// Adds a group that was compiled at admission.
    pub(super) fn foresee(&mut self, key: Key, snapshot: Arc<Snapshot>) {
        let asked = self.tick();
        self.groups.insert(key, Group { place: Arc::new(OnceLock::from(snapshot)), asked, foreseen: true });
    }

    /// The entry of a group. Created empty if it is new.
    pub(super) fn group(&mut self, key: Key) -> SharedSnapshot {
        let asked = self.tick();
        if !self.groups.contains_key(&key) && self.groups.len() >= MOST_GROUPS {
            self.drop_oldest();
        }
        let make = || Group { place: SharedSnapshot::default(), asked, foreseen: false };
        let group = self.groups.entry(key).or_insert_with(make);
        group.asked = asked;
        Arc::clone(&group.place)
    }

    /// The snapshot of a group, or `None` if it is not compiled.
    pub(super) fn compiled(&mut self, key: &Key) -> Option<Arc<Snapshot>> {
        let asked = self.tick();
        let group = self.groups.get_mut(key)?;
        group.asked = asked;
        group.place.get().cloned()
    }

    /// For each compiled group, what selects its nodes, and the label of its plan.
    pub(super) fn plans(&self) -> Vec<(Signature, String)> {
        let compiled = |((signature, _), group): (&Key, &Group)| {
            Some((signature.clone(), group.place.get()?.plan().label().to_owned()))
        };
        self.groups.iter().filter_map(compiled).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    fn tick(&mut self) -> u64 {
        self.asked = self.asked.wrapping_add(1);
        self.asked
    }

    fn drop_oldest(&mut self) {
        let unused = self.groups.iter().filter(|(_, group)| !group.is_used());
        let oldest = unused.min_by_key(|(_, group)| (group.foreseen, group.asked)).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.groups.remove(&key);
        }
    }
}

impl Group {
    /// Whether a stream is served from it, or a thread is compiling it. This cache and the map of known snapshots hold
    /// one reference each.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.place) > 1 || self.place.get().is_some_and(|snapshot| Arc::strong_count(snapshot) > 2)
    }
}
