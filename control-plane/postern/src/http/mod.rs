//! The HTTP face: the admin API and polling (`rest`), who may call them ([`names`], `guard`), and the limits of
//! connections (`connections`, `server`). What the operations do is in [`crate::admin`].

mod body;
mod connections;
mod guard;
mod names;
mod server;
mod stall;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, middleware};
use clap::Args;
use postern_base::open_files;
use postern_deliver::rest;
use tokio::net::TcpListener;

pub use self::names::{Authority, Names};
use self::{connections::Connections, server::Server};
use crate::{admin, control_plane::ControlPlane};

/// What `postern serve` is told about its HTTP face.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP")]
#[group(id = "http-options")]
pub struct Options {
    /// A name that the admin API may be called by besides loopback names and addresses, such as `postern.internal` (any
    /// port) or `localhost:8080`; more than once for more names
    #[arg(long = "http-host", value_name = "NAME[:PORT]")]
    pub hosts: Vec<Authority>,
    /// A name that polling Envoys have for the cluster of this control plane, besides `postern`; more than once for more
    /// names
    #[arg(long = "poll-cluster", value_name = "NAME")]
    pub clusters: Vec<String>,
    /// The most HTTP connections that are open at once; one address gets at most three quarters of them
    #[arg(long = "http-max-connections", value_name = "NUMBER", default_value_t = Self::default().connections)]
    pub connections: usize,
    /// How long a client may take for the head of a request, between two parts of its body, and to take what it is sent,
    /// in seconds; a whole body may take six times that
    #[arg(long = "http-timeout", value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { hosts: Vec::new(), clusters: Vec::new(), connections: 512, timeout: Duration::from_secs(10) }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected a number of seconds from 1 to 3600".to_owned()),
    }
}

/// The router of the HTTP face, for callers that use these names.
pub fn router(plane: Arc<ControlPlane>, names: Names) -> Router {
    let names = Arc::new(names);
    let polling = rest::router(plane.publications().clone());
    let admin = admin::router(plane).layer(middleware::from_fn_with_state(Arc::clone(&names), guard::admin));
    let polling = polling.layer(middleware::from_fn_with_state(names, guard::polling));
    admin.merge(polling)
}

/// Serves the HTTP face on a socket. Never returns.
pub(crate) async fn serve(listener: TcpListener, plane: Arc<ControlPlane>, options: Options) -> Infallible {
    // A bound socket has an address; without one, only calls without a port would be accepted.
    let port = listener.local_addr().map_or(80, |address| address.port());
    let names = Names::new(port, options.hosts, options.clusters);
    // File descriptors must be left for xDS and for the store.
    let connections = Connections::new(open_files::share(options.connections));
    Server { router: router(plane, names), connections: Arc::new(connections), timeout: options.timeout }
        .run(listener)
        .await
}
