//! Key sets that issuers publish: fetched before they are needed, kept while their publisher cannot be reached, and
//! one more input of a plan.
//!
//! [`Source`] is one published set and says when to fetch it and what becomes of the answer; [`Sources`] are all that
//! the resources in force name. Both are values that know no clock, no randomness and no network. [`LiveSources`] are those
//! of a running control plane, [`client`] fetches, and [`follow`] ties them together.

pub mod client;
mod follow;
mod live;
mod source;
mod sources;

use std::{collections::BTreeMap, sync::Arc};

use postern_model::{KeyUri, jwk::KeySet};
use serde::Serialize;

pub use self::{
    follow::follow,
    live::LiveSources,
    source::{Content, Fetch, Fetched, Source},
    sources::{KeySetReport, Sources},
};

/// The key sets that are known, by where they are published.
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
