//! The owner of what is in force: one thread that takes commands over a channel and publishes values.
//!
//! It alone has the [`Releases`](crate::releases::Releases). Writers send [`Commands`] and await their answers; readers
//! look at what is published ([`Publications`], [`InForce`]) and never wait. The owner's only slow operation is
//! storing: reading, compiling and the gate run on a second thread, whose result is a step that the owner carries out
//! ([`work`]). Changes are carried out in order; looks at the fleet are taken in between.

mod command;
mod counts;
mod desk;
mod examiner;
mod in_force;
mod rollouts;
mod work;

use std::sync::Arc;

use postern_base::node::NodeIdentity;
use postern_compile::{keys::LiveSources, snapshot::FilterCode};
use tokio::sync::{mpsc, watch};

use self::{command::Command, desk::Desk, work::Workshop};
pub use self::{
    command::{Commands, PendingAnswer, Purge, Steering},
    counts::{Counts, Proposals, Rollouts},
    examiner::{Examiner, PreparedAdmission},
    in_force::{InForce, Readings, warnings},
    rollouts::follow_rollouts,
};
use crate::{
    fleet::{LiveFleet, Sighting},
    journal::Journal,
    publication::{Publication, Publications},
    releases::Releases,
};

/// Enforcement points that are not in the fleet, but count for rollouts like its nodes.
pub trait Enforcers: std::fmt::Debug + Send + Sync {
    /// Those that identify themselves, as a rollout sees nodes.
    fn sightings(&self) -> Vec<Sighting>;
}

/// All enforcement points: the nodes of the fleet, and others.
#[derive(Debug, Clone)]
pub struct Population {
    /// The nodes.
    pub fleet: Arc<LiveFleet>,
    /// The other enforcement points.
    pub others: Arc<dyn Enforcers>,
}

impl Population {
    /// All enforcement points, sorted by identity.
    pub fn sightings(&self) -> Vec<Sighting> {
        let mut all = self.fleet.sightings();
        all.extend(self.others.sightings());
        all.sort_by(|one, other| one.node.id.cmp(&other.node.id));
        all
    }

    /// The identities of all enforcement points.
    pub fn identities(&self) -> Vec<NodeIdentity> {
        let mut all = self.fleet.identities();
        all.extend(self.others.sightings().into_iter().map(|sighting| NodeIdentity::clone(&sighting.node)));
        all
    }
}

/// What the owner works with, besides the releases.
#[derive(Debug)]
pub struct Surroundings {
    /// The filter that nodes run.
    pub code: FilterCode,
    /// Published key sets.
    pub keys: Arc<LiveSources>,
    /// The journal of events.
    pub journal: Arc<Journal>,
    /// The enforcement points.
    pub population: Population,
    /// The channel of publications.
    pub publications: watch::Sender<Option<Arc<Publication>>>,
}

/// The handles to a running owner.
#[derive(Debug, Clone)]
pub struct Handles {
    /// The writers' handle.
    pub commands: Commands,
    /// The readers' handle.
    pub readings: Readings,
    /// Examines resources without putting them in force.
    pub examiner: Examiner,
    /// The counters.
    pub counts: Arc<Counts>,
}

/// Starts the owner's threads. They end when the last of [`Commands`] and of their [`PendingAnswer`]s is dropped.
pub fn start(releases: Releases, surroundings: Surroundings) -> Handles {
    let Surroundings { code, keys, journal, population, publications } = surroundings;
    let (sender, receiver) = mpsc::unbounded_channel();
    let (in_force, readings) = watch::channel(Arc::default());
    let counts = Arc::<Counts>::default();
    let published = Publications::from(publications.subscribe());
    let examiner = Examiner::new(code, Arc::clone(&keys), population.clone(), published);
    let owner = sender.downgrade();
    let workshop = Workshop::start(move |step| {
        // The owner may have ended already.
        if let Some(owner) = owner.upgrade() {
            let _ = owner.send(Command::Done(step));
        }
    });
    let desk = Desk::new(releases, examiner.clone(), workshop, (publications, in_force), (keys, journal, population));
    let desk = desk.counting(Arc::clone(&counts));
    work::thread("postern-owner", move || desk.run(receiver));
    Handles { commands: Commands::new(sender), readings: Readings::from(readings), examiner, counts }
}
