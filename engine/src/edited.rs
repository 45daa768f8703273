//! Which request headers the steps of a chain may edit, and which they promise to set. Each policy describes its own
//! edits next to its code (`edits`); nothing else knows them.

use std::{collections::BinaryHeap, sync::Arc};

use crate::header::Name;

/// The request headers that some steps may set, add to or remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EditedHeaders {
    any: bool,
    /// Sorted, without duplicates.
    names: Vec<Arc<str>>,
}

impl EditedHeaders {
    /// Whether every header may be edited, as by an external agent, which decides when the request comes.
    pub fn is_any(&self) -> bool {
        self.any
    }

    /// Whether no header is edited.
    pub fn is_empty(&self) -> bool {
        !self.any && self.names.is_empty()
    }

    /// The names that are known beforehand, in lower case, sorted and without duplicates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Whether a header may be edited. `name` is in lower case.
    pub fn may_edit(&self, name: &str) -> bool {
        self.any || self.names.binary_search_by(|known| (**known).cmp(name)).is_ok()
    }
}

/// The headers of its own phase that a policy may edit.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeaderEdits {
    any: bool,
    names: Vec<Arc<str>>,
    promised: Vec<Name>,
}

impl HeaderEdits {
    /// No header.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Any header.
    pub(crate) fn any() -> Self {
        Self { any: true, ..Self::default() }
    }

    /// Adds headers that the policy may edit.
    #[must_use]
    pub(crate) fn editing<'a>(mut self, names: impl IntoIterator<Item = &'a Arc<str>>) -> Self {
        self.names.extend(names.into_iter().cloned());
        self
    }

    /// Adds headers that the policy promises: it sets or removes them whenever it runs, so that their values never come
    /// from the caller.
    #[must_use]
    pub(crate) fn promising<'a>(mut self, names: impl IntoIterator<Item = &'a Name>) -> Self {
        self.promised.extend(names.into_iter().cloned());
        self
    }

    /// The promised headers.
    pub(crate) fn into_promised(self) -> Vec<Name> {
        self.promised
    }
}

impl FromIterator<HeaderEdits> for EditedHeaders {
    fn from_iter<I: IntoIterator<Item = HeaderEdits>>(steps: I) -> Self {
        let (mut any, mut names) = (false, Vec::new());
        for step in steps {
            any |= step.any;
            names.extend(step.names);
            names.extend(step.promised.iter().map(|name| Arc::clone(name.get())));
        }
        // A heap sorts with far less code than `sort_unstable`, and these are few.
        let mut names = BinaryHeap::from(names).into_sorted_vec();
        names.dedup();
        Self { any, names }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_what_steps_edit() {
        let [a, b] = ["a", "b"].map(Name::built_in);
        let steps = [HeaderEdits::none().editing([b.get(), a.get()]), HeaderEdits::none().promising([&b])];
        let edited: EditedHeaders = steps.into_iter().collect();
        assert_eq!((edited.names().collect::<Vec<_>>(), edited.is_any()), (vec!["a", "b"], false));
        assert!(edited.may_edit("b") && !edited.may_edit("c") && !edited.is_empty());
        let any: EditedHeaders = [HeaderEdits::any()].into_iter().collect();
        assert!(any.may_edit("c") && any.is_any() && !any.is_empty());
        assert!(EditedHeaders::default().is_empty());
    }
}
