//! The limit of open files of this process. Each stream and connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of files to keep for other uses than streams.
const OTHERS: u64 = 200;
/// The number of streams above which the limit no longer causes a warning.
const LARGE_FLEET: u64 = 10_000;

/// Raises the soft limit of open files to the hard limit. Logs a warning if that is too few for `streams` streams, or
/// for a large fleet if `streams` is more. A limit that cannot be raised stays, and is no error.
pub fn allow_most(streams: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays as it was");
            limit.current
        }
    };
    // `None` is no limit.
    let Some(open_files) = raised else { return };
    tracing::debug!(open_files, before = limit.current, "so many files may be open");
    let enough = u64::try_from(streams).unwrap_or(u64::MAX).min(LARGE_FLEET);
    if let Some(streams) = most_streams(open_files, enough) {
        let needed = enough.saturating_add(OTHERS);
        tracing::warn!(open_files, streams, "few files may be open: {enough} streams need {needed} (`ulimit -n`)");
    }
}

/// The smaller of `most` connections and a quarter of the open files, so that no server uses up the files of another.
pub fn share(most: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return most };
    most.min(usize::try_from(limit / 4).unwrap_or(usize::MAX))
}

/// The number of streams that the limit has room for. `None` if there is room for enough.
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
