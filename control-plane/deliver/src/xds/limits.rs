//! What one client may cost, in one place.

use std::time::Duration;

use clap::Args;

/// How long a stream may be open before its first request.
pub const TIME_TO_FIRST_REQUEST: Duration = Duration::from_secs(30);

/// How often it is looked for clients that do not read, and for nodes that are long gone.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How much a client may send on a connection, and on a stream of it, before we have read it. Requests are small, so
/// that this bounds memory without slowing anybody.
pub const RECEIVE_WINDOW: u32 = 65_535;

/// How many requests may come at once before the rate of `--xds-requests-per-second` counts: an Envoy that comes back
/// asks for all that it has.
pub const REQUEST_BURST: u32 = 1_000;

/// How many streams one connection may have: an Envoy has one, or one a type.
pub const STREAMS_PER_CONNECTION: u32 = 64;

/// How many names of one type a stream may subscribe to, and a request may have.
pub const MOST_NAMES: usize = 50_000;

/// How many bytes all names that a stream subscribes to may have together, and those of responses that it has not answered.
pub const MOST_NAME_BYTES: usize = 8 * 1024 * 1024;

/// Limits of the xDS server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits of xDS")]
pub struct Limits {
    /// The most streams that are served at once
    #[arg(long = "xds-max-streams", value_name = "NUMBER", default_value_t = Self::default().streams)]
    pub streams: usize,
    /// The largest request that is read, in bytes
    #[arg(long = "xds-max-message-bytes", value_name = "BYTES", default_value_t = Self::default().message_bytes)]
    pub message_bytes: usize,
    /// The most requests a second on one stream, over time
    #[arg(long = "xds-requests-per-second", value_name = "NUMBER", default_value_t = Self::default().requests_per_second)]
    pub requests_per_second: u32,
    /// How often an HTTP/2 ping asks whether a client is still there, in seconds
    #[arg(long = "xds-keepalive-interval", value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    pub keepalive_interval: Duration,
    /// How long a client may take to answer that, in seconds
    #[arg(long = "xds-keepalive-timeout", value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub keepalive_timeout: Duration,
    /// How long a client may leave a response unread before it is cut off, in seconds
    #[arg(long = "xds-stall-timeout", value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    pub stall_timeout: Duration,
    /// How long a connection may be open without a stream or a call, in seconds
    #[arg(long = "xds-idle-timeout", value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    pub idle_timeout: Duration,
    /// How long a node that went away is remembered, in seconds
    #[arg(long = "xds-keep-nodes", value_name = "SECONDS", value_parser = seconds, default_value = "600")]
    pub keep_nodes: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: 20_000,
            message_bytes: 4 * 1024 * 1024,
            requests_per_second: 200,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(30),
            keep_nodes: Duration::from_secs(600),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| format!("`{text}` is not a whole number of seconds"))?;
    if seconds == 0 { Err("it must be at least one second".to_owned()) } else { Ok(Duration::from_secs(seconds)) }
}
