//! What is counted of requests to the admin API: numbers only, of bounded kinds. [`crate::admin`] shows them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// How many requests were answered, by operation and status.
#[derive(Debug, Default)]
pub struct Requests(Mutex<BTreeMap<(&'static str, u16), u64>>);

impl Requests {
    /// A request was answered. Operations are known, and statuses are those that we answer with.
    pub(crate) fn answered(&self, operation: &'static str, status: u16) {
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((operation, status)).or_default() += 1;
    }

    /// All of them.
    pub(crate) fn all(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
