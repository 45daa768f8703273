//! What the streams have got so far. Streams report it, and the measurement waits for it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use tokio::{sync::Notify, time::timeout};

/// Far longer than anything here takes on a machine that is not overloaded.
const PATIENCE: Duration = Duration::from_secs(120);

/// Shared by all streams of a case.
#[derive(Debug, Default)]
pub(super) struct StreamsProgress {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// How many streams have all types.
    synced: usize,
    /// When the streams got each change, by its number.
    arrivals: Vec<Vec<Instant>>,
    /// How many streams ended, and why the first did.
    ended: usize,
    reason: Option<String>,
}

impl StreamsProgress {
    /// Reports that a stream has all types.
    pub(super) fn synced(&self) {
        self.state().synced += 1;
        self.told.notify_waiters();
    }

    /// Reports that a stream has got a change.
    pub(super) fn arrived(&self, change: usize, at: Instant) {
        let mut state = self.state();
        if state.arrivals.len() <= change {
            state.arrivals.resize_with(change + 1, Vec::new);
        }
        if let Some(arrivals) = state.arrivals.get_mut(change) {
            arrivals.push(at);
        }
        drop(state);
        self.told.notify_waiters();
    }

    /// Reports that a stream ended, which is always an error.
    pub(super) fn ended(&self, reason: String) {
        let mut state = self.state();
        state.ended += 1;
        state.reason.get_or_insert(reason);
        drop(state);
        self.told.notify_waiters();
    }

    /// Waits until this number of streams have all types.
    pub(super) async fn all_synced(&self, streams: usize) -> Result<()> {
        self.reaches("everything", streams, |state| state.synced).await
    }

    /// Waits until this number of streams have a change. Returns when each got it.
    pub(super) async fn all_have(&self, change: usize, streams: usize) -> Result<Vec<Instant>> {
        let count = |state: &State| state.arrivals.get(change).map_or(0, Vec::len);
        self.reaches(&format!("change {change}"), streams, count).await?;
        Ok(self.state().arrivals.get(change).cloned().unwrap_or_default())
    }

    async fn reaches(&self, what: &str, streams: usize, count: impl Fn(&State) -> usize) -> Result<()> {
        let reached = async {
            loop {
                // Asked for before looking, so that what happens in between is not missed.
                let told = self.told.notified();
                {
                    let state = self.state();
                    if let Some(reason) = &state.reason {
                        bail!("{} of {streams} streams ended, the first because {reason}", state.ended);
                    }
                    if count(&state) >= streams {
                        return Ok(());
                    }
                }
                told.await;
            }
        };
        match timeout(PATIENCE, reached).await {
            Ok(result) => result,
            Err(_) => {
                bail!("after {PATIENCE:?}, only {} of {streams} streams have {what}", count(&self.state()))
            }
        }
    }

    /// Locks the state, also if it is poisoned: each statement leaves it consistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
