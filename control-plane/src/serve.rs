//! `postern serve`: ties the modules together and keeps them running.

use std::{
    future, io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
    task,
};

use crate::{
    accept, admin, bounded,
    catalogue::{Catalogue, Catalogues},
    digest::Digest,
    discovery::{self, Clients, Discovery},
    fleet::Fleet,
    http,
    journal::{Happening, Journal},
    keys::{self, KeySetReport, Sources, client::Client},
    lint::Finding,
    metrics::Metrics,
    model::Reader,
    pipeline::CompileError,
    publication::Publication,
    releases::{Applied, ApplyError, KEPT, Proposal, Releases, RolloutReport, digest_of},
    review::Waiting,
    rollout::Strategy,
    snapshot::{FilterCode, Snapshot},
    source::Watch,
    store::{Memory, Parent, Store, StoreError},
    xds::{Limits, service::XdsServer},
};

/// How many errors of a refused change are told to those who follow events.
const MOST_REASONS: usize = 50;

/// How many warnings about a directory are logged; the status has the others.
const MOST_LOGGED: usize = 20;

/// What the parts of a running control plane share.
#[derive(Debug)]
pub struct Hub {
    pub(crate) publications: watch::Sender<Option<Arc<Publication>>>,
    fleet: Mutex<Fleet>,
    clients: Clients,
    pub(crate) refused_change: Mutex<Vec<String>>,
    pub(crate) warned: Mutex<Arc<Warned>>,
    /// The revisions in force. Whoever puts something in force that is made of them holds the lock.
    pub(crate) releases: Mutex<Releases>,
    pub(crate) rollout_report: Mutex<Option<RolloutReport>>,
    /// Rings when a rollout may have to be looked at.
    pub(crate) rollout: Notify,
    key_sources: Mutex<Sources>,
    pub(crate) wanted_keys: Notify,
    started: (Instant, SystemTime),
    pub(crate) code: FilterCode,
    pub(crate) reader: Reader,
    /// The same as that of the releases, for those who do not want to wait for a proposal that is being taken in.
    store: Arc<dyn Store>,
    catalogues: Catalogues,
    journal: Arc<Journal>,
    metrics: Metrics,
    followers: Arc<admin::Places>,
}

/// What is worth a warning about a revision.
#[derive(Debug, Default)]
pub(crate) struct Warned {
    pub(crate) revision: Option<u64>,
    pub(crate) findings: Arc<[Finding]>,
    /// What depends on the nodes that are there.
    pub(crate) waiting: Waiting,
}

/// A directory that is followed.
#[derive(Debug, Clone, Copy)]
pub struct Followed<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// Whether a change in it may leave routes without authentication that have it now, or remove everything.
    pub allow_unguarded: bool,
}

impl Hub {
    /// A hub that has nothing to serve yet, and keeps its revisions in memory.
    pub fn new(code: FilterCode) -> Self {
        Self::with_releases(code, Releases::new(Arc::new(Memory::default()), Strategy::AllAtOnce, KEPT))
    }

    /// The same for revisions that are kept elsewhere, and spread in another way.
    pub fn with_releases(code: FilterCode, releases: Releases) -> Self {
        let journal = Arc::<Journal>::default();
        Self {
            publications: watch::Sender::new(None),
            fleet: Mutex::new(Fleet::noted_in(Arc::clone(&journal))),
            clients: Clients::default(),
            refused_change: Mutex::default(),
            warned: Mutex::default(),
            store: Arc::clone(releases.store()),
            releases: Mutex::new(releases),
            rollout_report: Mutex::default(),
            rollout: Notify::new(),
            key_sources: Mutex::default(),
            wanted_keys: Notify::new(),
            started: (Instant::now(), SystemTime::now()),
            code,
            reader: Reader::default(),
            catalogues: Catalogues::default(),
            journal,
            metrics: Metrics::default(),
            followers: Arc::default(),
        }
    }

