//! The server under load: the real program, and what Linux says of its memory and time.

use std::{ffi::OsStr, fs, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::super::cpu;
use crate::ControlPlane;

/// The server is at rest when it spends less CPU time than this in a [`WINDOW`].
const RESTING: Duration = Duration::from_millis(4);
/// The length of the window in which CPU time is measured.
const WINDOW: Duration = Duration::from_millis(200);
/// How long it may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `postern serve`. Dropping it ends it.
pub(super) struct Server {
    process: ControlPlane,
}

impl Server {
    /// Serves a directory. The filter's code is on the nodes, as in a fleet: otherwise a megabyte of code for each
    /// stream would dominate the measurement.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let on_nodes = ["--filter-on-nodes", "/etc/postern/postern_filter.wasm"].map(OsStr::new);
        let process = ControlPlane::start_with(directory, &on_nodes)?;
        Ok(Self { process })
    }

    /// Where it serves xDS.
    pub(super) fn address(&self) -> SocketAddr {
        self.process.xds()
    }

    /// The memory that it has in use, in KiB.
    pub(super) fn memory(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.process.id());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))?;
        resident(&text).with_context(|| format!("`{path}` has no `VmRSS`"))
    }

    /// The CPU time that it has spent.
    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu::spent(self.process.id())
    }

    /// Waits until everything that was going on has ended.
    pub(super) async fn rest(&self) -> Result<()> {
        let start = Instant::now();
        let mut before = self.cpu()?;
        while start.elapsed() < PATIENCE {
            sleep(WINDOW).await;
            let now = self.cpu()?;
            if now.saturating_sub(before) < RESTING {
                return Ok(());
            }
            before = now;
        }
        bail!("the server is still busy after {PATIENCE:?}, with no change under way")
    }
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_resident_memory() {
        assert_eq!(resident("VmHWM:\t  9 kB\nVmRSS:\t   10320 kB\n"), Some(10320));
        assert_eq!(resident("VmHWM:\t  9 kB\n"), None);
    }
}
