//! `postern serve`: ties the modules together and keeps them running.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
    time,
};

use crate::{
    digest::Digest,
    discovery::{Discovery, service::MAX_CLIENT_INACTIVE},
    fleet::Fleet,
    http,
    keys::{self, KeySetReport, KeySets, Sources, client::Client},
    model::{self, Bundle},
    node::NodeIdentity,
    pipeline::CompileError,
    publication::Publication,
    releases::{Admission, Applied, ApplyError, KEPT, Proposal, Releases},
    revision::revision,
    rollout::Strategy,
    snapshot::{FilterCode, Snapshot},
    source::{self, Watch},
    store::{Database, Parent},
    xds::{Limits, service::XdsServer},
};

/// How long what nodes say is gathered before a rollout is looked at, and how much longer for each node: looking takes
/// time of its own, and what many nodes say at once is looked at once.
const LOOK: Duration = Duration::from_millis(10);
const LOOK_AT_NODE: Duration = Duration::from_micros(50);
/// How often a rollout is looked at because a pause may have ended.
const PAUSES: Duration = Duration::from_millis(200);

/// What the parts of a running control plane share.
#[derive(Debug)]
pub struct Hub {
    publications: watch::Sender<Option<Arc<Publication>>>,
    fleet: Mutex<Fleet>,
    refused_change: Mutex<Vec<String>>,
    /// The revisions in force. Whoever puts something in force that is made of them holds the lock.
    releases: Mutex<Releases>,
    /// Rings when a rollout may have to be looked at.
    rollout: Notify,
    key_sources: Mutex<Sources>,
    wanted_keys: Notify,
    started: (Instant, SystemTime),
    code: FilterCode,
}

impl Hub {
    /// A hub that has nothing to serve yet, and keeps its revisions in memory.
    pub fn new(code: FilterCode) -> Self {
        Self::with_releases(code, Releases::new(Arc::new(Database::in_memory()), Strategy::AllAtOnce, KEPT))
    }

    /// The same for revisions that are kept elsewhere, and spread in another way.
    pub fn with_releases(code: FilterCode, releases: Releases) -> Self {
        Self {
            publications: watch::Sender::new(None),
            fleet: Mutex::default(),
            refused_change: Mutex::default(),
            releases: Mutex::new(releases),
            rollout: Notify::new(),
            key_sources: Mutex::default(),
            wanted_keys: Notify::new(),
            started: (Instant::now(), SystemTime::now()),
            code,
        }
    }

    /// Puts resources in force as a new revision, with the published keys that are known, or refuses them whole. Keys
    /// that are not known yet are fetched; nothing waits for them.
    pub fn apply(&self, proposal: Proposal) -> Result<Applied, ApplyError> {
        let mut releases = lock(&self.releases);
        let applied = releases.apply(proposal, &self.admission(), SystemTime::now())?;
        *lock(&self.refused_change) = Vec::new();
        if matches!(applied, Applied::Revision(_)) {
            self.put_in_force(&releases);
        }
        Ok(applied)
    }

    /// Puts in force what an earlier process left in the store. Says whether there was anything.
    pub fn restore(&self) -> Result<bool, ApplyError> {
        let mut releases = lock(&self.releases);
        let restored = releases.restore(&self.admission(), SystemTime::now())?;
        self.put_in_force(&releases);
        Ok(restored.is_some())
    }

    /// Puts resources in force with a plan that no gate has seen, as a new revision, so that a test can see what a
    /// fleet makes of it.
    #[cfg(feature = "test-hooks")]
    pub fn apply_past_the_gate(&self, proposal: Proposal, plan: Vec<u8>) -> Result<(), ApplyError> {
        let bundle = model::read(&proposal.files)?;
        let digest = Digest::of(&plan);
        let plan = crate::gate::AdmittedPlan::forced_past_the_gate(plan);
        let scope = crate::attach::Scope::of(&bundle, &NodeIdentity::anonymous());
        let snapshot = Snapshot::build(&scope, &crate::attach::attach(&scope), plan, &self.code, digest.clone());
        let publication = Publication::uniform(snapshot);
        let mut releases = lock(&self.releases);
        releases.release(proposal, digest.to_string(), bundle, publication, SystemTime::now())?;
        self.put_in_force(&releases);
        Ok(())
    }

    /// Puts the same resources in force with the keys that are known now.
    pub(crate) fn keys_changed(&self) {
        let mut releases = lock(&self.releases);
        match releases.renew(&self.admission()) {
            Ok(()) => self.put_in_force(&releases),
            Err(error) => {
                tracing::error!("a change of keys is refused: {error}");
                self.refuse(&error);
            }
        }
    }

