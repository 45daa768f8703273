//! All published key sets that the resources in force name.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use postern_model::{Bundle, KeySource, KeyUri};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    KeySets,
    source::{Fetch, Fetched, Source},
    stored::StoredKeySet,
};

/// The largest number of concurrent fetches.
const MOST_UNDER_WAY: usize = 8;

/// The published key sets that are wanted, by address.
#[derive(Debug, Default)]
pub struct Sources(BTreeMap<KeyUri, Source>);

/// What is shown of a key set.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeySetReport {
    /// Where it is published.
    #[schemars(with = "String")]
    pub uri: KeyUri,
    /// Whether its keys can be relied on.
    pub state: KeySetState,
    /// How many of its keys can be used.
    pub keys: usize,
    /// Which cannot, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// When it was last fetched, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<u64>,
    /// Why the latest fetch failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<FetchError>,
    /// When it is fetched next, in seconds since 1970; nothing while it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_fetch: Option<u64>,
}

impl KeySetReport {
    /// How many seconds ago it was last fetched.
    pub fn age(&self) -> Option<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Some(now.saturating_sub(self.last_success?))
    }
}

/// How a key set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KeySetState {
    /// The last fetch succeeded.
    Fresh,
    /// It is an earlier process's, and not fetched again yet.
    Restored,
    /// The last fetch failed; the keys of the one before are in use.
    Stale,
    /// It was never fetched: tokens of its issuer cannot be checked.
    Missing,
}

impl KeySetState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fresh, Self::Restored, Self::Stale, Self::Missing];

    fn of(source: &Source) -> Self {
        match (source.set(), source.last_error()) {
            (None, _) => Self::Missing,
            (Some(_), Some(_)) => Self::Stale,
            (Some(_), None) if source.is_restored() => Self::Restored,
            (Some(_), None) => Self::Fresh,
        }
    }
}

/// A fetch that failed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FetchError {
    /// When, in seconds since 1970.
    pub at: u64,
    /// Why.
    pub message: String,
}

impl Sources {
    /// Sets the wanted key sets to those that these resources name. Sets that stay wanted keep their state.
    pub fn want(&mut self, bundle: &Bundle, now: Duration) {
        self.want_all([bundle], now);
    }

    /// Like [`Self::want`], for several revisions that are in force at once.
    pub fn want_all<'a>(&mut self, bundles: impl IntoIterator<Item = &'a Bundle>, now: Duration) {
        let mut wanted: BTreeMap<&KeyUri, Duration> = BTreeMap::new();
        for issuer in bundles.into_iter().flat_map(|bundle| &bundle.issuers) {
            if let KeySource::Published { uri, refresh } = &issuer.spec.keys {
                wanted.entry(uri).and_modify(|shortest| *shortest = (*shortest).min(*refresh)).or_insert(*refresh);
            }
        }
        self.0.retain(|uri, _| wanted.contains_key(uri));
        for (uri, refresh) in wanted {
            match self.0.get_mut(uri) {
                Some(source) => source.set_refresh(refresh),
                None => drop(self.0.insert(uri.clone(), Source::new(refresh, now))),
            }
        }
    }

    /// Takes up the key sets that an earlier process kept. They are due now, and known meanwhile. Sets that are known
    /// already are left alone.
    pub fn restore(&mut self, stored: impl IntoIterator<Item = StoredKeySet>, now: Duration) {
        for set in stored {
            self.0.entry(set.uri.clone()).or_insert_with(|| Source::restored(set, now));
        }
    }

    /// The key sets to keep for a later process: all that are known and wanted.
    pub fn stored(&self) -> Vec<StoredKeySet> {
        self.0.iter().filter_map(|(uri, source)| source.stored(uri)).collect()
    }

    /// The key sets that are known now.
    pub fn sets(&self) -> KeySets {
        self.0.iter().filter_map(|(uri, source)| Some((uri.clone(), Arc::clone(source.set()?)))).collect()
    }

    /// Starts the fetches that are due, as long as not too many are in progress, and returns them.
    pub fn start_due(&mut self, now: Duration) -> Vec<Fetch> {
        let under_way = self.0.values().filter(|source| source.due().is_none()).count();
        let due = self.0.iter_mut().filter(|(_, source)| source.due().is_some_and(|due| due <= now));
        due.take(MOST_UNDER_WAY.saturating_sub(under_way)).map(|(uri, source)| source.start(uri)).collect()
    }

    /// When the next fetch becomes due. A fetch that waits for others to end is not counted.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        self.0.values().filter_map(Source::due).filter(|due| *due > now).min()
    }

    /// Records the result of a fetch. Returns whether the keys have changed. The result for a set that is no longer
    /// wanted is dropped.
    pub fn finish(&mut self, uri: &KeyUri, answer: Fetched, now: Duration, chance: f64) -> bool {
        self.0.get_mut(uri).is_some_and(|source| source.due().is_none() && source.finish(answer, now, chance))
    }

    /// The state of a wanted key set.
    pub fn get(&self, uri: &KeyUri) -> Option<&Source> {
        self.0.get(uri)
    }

    /// The status of all key sets, sorted by address.
    pub fn report(&self) -> Vec<KeySetReport> {
        let seconds = |time: Duration| time.as_secs();
        let report = |(uri, source): (&KeyUri, &Source)| KeySetReport {
            uri: uri.clone(),
            state: KeySetState::of(source),
            keys: source.set().map_or(0, |set| set.keys().len()),
            skipped: source.skipped().iter().map(ToString::to_string).collect(),
            last_success: source.last_success().map(seconds),
            last_error: source
                .last_error()
                .map(|(at, message)| FetchError { at: seconds(*at), message: message.clone() }),
            next_fetch: source.due().map(seconds),
        };
        self.0.iter().map(report).collect()
    }
}
