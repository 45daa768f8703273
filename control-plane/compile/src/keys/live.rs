//! The key sets of a running control plane, which whoever fetches, compiles and shows them share.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use postern_model::{Bundle, KeyUri};
use tokio::sync::Notify;

use super::{
    KeySets,
    source::{Fetch, Fetched},
    sources::{KeySetReport, Sources},
};

/// [`Sources`] that many share, with a clock. Every call takes and returns values: nobody can hold them.
#[derive(Debug)]
pub struct LiveSources {
    sources: Mutex<Sources>,
    /// Rings when other key sets are wanted.
    wanted: Notify,
    started: (Instant, SystemTime),
}

impl Default for LiveSources {
    fn default() -> Self {
        let started = (Instant::now(), SystemTime::now());
        Self { sources: Mutex::default(), wanted: Notify::new(), started }
    }
}

impl LiveSources {
    /// Wants exactly the key sets that these resources name, from now on.
    pub fn want_all<'a>(&self, bundles: impl IntoIterator<Item = &'a Bundle>) {
        self.sources().want_all(bundles, self.now());
        self.wanted.notify_one();
    }

    /// The key sets as far as they are known.
    pub fn sets(&self) -> KeySets {
        self.sources().sets()
    }

    /// What is shown of them, in the order of their places.
    pub fn report(&self) -> Vec<KeySetReport> {
        self.sources().report(self.started.1)
    }

    /// Starts what is due, and says in how long something is due next.
    pub(super) fn start_due(&self) -> (Vec<Fetch>, Option<Duration>) {
        let now = self.now();
        let mut sources = self.sources();
        let due = sources.start_due(now);
        (due, sources.next_due(now).map(|next| next.saturating_sub(now)))
    }

    /// Takes what came of a fetch. Returns whether the keys have changed.
    pub(super) fn finish(&self, uri: &KeyUri, answer: Fetched, chance: f64) -> bool {
        self.sources().finish(uri, answer, self.now(), chance)
    }

    /// Waits until other key sets are wanted.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    fn now(&self) -> Duration {
        self.started.0.elapsed()
    }

    /// Each statement leaves them whole, so that a panic elsewhere does not spoil them.
    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
