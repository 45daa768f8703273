//! Lines in Envoy's log about chains that cannot run, for operators. A worker writes at most one of each cause in
//! [`INTERVAL`], so that requests cannot fill a disk; each line says how many refusals it does not show.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use postern_engine::{Decision, Run, run::Cause};

use crate::host;

/// The shortest time between two lines of one cause, in nanoseconds.
const INTERVAL: u64 = 10_000_000_000;

/// A VM is a worker's, so that these are, too.
static UNSUPPORTED: Pace = Pace::new();
static UNAVAILABLE: Pace = Pace::new();

/// When the next line may be written, and how many were left out since the last.
#[derive(Debug)]
struct Pace {
    next: AtomicU64,
    left_out: AtomicU64,
}

impl Pace {
    const fn new() -> Self {
        Self { next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// How many lines were left out before this one. `None` if this one is left out, too.
    fn at(&self, now: u64) -> Option<u64> {
        let next = self.next.load(Relaxed);
        // A clock that was set back keeps no line waiting for longer than the interval.
        if now < next && next.saturating_sub(now) <= INTERVAL {
            self.left_out.fetch_add(1, Relaxed);
            return None;
        }
        self.next.store(now.saturating_add(INTERVAL), Relaxed);
        Some(self.left_out.swap(0, Relaxed))
    }
}

/// Writes a line about a request that was refused because its chain cannot run. Does nothing for any other decision.
/// A line that cannot be written is lost.
#[inline]
pub(crate) fn refused(run: &Run, decision: &Decision) {
    if let Some(cause) = Cause::of(decision) {
        write(run, decision, cause);
    }
}

#[cold]
#[inline(never)]
fn write(run: &Run, decision: &Decision, cause: Cause) {
    let (pace, level) = match cause {
        Cause::PolicyNotSupported => (&UNSUPPORTED, host::LOG_ERROR),
        Cause::AgentUnavailable => (&UNAVAILABLE, host::LOG_WARNING),
    };
    let Ok(now) = host::now() else { return };
    if let Some(line) = pace.at(now).and_then(|left_out| run.notice(decision, left_out)) {
        let _ = host::log_line(level, &line);
    }
}

/// Writes a line about a route without a chain, when its first request comes. The name must need no quoting.
#[cold]
#[inline(never)]
pub(crate) fn not_found(route: &str) {
    let line = format!(r#"{{"message":"route not found","route":"{route}","action":"CONTINUE"}}"#);
    let _ = host::log_line(host::LOG_INFO, &line);
}
