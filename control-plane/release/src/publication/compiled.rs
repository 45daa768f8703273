//! The groups that are compiled, so many at most. When another comes, the one that was not asked for longest is dropped: of
//! those that no stream is served from, and of these first one that no resource foresees.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use postern_compile::attach::Signature;
use postern_compile::{snapshot::Snapshot, support::Support};

/// How many groups are kept, besides those that streams are served from.
pub(super) const MOST_GROUPS: usize = 1024;

/// A group's snapshot, once it is compiled.
pub(super) type SharedSnapshot = Arc<OnceLock<Arc<Snapshot>>>;

/// What tells a group: which targets select its nodes, and what these understand.
pub(super) type Key = (Signature, Support);

/// Groups by what tells them apart.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    groups: HashMap<Key, Group>,
    /// How often a group was asked for.
    asked: u64,
}

#[derive(Debug)]
struct Group {
    place: SharedSnapshot,
    /// When it was last asked for, by that count.
    asked: u64,
    /// Whether it was compiled when the resources were admitted.
    foreseen: bool,
}

impl Compiled {
    /// Keeps a group that the resources foresee.
    pub(super) fn foresee(&mut self, key: Key, snapshot: Arc<Snapshot>) {
        let asked = self.tick();
        self.groups.insert(key, Group { place: Arc::new(OnceLock::from(snapshot)), asked, foreseen: true });
    }

    /// The place of a group, which is made if it is new.
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

    /// The snapshot of a group, if it is compiled.
    pub(super) fn compiled(&mut self, key: &Key) -> Option<Arc<Snapshot>> {
        let asked = self.tick();
        let group = self.groups.get_mut(key)?;
        group.asked = asked;
        group.place.get().cloned()
    }

    /// What selects the nodes of each group that is compiled, and the label of its plan.
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
    /// Whether a stream is served from it, or somebody is compiling it. Besides this place, the list of what is known holds
    /// on to a snapshot.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.place) > 1 || self.place.get().is_some_and(|snapshot| Arc::strong_count(snapshot) > 2)
    }
}
