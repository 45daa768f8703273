//! What a client has subscribed to of one type.

use std::collections::BTreeSet;

/// The name that stands for all resources of a type.
const EVERYTHING: &str = "*";

/// Names, everything, or both.
#[derive(Debug)]
pub(super) struct Interest {
    wildcard: Wildcard,
    names: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wildcard {
    /// Only what is named.
    No,
    /// Everything, because nothing was ever named.
    Implied,
    /// Everything, because `*` was named.
    Asked,
}

impl Interest {
    /// Nothing was asked for yet.
    pub(super) fn new() -> Self {
        Self { wildcard: Wildcard::Implied, names: BTreeSet::new() }
    }

    /// Nothing was asked for yet, and nothing is meant by that.
    pub(super) fn in_names() -> Self {
        Self { wildcard: Wildcard::No, names: BTreeSet::new() }
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

    /// State of the world: the list is all that counts. Returns the names that are new in it.
    pub(super) fn replace(&mut self, names: Vec<String>) -> BTreeSet<String> {
        if names.is_empty() && self.wildcard == Wildcard::Implied {
            return BTreeSet::new();
        }
        let mut names: BTreeSet<_> = names.into_iter().collect();
        self.wildcard = if names.remove(EVERYTHING) { Wildcard::Asked } else { Wildcard::No };
        let new = names.difference(&self.names).cloned().collect();
        self.names = names;
        new
    }

    /// Incremental: names come and go. Returns those that are asked for, known before or not.
    pub(super) fn change(&mut self, subscribe: Vec<String>, unsubscribe: &[String]) -> BTreeSet<String> {
        let mut asked: BTreeSet<_> = subscribe.into_iter().collect();
        if asked.remove(EVERYTHING) {
            self.wildcard = Wildcard::Asked;
        } else if self.wildcard == Wildcard::Implied && !asked.is_empty() {
            self.wildcard = Wildcard::No;
        }
        for name in unsubscribe {
            if name == EVERYTHING {
                self.wildcard = Wildcard::No;
            }
            self.names.remove(name);
        }
        let unsubscribed: BTreeSet<_> = unsubscribe.iter().collect();
        asked.retain(|name| !unsubscribed.contains(name));
        self.names.extend(asked.iter().cloned());
        asked
    }
}
