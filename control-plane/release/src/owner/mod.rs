//! The owner of what is in force: one thread that takes commands over a channel and publishes values.
//!
//! It alone has the [`Releases`](crate::releases::Releases). Writers send [`Commands`] and await their answers; readers look
//! at what is published ([`Publications`], [`InForce`]) and wait for nobody. The owner does nothing that takes long but
//! store: whatever reads, compiles or runs the gate is the work of a second thread, and ends with a step on the owner's
//! ([`work`]). Changes are carried out in the order in which they come; looks at the fleet are taken in between.

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
    command::{Answer, Commands, Steering},
    counts::{Counts, Proposals, Rollouts},
    examiner::{Examiner, Known},
    in_force::{InForce, Readings, warnings},
    rollouts::follow_rollouts,
};
use crate::{
    fleet::{LiveFleet, Sighting},
    journal::Journal,
    publication::{Publication, Publications},
    releases::Releases,
};

/// Enforcement points that are no nodes of the fleet, and count for rollouts like them.
pub trait Enforcers: std::fmt::Debug + Send + Sync {
    /// Those that say who they are, as a rollout looks at nodes.
    fn sightings(&self) -> Vec<Sighting>;
}

/// All that enforce: the nodes of the fleet, and others.
#[derive(Debug, Clone)]
pub struct Population {
    /// The nodes.
    pub fleet: Arc<LiveFleet>,
    /// The others.
    pub others: Arc<dyn Enforcers>,
}

impl Population {
    /// All of them, in the order of their identities.
    pub fn sightings(&self) -> Vec<Sighting> {
        let mut all = self.fleet.sightings();
        all.extend(self.others.sightings());
        all.sort_by(|one, other| one.node.id.cmp(&other.node.id));
        all
    }

    /// Who they say they are.
    pub fn identities(&self) -> Vec<NodeIdentity> {
        let mut all = self.fleet.identities();
        all.extend(self.others.sightings().into_iter().map(|sighting| NodeIdentity::clone(&sighting.node)));
        all
    }
}

/// What the owner works with, beside the releases.
#[derive(Debug)]
pub struct Surroundings {
    /// The filter that nodes run.
    pub code: FilterCode,
    /// Published key sets.
    pub keys: Arc<LiveSources>,
    /// Where happenings are noted.
    pub journal: Arc<Journal>,
    /// Who enforces what is in force.
    pub population: Population,
    /// Where publications go.
    pub publications: watch::Sender<Option<Arc<Publication>>>,
}

/// A running owner, as others see it.
#[derive(Debug, Clone)]
pub struct Handles {
    /// For writers.
    pub commands: Commands,
    /// For readers.
    pub readings: Readings,
    /// Proves resources without putting them in force.
    pub examiner: Examiner,
    /// What is counted.
    pub counts: Arc<Counts>,
}

/// Starts the owner's threads. They end when the last of [`Commands`] and of their [`Answer`]s is dropped.
pub fn start(releases: Releases, surroundings: Surroundings) -> Handles {
    let Surroundings { code, keys, journal, population, publications } = surroundings;
    let (sender, receiver) = mpsc::unbounded_channel();
    let (in_force, readings) = watch::channel(Arc::default());
    let counts = Arc::<Counts>::default();
    let published = Publications::from(publications.subscribe());
    let examiner = Examiner::new(code, Arc::clone(&keys), population.clone(), published);
    let owner = sender.downgrade();
    let workshop = Workshop::start(move |step| {
        // Without an owner there is nothing to be changed.
        if let Some(owner) = owner.upgrade() {
            let _ = owner.send(Command::Done(step));
        }
    });
    let desk = Desk::new(releases, examiner.clone(), workshop, (publications, in_force), (keys, journal, population));
    let desk = desk.counting(Arc::clone(&counts));
    work::thread("postern-owner", move || desk.run(receiver));
    Handles { commands: Commands::new(sender), readings: Readings::from(readings), examiner, counts }
}
