//! The key sets of a running control plane, shared by those who fetch, compile and show them.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use postern_model::{Bundle, KeyUri};
use tokio::sync::Notify;

use super::{
    KeySets,
    source::{Fetch, Fetched},
    sources::{KeySetReport, Sources},
    stored::StoredKeySet,
};

/// [`Sources`] behind a lock, with a clock. Calls take and return values, so that nobody holds the lock.
#[derive(Debug)]
pub struct LiveSources {
    sources: Mutex<Sources>,
    /// Notified when the set of wanted key sets changes.
    wanted: Notify,
    /// A moment, and how long it was after 1970.
    started: (Instant, Duration),
}

impl Default for LiveSources {
    fn default() -> Self {
        let started = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        Self { sources: Mutex::default(), wanted: Notify::new(), started }
    }
}

impl LiveSources {
    /// Sets the wanted key sets to exactly those that these resources name.
    pub fn want_all<'a>(&self, bundles: impl IntoIterator<Item = &'a Bundle>) {
        self.sources().want_all(bundles, self.now());
        self.wanted.notify_one();
    }

    /// Takes up the key sets that an earlier process kept, so that they are known before the first fetch ends.
    pub fn restore(&self, stored: impl IntoIterator<Item = StoredKeySet>) {
        let now = self.now();
        self.sources().restore(stored, now);
    }

    /// The key sets to keep for a later process.
    pub fn stored(&self) -> Vec<StoredKeySet> {
        self.sources().stored()
    }

    /// The key sets that are known now.
    pub fn sets(&self) -> KeySets {
        self.sources().sets()
    }

    /// The status of all key sets, sorted by address.
    pub fn report(&self) -> Vec<KeySetReport> {
        self.sources().report()
    }

    /// Starts the fetches that are due. Returns them, and the time until the next is due.
    pub(super) fn start_due(&self) -> (Vec<Fetch>, Option<Duration>) {
        let now = self.now();
        let mut sources = self.sources();
        let due = sources.start_due(now);
        (due, sources.next_due(now).map(|next| next.saturating_sub(now)))
    }

    /// Records the result of a fetch. Returns whether the keys have changed.
    pub(super) fn finish(&self, uri: &KeyUri, answer: Fetched, chance: f64) -> bool {
        self.sources().finish(uri, answer, self.now(), chance)
    }

    /// Waits until the set of wanted key sets changes.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// The time since 1970. It never goes backwards, whatever happens to the clock.
    fn now(&self) -> Duration {
        self.started.1.saturating_add(self.started.0.elapsed())
    }

    /// Ignores poisoning: every statement leaves the sources consistent.
    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
