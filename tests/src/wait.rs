//! Waiting for what must come: poll until it does, never sleep and hope.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// Far beyond what anything here takes: reaching it is a failure, not a measurement.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Polls until `poll` has a value, and says how long that took.
pub fn until<T>(what: &str, mut poll: impl FnMut() -> Result<Option<T>>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let mut latest = None;
    while start.elapsed() < LIMIT {
        match poll() {
            Ok(Some(value)) => return Ok((value, start.elapsed())),
            Ok(None) => {}
            Err(error) => latest = Some(error),
        }
        thread::sleep(Duration::from_millis(2));
    }
    match latest {
        Some(error) => Err(error.context(format!("waited {LIMIT:?} in vain for {what}"))),
        None => bail!("waited {LIMIT:?} in vain for {what}"),
    }
}

/// Polls until `holds` says so.
pub fn until_true(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<Duration> {
    until(what, || Ok(holds()?.then_some(()))).map(|((), took)| took)
}

/// Polls until `holds` says so, for no longer than `limit`: for what must come soon or is wrong. Returns whether it came.
pub fn until_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
