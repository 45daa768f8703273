//! Reuse of large resources across revisions, by the digest of their inputs: a change makes only the resources anew
//! that it affects.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use postern_base::digest::Digest;

use super::Resource;

/// Resources by the digest of their inputs. The references are weak: a resource lives only as long as a snapshot has
/// it.
#[derive(Debug, Default)]
pub struct Kept(Mutex<HashMap<Digest, Weak<Resource>>>);

impl Kept {
    /// The resource for a digest, or the result of `make` if none is alive.
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
