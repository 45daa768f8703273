//! Interning: equal values are stored once and referred to by index.

use std::{borrow::Borrow, hash::Hash};

use rustc_hash::FxHashMap;

/// A list of distinct values.
#[derive(Debug)]
pub(super) struct Interned<T>(FxHashMap<T, u32>);

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<T: Hash + Eq> Interned<T> {
    /// The index of a value. A new value is appended.
    pub(super) fn index(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(value).or_insert(next)
    }

    /// Like [`Self::index`], but clones the value only if it is new.
    pub(super) fn index_of<Q>(&mut self, value: &Q) -> u32
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = T> + ?Sized,
    {
        match self.0.get(value) {
            Some(index) => *index,
            None => self.index(value.to_owned()),
        }
    }

    /// The values in the order of their indices.
    pub(super) fn into_values(self) -> Vec<T> {
        let mut values: Vec<_> = self.0.into_iter().collect();
        values.sort_by_key(|(_, index)| *index);
        values.into_iter().map(|(value, _)| value).collect()
    }
}
