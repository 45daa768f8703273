//! What a client has subscribed to of one type.

use std::collections::BTreeSet;

use postern_compile::snapshot::ResourceType;

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
    /// Nothing was said yet. If the first request names nothing, it means everything.
    Unsaid,
    /// Everything, because the first request named nothing.
    Implied,
    /// Everything, because `*` was named.
    Asked,
}

impl Interest {
    /// Nothing was asked for yet. Names are required of all types but those whose responses are the whole state.
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

    /// State of the world: the list is all that counts. Returns the names that are new in it.
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

    /// Incremental: names come and go. Returns those that must be answered, known before or not.
    ///
    /// A wildcard that was implied by a first request without names lasts until `*` is unsubscribed from: names that are
    /// subscribed to later are added to it.
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
        // What the wildcard still wants is told again: the client may have dropped it with its name.
        if self.is_everything() {
            asked.extend(left);
        }
        asked
    }
}
