//! Key sets that issuers publish.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use crate::{jwk::KeySet, model::KeyUri};

/// The key sets that are known, by where they are published: one more input of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct KeySets(BTreeMap<KeyUri, Arc<KeySet>>);

impl KeySets {
    /// The key set of this place, if it has ever been fetched.
    pub fn get(&self, uri: &KeyUri) -> Option<&KeySet> {
        self.0.get(uri).map(Arc::as_ref)
    }
}

impl FromIterator<(KeyUri, Arc<KeySet>)> for KeySets {
    fn from_iter<I: IntoIterator<Item = (KeyUri, Arc<KeySet>)>>(sets: I) -> Self {
        Self(sets.into_iter().collect())
    }
}
