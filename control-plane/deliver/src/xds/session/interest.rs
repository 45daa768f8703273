//! The subscriptions of a client to one type.

use std::collections::BTreeSet;

use postern_compile::snapshot::ResourceType;

/// The wildcard, which stands for all resources of a type.
const EVERYTHING: &str = "*";

/// Subscribed names, a wildcard, or both.
#[derive(Debug)]
pub(super) struct Interest {
    wildcard: Wildcard,
    names: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wildcard {
    /// No wildcard: only the names.
    No,
    /// No request yet. If the first one has no names, it is a wildcard.
    Unsaid,
    /// A wildcard, because the first request had no names.
    Implied,
    /// A wildcard, because `*` was subscribed to.
    Asked,
}

impl Interest {
    /// No subscriptions yet. Only for types whose responses are the complete state can a request without names be a
    /// wildcard.
    pub(super) fn new(kind: ResourceType) -> Self {
        let wildcard = if kind.is_full_state() { Wildcard::Unsaid } else { Wildcard::No };
        Self { wildcard, names: BTreeSet::new() }
    }

    pub(super) fn is_everything(&self) -> bool {
        self.wildcard != Wildcard::No
    }

    pub(super) fn includes(&self, name: &str) -> bool {
        self.is_everything() || self.names.contains(name)
    }

    pub(super) fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// State of the world: replaces the names. Returns those that are new.
    pub(super) fn replace(&mut self, names: Vec<String>) -> BTreeSet<String> {
        if names.is_empty() && matches!(self.wildcard, Wildcard::Unsaid | Wildcard::Implied) {
            self.wildcard = Wildcard::Implied;
            return BTreeSet::new();
        }
        let mut names: BTreeSet<_> = names.into_iter().collect();
        self.wildcard = if names.remove(EVERYTHING) { Wildcard::Asked } else { Wildcard::No };
        let new = names.difference(&self.names).cloned().collect();
        self.names = names;
        new
    }

    /// Incremental: adds and removes names. Returns those that must be answered, even if they were known before.
    ///
    /// A wildcard from a first request without names lasts until `*` is unsubscribed from; names that are subscribed to
    /// later are added to it.
    pub(super) fn change(&mut self, subscribe: Vec<String>, unsubscribe: &[String]) -> BTreeSet<String> {
        let mut asked: BTreeSet<_> = subscribe.into_iter().collect();
        if asked.remove(EVERYTHING) {
            self.wildcard = Wildcard::Asked;
        } else if self.wildcard == Wildcard::Unsaid {
            self.wildcard = if asked.is_empty() { Wildcard::Implied } else { Wildcard::No };
        }
        let mut left = BTreeSet::new();
        for name in unsubscribe {
            if name == EVERYTHING {
                self.wildcard = Wildcard::No;
            }
            left.extend(self.names.take(name));
            asked.remove(name);
        }
        self.names.extend(asked.iter().cloned());
        // What the wildcard still covers is sent again: the client may have dropped it with its name.
        if self.is_everything() {
            asked.extend(left);
        }
        asked
    }
}
