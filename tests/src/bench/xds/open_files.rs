//! How many files a process may have open: a stream is one here and one in the server, which inherits the limit.

use anyhow::{Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many files a process has open besides its streams.
const OTHERS: u64 = 200;

/// Raises the limit so that this number of streams can be open. An error says why it cannot be raised.
pub(super) fn allow(streams: u32) -> Result<()> {
    let needed = u64::from(streams) + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    // Past the maximum, only a privileged process may go.
    let maximum = limit.maximum.map(|maximum| maximum.max(needed));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }) {
        let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
        bail!(
            "{streams} streams need {needed} open files, and the limit is {} (at most {}): {error}; raise it with \
             `ulimit -n {needed}` in a shell that may, or ask for fewer with `--streams`",
            shown(limit.current),
            shown(limit.maximum),
        );
    }
    Ok(())
}
