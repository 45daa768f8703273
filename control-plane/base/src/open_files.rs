//! How many files this process may have open: each stream is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is open besides streams.
const OTHERS: u64 = 200;
/// A fleet that nobody should have to raise limits for; below it, somebody is told.
const LARGE_FLEET: u64 = 10_000;

/// Allows as many as the system lets us: the limit that shells and services start with is meant for programs of another
/// kind. Warns if that is too few for so many streams, or for a large fleet if there may be even more.
pub fn allow_most(streams: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays as it was");
            limit.current
        }
    };
    // None is no limit.
    let Some(open_files) = raised else { return };
    tracing::debug!(open_files, before = limit.current, "so many files may be open");
    let enough = u64::try_from(streams).unwrap_or(u64::MAX).min(LARGE_FLEET);
    if let Some(streams) = most_streams(open_files, enough) {
        let needed = enough.saturating_add(OTHERS);
        tracing::warn!(open_files, streams, "few files may be open: {enough} streams need {needed} (`ulimit -n`)");
    }
}

/// Up to so many connections, but no more than a quarter of the files that may be open: no face may use up what others need.
pub fn share(most: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return most };
    most.min(usize::try_from(limit / 4).unwrap_or(usize::MAX))
}

/// How many streams a limit has room for, if that is fewer than there should be.
fn most_streams(open_files: u64, enough: u64) -> Option<u64> {
    let streams = open_files.saturating_sub(OTHERS);
    (streams < enough).then_some(streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_below_what_is_enough() {
        assert_eq!(most_streams(1024, 10_000), Some(824));
        assert_eq!(most_streams(100, 10_000), Some(0));
        assert_eq!(most_streams(10_200, 10_000), None);
    }

    #[test]
    fn raises_the_limit_of_this_process() {
        allow_most(1);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
