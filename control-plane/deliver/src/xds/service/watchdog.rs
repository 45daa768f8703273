//! Finds clients that do not read: streams whose last bytes have been waiting for too long.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::connection::ConnectionHandle;

/// The watched streams.
#[derive(Debug)]
pub(super) struct Watchdog {
    started: Instant,
    pulses: Mutex<HashMap<u64, Arc<Pulse>>>,
    count: AtomicU64,
}

/// The state of one stream, as the watchdog sees it.
#[derive(Debug)]
struct Pulse {
    /// Since when bytes wait to be read, in milliseconds since the start plus one; 0 if none do.
    waiting_since: AtomicU64,
    line: Option<Arc<ConnectionHandle>>,
}

/// A watched stream. Dropping it ends the watch.
#[derive(Debug)]
pub(super) struct Watched {
    number: u64,
    pulse: Arc<Pulse>,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self { started: Instant::now(), pulses: Mutex::default(), count: AtomicU64::new(0) }
    }
}

impl Watchdog {
    /// Watches a stream of a connection.
    pub(super) fn watch(&self, line: Option<Arc<ConnectionHandle>>) -> Watched {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let pulse = Arc::new(Pulse { waiting_since: AtomicU64::new(0), line });
        self.pulses().insert(number, Arc::clone(&pulse));
        Watched { number, pulse }
    }

    /// Ends the watch of a stream.
    pub(super) fn forget(&self, watched: &Watched) {
        let mut pulses = self.pulses();
        pulses.remove(&watched.number);
        // After thousands of streams have ended, their memory is freed.
        if pulses.capacity() > 4 * pulses.len().max(64) {
            pulses.shrink_to_fit();
        }
    }

    /// Records that bytes were handed to HTTP/2.
    pub(super) fn handed_out(&self, watched: &Watched) {
        watched.pulse.waiting_since.store(self.now(), Ordering::Relaxed);
    }

    /// Cuts off every client that has not read its bytes for this long.
    pub(super) fn cut_off(&self, limit: Duration) {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let now = self.now();
        let stalled = |pulse: &&Arc<Pulse>| match pulse.waiting_since.load(Ordering::Relaxed) {
            0 => false,
            since => now.saturating_sub(since) > limit,
        };
        for line in self.pulses().values().filter(stalled).filter_map(|pulse| pulse.line.as_ref()) {
            tracing::warn!("a client that does not read is cut off");
            line.cut();
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn pulses(&self) -> MutexGuard<'_, HashMap<u64, Arc<Pulse>>> {
        self.pulses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Records that all bytes were read.
    pub(super) fn taken(&self) {
        self.pulse.waiting_since.store(0, Ordering::Relaxed);
    }
}
