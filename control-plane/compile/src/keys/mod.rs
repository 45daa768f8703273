//! Key sets that issuers publish: fetched by the control plane, kept while the publisher is unreachable, and an input
//! of plans.
//!
//! [`Source`] is one published set, and decides when to fetch it and how to treat the answer. [`Sources`] are all that
//! the resources in force name. Both are values: time, randomness and answers are arguments. [`LiveSources`] are those
//! of a running control plane, [`client`] fetches, and [`follow`] connects them.

pub mod client;
mod follow;
mod live;
mod source;
mod sources;
mod stored;

use std::{collections::BTreeMap, sync::Arc};

use postern_model::{KeyUri, jwk::KeySet};
use serde::Serialize;

pub use self::{
    follow::follow,
    live::LiveSources,
    source::{Content, Fetch, Fetched, Source},
    sources::{FetchError, KeySetReport, KeySetState, Sources},
    stored::StoredKeySet,
};

/// The known key sets, by their addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct KeySets(BTreeMap<KeyUri, Arc<KeySet>>);

impl KeySets {
    /// The key set of an address. `None` if it was never fetched successfully.
    pub fn get(&self, uri: &KeyUri) -> Option<&KeySet> {
        self.0.get(uri).map(Arc::as_ref)
    }
}

impl FromIterator<(KeyUri, Arc<KeySet>)> for KeySets {
    fn from_iter<I: IntoIterator<Item = (KeyUri, Arc<KeySet>)>>(sets: I) -> Self {
        Self(sets.into_iter().collect())
    }
}