    /// The revisions, for whoever shows or commands them. Commands are followed by [`Self::rollout_changed`].
    pub fn releases(&self) -> MutexGuard<'_, Releases> {
        lock(&self.releases)
    }

    /// Puts in force what the rollout says now.
    pub fn rollout_changed(&self) {
        self.put_in_force(&lock(&self.releases));
    }

    /// Whether a proposal would be taken, up to the store: admission and gate.
    pub fn prove(&self, proposal: &Proposal) -> Result<(), ApplyError> {
        let bundle = model::read(&proposal.files)?;
        self.admission().admit(&bundle)?;
        Ok(())
    }

    /// Looks at the fleet now, so that conditions are up to date.
    pub fn look(&self) {
        let mut releases = lock(&self.releases);
        let fleet = self.fleet().report();
        if releases.observe(fleet, SystemTime::now()) {
            self.put_in_force(&releases);
        }
    }

    /// Looks after rollouts, for ever: promotes, completes and rolls back as the fleet answers.
    pub async fn follow_rollouts(&self) {
        let mut changes = self.fleet().changes();
        loop {
            self.look();
            let under_way = lock(&self.releases).is_under_way();
            tokio::select! {
                () = self.rollout.notified() => {}
                // Who sent it away is gone with the hub itself.
                _ = changes.changed(), if under_way => {}
                () = time::sleep(PAUSES), if under_way => {}
            }
            let nodes = u32::try_from(self.fleet().len()).unwrap_or(u32::MAX);
            time::sleep(LOOK.saturating_add(LOOK_AT_NODE.saturating_mul(nodes))).await;
        }
    }

    fn admission(&self) -> Known<'_> {
        let previous = self.publications.borrow().clone();
        let nodes = self.fleet().identities();
        Known { key_sets: self.key_sources().sets(), code: &self.code, nodes, previous }
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
        *lock(&self.refused_change) = error.to_string().lines().map(str::to_owned).collect();
    }

    /// What is in force, now and later.
    pub fn publications(&self) -> watch::Receiver<Option<Arc<Publication>>> {
        self.publications.subscribe()
    }

    /// The nodes. The lock is held for single statements only, never across an await.
    pub fn fleet(&self) -> MutexGuard<'_, Fleet> {
        lock(&self.fleet)
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

    /// The filter that nodes run.
    pub fn code(&self) -> &FilterCode {
        &self.code
    }

    /// Tells every stream. The keys that the resources in force need are wanted from now on.
    fn put_in_force(&self, releases: &Releases) {
        let Some(publication) = releases.publication() else { return };
        self.key_sources().want_all(releases.bundles(), self.uptime());
        let revision = publication.revision().clone();
        self.publications.send_replace(Some(Arc::new(publication)));
        if let Some(report) = releases.report() {
            let (number, step, steps) = (report.candidate, report.step, report.steps);
            tracing::info!(number, revision = revision.short(), step, steps, state = ?report.state, "in force");
        }
        self.wanted_keys.notify_one();
        self.rollout.notify_one();
    }
}

/// Admission with what is known at the time.
struct Known<'a> {
    key_sets: KeySets,
    code: &'a FilterCode,
    /// The nodes, for which everything must be right.
    nodes: Vec<NodeIdentity>,
    /// What is in force: what it has compiled and a change does not touch is kept.
    previous: Option<Arc<Publication>>,
}

impl Admission for Known<'_> {
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError> {
        let (keys, previous) = (self.key_sets.clone(), self.previous.as_deref());
        Publication::admit(bundle.clone(), keys, self.code, &self.nodes, previous)
    }

    /// Over the resources alone: keys come and go without anybody's doing.
    fn digest(&self, bundle: &Bundle) -> Digest {
        revision(bundle, &KeySets::default(), self.code.digest())
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
    serve_within(hub, sockets, Limits::default()).await
}

/// The same with limits of one's own.
pub async fn serve_within(hub: Arc<Hub>, sockets: Sockets, limits: Limits) -> Result<(), ServeError> {
    let xds = XdsServer::new(Arc::clone(&hub), limits);
    let discovery = Discovery::new(Arc::clone(&hub), MAX_CLIENT_INACTIVE);
    let router = xds.builder().add_routes(xds.routes()).add_service(discovery.clone().into_server());
    let http = axum::serve(sockets.http, http::router(hub));
    tokio::select! {
        ended = router.serve_with_incoming(xds.incoming(sockets.xds)) => ended.map_err(ServeError::Xds),
        () = xds.sweep() => Ok(()),
        never = discovery.flush_inactive() => match never {},
        ended = http => ended.map_err(ServeError::Http),
    }
}

/// Puts in force what is stored, what a directory holds and issuers publish, now and after every change, and looks
/// after its rollouts. A change that is wrong is refused whole.
pub async fn follow(hub: Arc<Hub>, directory: &Path) -> Result<(), ServeError> {
    let looked_after = Arc::clone(&hub);
    tokio::select! {
        ended = follow_directory(Arc::clone(&hub), directory) => ended,
        () = keys::follow(hub, Client::default()) => Ok(()),
        () = looked_after.follow_rollouts() => Ok(()),
    }
}

async fn follow_directory(hub: Arc<Hub>, directory: &Path) -> Result<(), ServeError> {
    let mut watch = Watch::start(directory).map_err(|error| ApplyError::from(CompileError::from(error)))?;
    let restored = hub.restore()?;
    match publish(&hub, directory) {
        // What is stored is served whatever the directory has come to.
        Err(error) if restored => refuse(&hub, &error),
        published => drop(published?),
    }
    while watch.changed().await {
        if let Err(error) = publish(&hub, directory) {
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

fn publish(hub: &Hub, directory: &Path) -> Result<Applied, ApplyError> {
    let files = source::read(directory).map_err(CompileError::from)?;
    let message = format!("as in {}", directory.display());
    hub.apply(Proposal { files, author: "directory".to_owned(), message, parent: Parent::Latest })
}
