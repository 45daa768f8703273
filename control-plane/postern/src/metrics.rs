//! Counters of requests to the admin API, with bounded labels. [`crate::admin`] exposes them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// The number of answered requests, by operation and status. A map of its own, since the library's `Family` can neither be
/// read nor be written in a fixed order.
#[derive(Debug, Default)]
pub struct Requests(Mutex<BTreeMap<(&'static str, u16), u64>>);

impl Requests {
    /// Counts an answer. The labels are bounded: operations are a closed list, and statuses are those that we answer
    /// with.
    pub(crate) fn answered(&self, operation: &'static str, status: u16) {
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((operation, status)).or_default() += 1;
    }

    /// All counters.
    pub(crate) fn all(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
