//! `postern node-cache`: keeps an Envoy served while the control plane is gone.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;
use postern_base::open_files;
use postern_deliver::node_cache::{self, Address, Shelf, Socket, Upstream};
use tokio::signal::unix::{SignalKind, signal};

use super::logging::Logging;

/// Relay xDS between Envoys of this machine and the control plane, and serve them what they accepted last while that is gone
#[derive(Debug, Args)]
pub(super) struct NodeCache {
    /// Where Envoys connect: a loopback address, or `unix:PATH`, which only this user can connect to
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_NODE_CACHE_LISTEN", default_value = "127.0.0.1:18002")]
    listen: Address,
    /// Where the control plane serves xDS
    #[arg(long, value_name = "HOST:PORT", env = "POSTERN_NODE_CACHE_XDS", default_value = "127.0.0.1:18000")]
    xds: String,
    /// Where what Envoys accepted is kept, sealed
    #[arg(long, value_name = "DIR", env = "POSTERN_NODE_CACHE_STATE")]
    state: PathBuf,
    /// The file with the key that it is sealed with, made with the directory's first use; default: `node-cache.key` in it
    #[arg(long, value_name = "FILE", env = "POSTERN_NODE_CACHE_STATE_KEY")]
    state_key: Option<PathBuf>,
    /// How old what is kept may be to be served, such as `24h` or `30m`; it ages while the control plane is gone
    #[arg(long, value_name = "TIME", env = "POSTERN_NODE_CACHE_MAX_AGE", default_value = "24h", value_parser = duration)]
    max_age: Duration,
    /// How many nodes are kept; those that are there go before new ones
    #[arg(long, value_name = "N", env = "POSTERN_NODE_CACHE_MAX_NODES", default_value_t = 16, value_parser = nodes)]
    max_nodes: usize,
    /// The most streams that are served at once
    #[arg(long, value_name = "N", env = "POSTERN_NODE_CACHE_MAX_STREAMS", default_value_t = node_cache::Options::default().streams, value_parser = streams)]
    max_streams: usize,
    #[command(flatten)]
    logging: Logging,
}

impl NodeCache {
    #[tokio::main]
    pub(super) async fn run(self) -> anyhow::Result<()> {
        self.logging.start()?;
        open_files::allow_most(self.max_streams);
        let upstream = Upstream::new(&self.xds).context("--xds")?;
        // Before the files are read, so that a wrong address is said at once.
        let socket = Socket::bind(&self.listen)?;
        let shelf = Shelf::open(&self.state, self.state_key.as_deref(), self.max_age, self.max_nodes)?;
        let options = node_cache::Options { streams: self.max_streams, ..node_cache::Options::default() };
        let cache = node_cache::NodeCache::new(shelf, upstream, options);
        tracing::info!(node_cache = %socket.address(), control_plane = self.xds, "listening");
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            ended = cache.serve(socket) => ended?,
            _ = tokio::signal::ctrl_c() => tracing::info!("interrupted"),
            _ = terminated.recv() => tracing::info!("terminated"),
        }
        cache.finish();
        Ok(())
    }
}

/// A time such as `90s`, `30m`, `24h` or `7d`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time such as `30m`, `24h` or `7d`");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(seconds) {
        Some(seconds @ 1..=31_536_000) => Ok(Duration::from_secs(seconds)),
        _ => Err("it must be from one second to a year".to_owned()),
    }
}

fn nodes(text: &str) -> Result<usize, String> {
    up_to(1_000, text)
}

fn streams(text: &str) -> Result<usize, String> {
    up_to(100_000, text)
}

fn up_to(most: usize, text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "h", "0s", "-1s", "24", "1w", "1.5h", "366d", "99999999999999999999d", "1ü"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