    /// Waits until other key sets are wanted.
    pub(crate) async fn wanted_keys_changed(&self) {
        self.wanted_keys.notified().await;
    }

    /// The published key sets that are wanted. The lock is held for single statements only.
    pub fn key_sources(&self) -> MutexGuard<'_, Sources> {
        lock(&self.key_sources)
    }

    /// What is shown of them.
    pub fn key_set_reports(&self) -> Vec<KeySetReport> {
        self.key_sources().report(self.started.1)
    }

    /// How long ago the hub was made.
    pub fn uptime(&self) -> Duration {
        self.started.0.elapsed()
    }

    /// Puts a snapshot in force: every stream is told at once.
    pub fn publish(&self, snapshot: Snapshot) {
        *lock(&self.refused_change) = Vec::new();
        self.publications.send_replace(Some(Arc::new(Publication::uniform(snapshot))));
    }

    /// Records that a change was refused; what was in force stays.
    pub fn refuse(&self, error: &impl ToString) {
        let reasons: Vec<_> = error.to_string().lines().map(|line| bounded::message(line.to_owned())).collect();
        let mut told: Vec<_> = reasons.iter().take(MOST_REASONS).cloned().collect();
        if reasons.len() > MOST_REASONS {
            told.push(format!("and {} more", reasons.len() - MOST_REASONS));
        }
        self.journal.note(Happening::ChangeRefused { reasons: told }, SystemTime::now());
        *lock(&self.refused_change) = reasons;
    }

    /// What is in force, now and later.
    pub fn publications(&self) -> watch::Receiver<Option<Arc<Publication>>> {
        self.publications.subscribe()
    }

    /// The nodes. The lock is held for single statements only, never across an await.
    pub fn fleet(&self) -> MutexGuard<'_, Fleet> {
        lock(&self.fleet)
    }

    /// The clients of policy discovery.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Waits until every connected node runs a revision in all that it subscribed to. A node that refuses it, or stays
    /// silent, holds this up: set a time limit, and ask [`Fleet::progress`] for the reason.
    pub async fn all_acked(&self, revision: &Digest) {
        let mut changes = self.fleet().changes();
        while !self.fleet().progress(revision).is_complete() {
            // The sender is part of the hub, so that this ends only with it.
            if changes.changed().await.is_err() {
                return;
            }
            // A change reaches thousands of nodes at once: look at them together.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Why the latest change was refused, a line an error; empty if it was not.
    pub fn refused_change(&self) -> Vec<String> {
        lock(&self.refused_change).clone()
    }

    /// What has happened.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// A place for each that may follow what happens.
    pub(crate) fn followers(&self) -> &Arc<admin::Places> {
        &self.followers
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where revisions are kept.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The resources of a revision as they were written; `None` if it is not kept.
    pub fn catalogue(&self, number: u64) -> Result<Option<Arc<Catalogue>>, StoreError> {
        self.catalogues.get(&*self.store, number)
    }

    /// The filter that nodes run.
    pub fn code(&self) -> &FilterCode {
        &self.code
    }
}

/// Each statement leaves the value whole, so that a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
    /// The servers ended without a reason.
    #[error("the servers failed: {0}")]
    Ended(tokio::task::JoinError),
    /// The first revision could not be made.
    #[error(transparent)]
    Apply(#[from] ApplyError),
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
        Ok(Self { xds: bind(xds)?, http: bind(http)? })
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

fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    accept::listen(address).map_err(|error| ServeError::Listen { address, error })
}

/// Serves what the hub publishes, until one of the servers fails.
pub async fn serve(hub: Arc<Hub>, sockets: Sockets) -> Result<(), ServeError> {
    serve_within(hub, sockets, Limits::default()).await
}

/// Like [`serve`], with explicit [`Limits`].
pub async fn serve_within(hub: Arc<Hub>, sockets: Sockets, limits: Limits) -> Result<(), ServeError> {
    serve_with(hub, sockets, limits, http::Options::default(), discovery::Options::default()).await
}

/// Like [`serve`], with explicit [`Limits`] and options of the HTTP face and of policy discovery.
pub async fn serve_with(
    hub: Arc<Hub>,
    sockets: Sockets,
    limits: Limits,
    web: http::Options,
    clients: discovery::Options,
) -> Result<(), ServeError> {
    let xds = XdsServer::new(Arc::clone(&hub), limits);
    let discovery = Discovery::new(Arc::clone(&hub), clients);
    let router = xds.builder().add_routes(xds.routes()).add_service(discovery.clone().into_server());
    tokio::select! {
        ended = router.serve_with_incoming(xds.incoming(sockets.xds)) => ended.map_err(ServeError::Xds),
        () = xds.sweep() => Ok(()),
        never = discovery.flush_inactive() => match never {},
        never = http::serve(sockets.http, hub, web) => match never {},
    }
}

/// Puts in force what is stored, what a directory holds and issuers publish, now and after every change, and looks
/// after its rollouts. A change that is wrong is refused whole. Without a directory, all changes come by the admin API.
pub async fn follow(hub: Arc<Hub>, directory: Option<Followed<'_>>) -> Result<(), ServeError> {
    let looked_after = Arc::clone(&hub);
    tokio::select! {
        ended = follow_directory(Arc::clone(&hub), directory) => ended,
        () = keys::follow(hub, Client::default()) => Ok(()),
        () = looked_after.follow_rollouts() => Ok(()),
    }
}

async fn follow_directory(hub: Arc<Hub>, directory: Option<Followed<'_>>) -> Result<(), ServeError> {
    let Some(directory) = directory else {
        hub.restore()?;
        return future::pending().await;
    };
    let mut watch = Watch::start(directory.path).map_err(|error| ApplyError::from(CompileError::from(error)))?;
    let restored = hub.restore()?;
    match publish(&hub, &mut watch, directory).await {
        // What is stored is served whatever the directory has come to.
        Err(error) if restored => refuse(&hub, &error),
        published => published?,
    }
    while watch.changed().await {
        if let Err(error) = publish(&hub, &mut watch, directory).await {
            refuse(&hub, &error);
        }
    }
    Err(ServeError::WatchEnded)
}

fn refuse(hub: &Hub, error: &ApplyError) {
    for line in error.to_string().lines() {
        tracing::error!("change refused: {line}");
    }
    hub.refuse(error);
}

async fn publish(hub: &Arc<Hub>, watch: &mut Watch, followed: Followed<'_>) -> Result<(), ApplyError> {
    let Followed { path, allow_unguarded } = followed;
    let files = watch.read(path).await.map_err(CompileError::from)?;
    let (author, message) = ("directory".to_owned(), format!("as in {}", path.display()));
    // A restart is no reason to try again what nodes have refused.
    let proposal = Proposal { files, author, message, parent: Parent::Latest, again: false, allow_unguarded };
    let hub = Arc::clone(hub);
    // Compiling and the gate take their time, and nobody else should wait for them.
    task::spawn_blocking(move || propose(&hub, proposal)).await.unwrap_or_else(|error| Err(ApplyError::Ended(error)))
}

/// A directory has a say when it says something new. What it said before, and other ways have changed since, stays as
/// they left it.
fn propose(hub: &Hub, proposal: Proposal) -> Result<(), ApplyError> {
    if hub.releases().has_followed(&proposal.files)? {
        // What was wrong with it meanwhile is taken back.
        *lock(&hub.refused_change) = Vec::new();
        return Ok(());
    }
    let said = digest_of(&proposal.files);
    let (Applied::Revision(revision) | Applied::Unchanged(revision)) = hub.apply(proposal)?;
    for Finding { at, code } in hub.releases().findings().iter().take(MOST_LOGGED) {
        tracing::warn!(code, "{at}");
    }
    Ok(hub.releases().followed(revision.number, said)?)
}
