//! What all streams of a node cache share, and the limits on them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{shelf::Shelf, upstream::Upstream};

/// Limits on what a client may cost.
#[derive(Debug, Clone)]
pub struct Options {
    /// The maximum number of streams.
    pub streams: usize,
    /// The maximum number of requests a second on one stream, over time.
    pub requests_per_second: u32,
    /// The time limit for a client to read a response.
    pub stall_timeout: Duration,
    /// The time after which a connection without a stream is closed.
    pub idle_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            streams: 128,
            requests_per_second: 200,
            stall_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// What all streams share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) shelf: Arc<Shelf>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) options: Options,
    streams: Arc<Semaphore>,
    opened: AtomicU64,
}

impl Shared {
    pub(super) fn new(shelf: Shelf, upstream: Upstream, options: Options) -> Self {
        let streams = Arc::new(Semaphore::new(options.streams));
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let opened = AtomicU64::new(u64::try_from(begin).unwrap_or_default());
        Self { shelf: Arc::new(shelf), upstream: Arc::new(upstream), options, streams, opened }
    }

    /// The permit for one more stream. `None` if there are too many.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().ok()
    }

    /// The number of a new stream, which is part of its nonces. It differs from those of earlier processes.
    pub(super) fn next_stream(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed)
    }
}
