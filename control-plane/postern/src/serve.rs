//! `postern serve`: runs the servers and follows a directory.

use std::{future, io, net::SocketAddr, path::Path, sync::Arc};

use postern_base::accept;
use postern_compile::{
    keys::{self, client::Client},
    pipeline::CompileError,
};
use postern_deliver::{
    discovery::{self, Discovery},
    xds::{Limits, service::XdsServer},
};
use postern_model::{
    Diagnostic, File,
    directory::{self, SourceError},
};
use postern_release::{
    owner::Commands,
    releases::{ApplyError, Proposal},
};
use tokio::{net::TcpListener, task};

use crate::{control_plane::ControlPlane, http, reload::Reloads, source::Watch};

/// A directory to follow.
#[derive(Debug, Clone, Copy)]
pub struct Followed<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Whether a change in it may remove authentication from routes that have it now, or remove all resources.
    pub allow_unguarded: bool,
    /// Whether a start without a stored revision fails if the directory is not valid. By default, what is valid is
    /// served, and what is not answers 500.
    pub strict: bool,
}

/// Why the control plane ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket could not be opened.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
    /// The address is not a loopback address, which needs TLS and a token.
    #[error("{0} is not a loopback address: TLS and tokens are not there yet, so only loopback is served")]
    NotLoopback(SocketAddr),
    /// The xDS server failed.
    #[error("the xDS server failed: {0}")]
    Xds(tonic::transport::Error),
    /// A server's task panicked.
    #[error("the servers failed: {0}")]
    Ended(tokio::task::JoinError),
    /// The first revision could not be put in force.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The directory can no longer be watched.
    #[error("the configuration directory is no longer watched")]
    WatchEnded,
}

/// The open sockets of a control plane.
#[derive(Debug)]
pub struct Sockets {
    xds: TcpListener,
    http: TcpListener,
}

impl Sockets {
    /// Opens both sockets; port 0 picks a free one.
    pub async fn bind(xds: SocketAddr, http: SocketAddr) -> Result<Self, ServeError> {
        Ok(Self { xds: bind(xds)?, http: bind(http)? })
    }

    /// The address of the xDS server.
    pub fn xds_address(&self) -> io::Result<SocketAddr> {
        self.xds.local_addr()
    }

