//! Shared data of all VMs of an Envoy, with compare-and-swap.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A handle to shared data. Clones refer to the same data.
#[derive(Debug, Clone, Default)]
pub struct SharedData(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Vec<u8>, (Vec<u8>, u32)>,
    last_version: u32,
}

impl SharedData {
    /// A value and its version. `None` if the key has no value.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<(Vec<u8>, u32)> {
        self.entries().by_key.get(key.as_ref()).cloned()
    }

    /// Sets a value and returns true. With a version other than 0, returns false if the existing value has another
    /// version.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, version: u32) -> bool {
        let mut entries = self.entries();
        let there = entries.by_key.get(key.as_ref()).map(|(_, version)| *version);
        if version != 0 && there.is_some_and(|there| there != version) {
            return false;
        }
        // Versions are never 0, which means "any" to modules.
        entries.last_version = entries.last_version.checked_add(1).unwrap_or(1);
        let next = entries.last_version;
        entries.by_key.insert(key.as_ref().to_vec(), (value.as_ref().to_vec(), next));
        true
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.entries().by_key.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ignores poisoning: each change is a single insertion, so entries are consistent.
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
