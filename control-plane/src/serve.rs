//! `postern serve`: ties the modules together and keeps them running.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::AggregatedDiscoveryServiceServer;
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::wrappers::TcpListenerStream;

use crate::{
    fleet::Fleet,
    http,
    pipeline::{CompileError, compile},
    snapshot::{FilterCode, Snapshot},
    source::{self, Watch},
    xds::service::Ads,
};

/// What the parts of a running control plane share.
#[derive(Debug)]
pub struct Hub {
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    fleet: Mutex<Fleet>,
    refused_change: Mutex<Vec<String>>,
    code: FilterCode,
}

impl Hub {
    /// A hub that has nothing to serve yet.
    pub fn new(code: FilterCode) -> Self {
        Self { snapshots: watch::Sender::new(None), fleet: Mutex::default(), refused_change: Mutex::default(), code }
    }

    /// Puts a snapshot in force: every stream is told at once.
    pub fn publish(&self, snapshot: Snapshot) {
        *lock(&self.refused_change) = Vec::new();
        self.snapshots.send_replace(Some(Arc::new(snapshot)));
    }

    /// Records that a change was refused; what was in force stays.
    pub fn refuse(&self, error: &CompileError) {
        *lock(&self.refused_change) = error.to_string().lines().map(str::to_owned).collect();
    }

    /// The snapshot in force, now and later.
    pub fn snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.subscribe()
    }

    /// The nodes. The lock is held for single statements only, never across an await.
    pub fn fleet(&self) -> MutexGuard<'_, Fleet> {
        lock(&self.fleet)
    }

    /// Why the latest change was refused, a line an error; empty if it was not.
    pub fn refused_change(&self) -> Vec<String> {
        lock(&self.refused_change).clone()
    }

    /// The filter that nodes run.
    pub fn code(&self) -> &FilterCode {
        &self.code
    }

    fn revision_in_force(&self) -> Option<String> {
        self.snapshots.borrow().as_ref().map(|snapshot| snapshot.revision().to_string())
    }
}

/// Each statement leaves the value whole, so that a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why the control plane ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address could not be used.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// Without TLS and a token, only this machine may talk to us.
    #[error("{0} is not a loopback address: TLS and tokens are not there yet, so only loopback is served")]
    NotLoopback(SocketAddr),
    /// The xDS server failed.
    #[error("the xDS server failed: {0}")]
    Xds(tonic::transport::Error),
    /// The HTTP server failed.
    #[error("the HTTP server failed: {0}")]
    Http(io::Error),
    /// The first revision could not be made.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The directory cannot be watched any more.
    #[error("the configuration directory is no longer watched")]
    WatchEnded,
}

/// The sockets of a control plane.
#[derive(Debug)]
pub struct Sockets {
    xds: TcpListener,
    http: TcpListener,
}

impl Sockets {
    /// Listens on both addresses; port 0 picks a free one.
    pub async fn bind(xds: SocketAddr, http: SocketAddr) -> Result<Self, ServeError> {
        Ok(Self { xds: bind(xds).await?, http: bind(http).await? })
    }

    /// Where xDS is served.
    pub fn xds_address(&self) -> io::Result<SocketAddr> {
        self.xds.local_addr()
    }

    /// Where HTTP is served.
    pub fn http_address(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    TcpListener::bind(address).await.map_err(|error| ServeError::Listen { address, error })
}

/// Serves what the hub publishes, until one of the servers fails.
pub async fn serve(hub: Arc<Hub>, sockets: Sockets) -> Result<(), ServeError> {
    let ads = AggregatedDiscoveryServiceServer::new(Ads::new(Arc::clone(&hub)));
    let xds =
        tonic::transport::Server::builder().add_service(ads).serve_with_incoming(TcpListenerStream::new(sockets.xds));
    let http = axum::serve(sockets.http, http::router(hub));
    tokio::select! {
        ended = xds => ended.map_err(ServeError::Xds),
        ended = http => ended.map_err(ServeError::Http),
    }
}

/// Publishes what a directory holds, now and after every change. A change that is wrong is refused whole.
pub async fn follow(hub: Arc<Hub>, directory: &Path) -> Result<(), ServeError> {
    let mut watch = Watch::start(directory).map_err(CompileError::from)?;
    publish(&hub, directory)?;
    while watch.changed().await {
        if let Err(error) = publish(&hub, directory) {
            for line in error.to_string().lines() {
                tracing::error!("change refused: {line}");
            }
            hub.refuse(&error);
        }
    }
    Err(ServeError::WatchEnded)
}

fn publish(hub: &Hub, directory: &Path) -> Result<(), CompileError> {
    let snapshot = compile(&source::read(directory)?, hub.code())?;
    let revision = snapshot.revision().clone();
    if hub.revision_in_force().as_deref() == Some(revision.as_str()) {
        *lock(&hub.refused_change) = Vec::new();
        return Ok(());
    }
    hub.publish(snapshot);
    tracing::info!(revision = revision.short(), "in force");
    Ok(())
}