    /// The address of the HTTP server.
    pub fn http_address(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    accept::listen(address).map_err(|error| ServeError::Listen { address, error })
}

/// Runs the servers until one of them fails.
pub async fn serve(plane: Arc<ControlPlane>, sockets: Sockets) -> Result<(), ServeError> {
    serve_within(plane, sockets, Limits::default()).await
}

/// Like [`serve`], with explicit [`Limits`].
pub async fn serve_within(plane: Arc<ControlPlane>, sockets: Sockets, limits: Limits) -> Result<(), ServeError> {
    serve_with(plane, sockets, limits, http::Options::default(), discovery::Options::default()).await
}

/// Like [`serve`], with explicit [`Limits`] and options of the HTTP face and of policy discovery.
pub async fn serve_with(
    plane: Arc<ControlPlane>,
    sockets: Sockets,
    limits: Limits,
    web: http::Options,
    clients: discovery::Options,
) -> Result<(), ServeError> {
    let (fleet, traffic) = (Arc::clone(plane.fleet()), Arc::clone(plane.traffic()));
    let xds = XdsServer::new(plane.publications().clone(), fleet, traffic, limits);
    let discovery = Discovery::new(Arc::clone(plane.clients()), clients);
    let router = xds.builder().add_routes(xds.routes()).add_service(discovery.clone().into_server());
    tokio::select! {
        ended = router.serve_with_incoming(xds.incoming(sockets.xds)) => ended.map_err(ServeError::Xds),
        () = xds.sweep() => Ok(()),
        never = discovery.flush_inactive() => match never {},
        never = http::serve(sockets.http, plane, web) => match never {},
    }
}

/// Restores what is stored, then applies a directory and the published keys, now and after every change, and follows
/// rollouts. The directory is read again on each of `reloads`, too. An invalid change is refused whole. Without a
/// directory, all changes come by the admin API.
pub async fn follow(
    plane: Arc<ControlPlane>,
    directory: Option<Followed<'_>>,
    reloads: Reloads,
) -> Result<(), ServeError> {
    let commands = plane.commands();
    tokio::select! {
        ended = follow_directory(commands, directory, reloads) => ended,
        () = keys::follow(Arc::clone(plane.keys()), Client::default(), || commands.renew_keys()) => Ok(()),
        () = plane.follow_rollouts() => Err(ApplyError::Ended.into()),
    }
}

async fn follow_directory(
    commands: &Commands,
    directory: Option<Followed<'_>>,
    mut reloads: Reloads,
) -> Result<(), ServeError> {
    let Some(directory) = directory else {
        commands.restore().await?;
        return future::pending().await;
    };
    let mut watch = watch(directory.path).await.map_err(|error| ApplyError::from(CompileError::from(error)))?;
    let restored = commands.restore().await?;
    match publish(commands, &mut watch, directory).await {
        Ok(()) => {}
        // What is stored is served, even if the directory is invalid now.
        Err(error) if restored => refuse(commands, &error).await?,
        Err(error) if directory.strict || !error.is_invalid() => return Err(error.into()),
        Err(_) => salvage(commands, directory).await?,
    }
    loop {
        tokio::select! {
            is_watched = watch.changed() => if !is_watched { return Err(ServeError::WatchEnded) },
            // The path may lead to another directory now.
            () = reloads.next() => match self::watch(directory.path).await {
                Ok(started) => watch = started,
                Err(error) => {
                    refuse(commands, &ApplyError::from(CompileError::from(error))).await?;
                    continue;
                }
            },
        }
        if let Err(error) = publish(commands, &mut watch, directory).await {
            refuse(commands, &error).await?;
        }
    }
}

/// Watches a directory, on a blocking thread: each of thousands of folders is watched.
async fn watch(directory: &Path) -> Result<Watch, SourceError> {
    let path = directory.to_owned();
    let failed = |error| SourceError::Read { path: directory.to_owned(), error: io::Error::other(error) };
    task::spawn_blocking(move || Watch::start(&path)).await.map_err(failed)?
}

async fn refuse(commands: &Commands, error: &ApplyError) -> Result<(), ApplyError> {
    for line in error.to_string().lines() {
        tracing::error!("change refused: {line}");
    }
    commands.refuse(error).await
}

async fn publish(commands: &Commands, watch: &mut Watch, followed: Followed<'_>) -> Result<(), ApplyError> {
    let files = watch.read(followed.path).await.map_err(CompileError::from)?;
    commands.follow(proposal(files, followed)).await
}

/// Serves what is valid in a directory, and refuses the rest.
async fn salvage(commands: &Commands, followed: Followed<'_>) -> Result<(), ApplyError> {
    let path = followed.path.to_owned();
    let read = task::spawn_blocking(move || directory::read_what_can_be(&path)).await;
    let (files, unread) = match read {
        Ok(Ok((files, errors))) => (files, errors.iter().map(|error| unread(error, followed.path)).collect()),
        Ok(Err(error)) => (Vec::new(), vec![unread(&error, followed.path)]),
        Err(_) => return Err(ApplyError::Ended),
    };
    commands.salvage(proposal(files, followed), unread).await
}

/// What could not be read, as an error of the directory.
fn unread(error: &SourceError, directory: &Path) -> Diagnostic {
    let (file, message) = (directory.display().to_string(), error.to_string());
    Diagnostic { file, line: 1, column: 1, message, ..Diagnostic::default() }
}

fn proposal(files: Vec<File>, Followed { path, allow_unguarded, .. }: Followed<'_>) -> Proposal {
    let (author, message) = ("directory".to_owned(), format!("as in {}", path.display()));
    // A restart does not retry what nodes have refused.
    Proposal { files, author, message, allow_unguarded, ..Proposal::default() }
}
