//! Waits by polling until a condition holds, instead of sleeping for a fixed time.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// Far longer than anything here takes: reaching it is a failure, not a measurement.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Polls until `poll` returns a value. Returns it, with how long that took.
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

/// Polls until `holds` returns true.
pub fn until_true(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<Duration> {
    until(what, || Ok(holds()?.then_some(()))).map(|((), took)| took)
}

/// Polls until `holds` returns true, for at most `limit`. Returns whether it did.
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
