//! A control plane: its parts, each by its handle. It has no state and no lock of its own. The layers below get only
//! the handles that they need; only the program's faces see all of them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use postern_base::node::NodeIdentity;
use postern_compile::{keys::LiveSources, snapshot::FilterCode};
use postern_deliver::{discovery::Clients, xds::service::Traffic};
use postern_release::{
    catalogue::{Catalogue, Catalogues},
    fleet::LiveFleet,
    journal::Journal,
    owner::{self, Commands, Counts, Examiner, Handles, InForce, Population, Purge, Surroundings, follow_rollouts},
    publication::Publications,
    releases::{ApplyError, KEPT, Purged, Releases},
    rollout::Strategy,
    store::{Memory, Store, StoreError},
};
use tokio::{sync::watch, time};

use crate::metrics::Requests;

/// The longest time that a reader waits for a look at the fleet.
const LONGEST_LOOK: Duration = Duration::from_millis(250);

/// The parts of a running control plane. Dropping it ends the owner of what is in force, after its last command.
#[derive(Debug)]
pub struct ControlPlane {
    owner: Handles,
    publications: Publications,
    population: Population,
    clients: Arc<Clients>,
    keys: Arc<LiveSources>,
    /// The owner's store, which only the owner writes to.
    store: Arc<dyn Store>,
    catalogues: Catalogues,
    journal: Arc<Journal>,
    traffic: Arc<Traffic>,
    requests: Requests,
    code: FilterCode,
    started: Instant,
}

impl ControlPlane {
    /// A control plane with nothing in force, which keeps its revisions in memory.
    pub fn new(code: FilterCode) -> Self {
        Self::with_releases(code, Releases::new(Arc::new(Memory::default()), Strategy::AllAtOnce, KEPT))
    }

    /// Like [`Self::new`], with explicit releases: another store or other terms.
    pub fn with_releases(code: FilterCode, releases: Releases) -> Self {
        let (sender, receiver) = watch::channel(None);
        let publications = Publications::from(receiver);
        let (journal, keys) = (Arc::<Journal>::default(), Arc::<LiveSources>::default());
        let fleet = Arc::new(LiveFleet::noted_in(Arc::clone(&journal)));
        let clients = Arc::new(Clients::new(publications.clone(), Arc::clone(&fleet)));
        let population = Population { fleet, others: Arc::<Clients>::clone(&clients) };
        let store = Arc::clone(releases.store());
        let surroundings = Surroundings {
            code: code.clone(),
            keys: Arc::clone(&keys),
            journal: Arc::clone(&journal),
            population: population.clone(),
            publications: sender,
        };
        let owner = owner::start(releases, surroundings);
        let (catalogues, traffic, requests) = Default::default();
        let started = Instant::now();
        Self {
            owner,
            publications,
            population,
            clients,
            keys,
            store,
            catalogues,
            journal,
            traffic,
            requests,
            code,
            started,
        }
    }

    /// The handle to change what is in force.
    pub fn commands(&self) -> &Commands {
        &self.owner.commands
    }

    /// What is in force, for readers.
    pub fn in_force(&self) -> Arc<InForce> {
        self.owner.readings.latest()
    }

    /// Like [`Self::in_force`], after a look at the fleet, so that conditions are up to date. It does not wait for an
    /// owner that is busy.
    pub async fn looked(&self) -> Arc<InForce> {
        // After a time-out, what was published last is shown.
        let _ = time::timeout(LONGEST_LOOK, self.commands().look()).await;
        self.in_force()
    }

    /// Follows rollouts until the owner ends.
    pub async fn follow_rollouts(&self) {
        follow_rollouts(self.commands().clone(), self.owner.readings.clone(), self.fleet().changes()).await;
    }

    /// The handle to examine resources without putting them in force.
    pub fn examiner(&self) -> &Examiner {
        &self.owner.examiner
    }

    /// The counters of changes.
    pub fn counts(&self) -> &Counts {
        &self.owner.counts
    }

    /// The handle to what nodes are served.
    pub fn publications(&self) -> &Publications {
        &self.publications
    }

    /// The fleet of nodes.
    pub fn fleet(&self) -> &Arc<LiveFleet> {
        &self.population.fleet
    }

    /// The clients of policy discovery.
    pub fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// All enforcement points: nodes, and clients of policy discovery.
    pub fn population(&self) -> &Population {
        &self.population
    }

    /// The identities of all enforcement points.
    pub fn identities(&self) -> Vec<NodeIdentity> {
        self.population.identities()
    }

    /// The key sets that issuers publish.
    pub fn keys(&self) -> &Arc<LiveSources> {
        &self.keys
    }

    /// The store of revisions.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The resources of a revision as they were written; `None` if the revision is not kept.
    pub fn catalogue(&self, number: u64) -> Result<Option<Arc<Catalogue>>, StoreError> {
        self.catalogues.get(&*self.store, number)
    }

    /// Removes a deleted resource from all revisions that are kept, and from what this process remembers of them.
    pub async fn purge(&self, purge: Purge) -> Result<Purged, ApplyError> {
        let purged = self.commands().purge(purge).await?;
        self.catalogues.forget(&purged.revisions);
        Ok(purged)
    }

    /// The journal of events.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// The counters of xDS streams.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// The counters of the admin API.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The filter that nodes run.
    pub fn code(&self) -> &FilterCode {
        &self.code
    }

    /// The time since it started.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}
