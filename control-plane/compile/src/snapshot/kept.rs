//! Large resources that were made before, by what they were made of: a change makes only those anew that it concerns.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use postern_base::digest::Digest;

use super::Resource;

/// Resources by the digest of all that they are made of. It keeps none alive that no snapshot has.
#[derive(Debug, Default)]
pub struct Kept(Mutex<HashMap<Digest, Weak<Resource>>>);

impl Kept {
    /// The resource that was made of the same before, or a new one.
    pub(super) fn get_or_make(&self, made_of: Digest, make: impl FnOnce() -> Resource) -> Arc<Resource> {
        let find = || self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&made_of).and_then(Weak::upgrade);
        if let Some(resource) = find() {
            return resource;
        }
        let made = Arc::new(make());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, resource| resource.strong_count() > 0);
        kept.insert(made_of, Arc::downgrade(&made));
        made
    }
}
