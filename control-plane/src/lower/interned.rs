//! Values by index, each there once.

use std::{collections::HashMap, hash::Hash};

/// A list in which equal values share one place.
#[derive(Debug)]
pub(super) struct Interned<T>(HashMap<T, u32>);

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Hash + Eq> Interned<T> {
    /// The place of a value, which is the next one if it is new.
    pub(super) fn index(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(value).or_insert(next)
    }

    /// The values in the order of their places.
    pub(super) fn into_values(self) -> Vec<T> {
        let mut values: Vec<_> = self.0.into_iter().collect();
        values.sort_by_key(|(_, index)| *index);
        values.into_iter().map(|(value, _)| value).collect()
    }
}
