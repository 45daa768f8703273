//! The limits on what one client may cost, in one place.

use std::time::Duration;

use clap::Args;

/// The time limit for the first request of a stream.
pub const TIME_TO_FIRST_REQUEST: Duration = Duration::from_secs(30);

/// The interval of looking for clients that do not read, and for nodes that are long gone.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The size of the receive window, for a connection and for a stream. Requests are small, so that this bounds memory
/// without slowing clients.
pub const RECEIVE_WINDOW: u32 = 65_535;

/// The number of requests that may come in a burst before `--xds-requests-per-second` limits them: an Envoy that
/// reconnects asks for all that it has.
pub const REQUEST_BURST: u32 = 1_000;

/// The maximum number of streams on a connection: an Envoy has one, or one for each type.
pub const STREAMS_PER_CONNECTION: u32 = 64;

/// The maximum number of names of one type in a request, and in a stream's subscriptions.
pub const MOST_NAMES: usize = 50_000;

/// The maximum total length in bytes of a stream's subscribed names, and of the names in its unanswered responses.
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
