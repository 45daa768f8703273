//! Releases: the revisions that nodes run or are to run, from a proposal to the store and on through a rollout.
//!
//! It owns the order of things: admission and gate first, then the store, and only what is stored is published. It
//! does no I/O but the store's; the fleet and the time are arguments, and publishing is up to whoever holds it.

mod permissive;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use serde::Serialize;

use crate::{
    digest::Digest,
    fleet::NodeReport,
    lifecycle::Lifecycle,
    model::{self, Bundle, Diagnostics, File},
    pipeline::CompileError,
    publication::Publication,
    rollout::{Audience, Change, NotNow, Rollout, State, Strategy},
    store::{Draft, Parent, Revision, Store, StoreError, assemble, split},
};

/// The note that a rollout is kept under.
const ROLLOUT: &str = "rollout";
/// How many revisions are kept unless somebody says otherwise.
pub const KEPT: usize = 20;

/// What proves resources: the way from a bundle to what nodes get, through the gate.
pub trait Admission {
    /// What nodes would get, or why they must not.
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError>;

    /// What the content of a bundle is called.
    fn digest(&self, bundle: &Bundle) -> Digest;
}

/// What somebody wants in force.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// All resources.
    pub files: Vec<File>,
    /// Who wants it.
    pub author: String,
    /// Why.
    pub message: String,
    /// What it is meant to follow.
    pub parent: Parent,
}

/// What came of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It is a revision now, and spreads.
    Revision(Revision),
    /// The latest revision says the same.
    Unchanged(Revision),
}

/// Why a proposal came to nothing. What is in force stays.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It is wrong, or the filter refuses it.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is nothing to go back to under this number.
    #[error("revision {0} is not kept: `postern revisions` lists those that are")]
    NoRevision(u64),
    /// A command that does not fit.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// There is nothing to command.
    #[error("no rollout has been started")]
    NoRollout,
}

impl From<Diagnostics> for ApplyError {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Compile(diagnostics.into())
    }
}

/// A revision that nodes run or are to run.
#[derive(Debug)]
struct Release {
    bundle: Bundle,
    publication: Arc<Publication>,
}

/// Where the rollout is, as it is shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutReport {
    /// The revision that spreads, or spread last.
    pub candidate: u64,
    /// The last good revision, which new nodes get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<u64>,
    /// The step under way, from 1.
    pub step: usize,
    /// How many there are.
    pub steps: usize,
    /// What became of it.
    #[serde(flatten)]
    pub state: State,
}

/// All revisions that matter now.
#[derive(Debug)]
pub struct Releases {
    store: Arc<dyn Store>,
    strategy: Strategy,
    keep: usize,
    rollout: Option<Rollout>,
    live: BTreeMap<u64, Release>,
    lifecycles: BTreeMap<u64, Lifecycle>,
    audience: Arc<Audience>,
}

impl Releases {
    /// Nothing is in force until something is [restored](Self::restore) or [applied](Self::apply).
    pub fn new(store: Arc<dyn Store>, strategy: Strategy, keep: usize) -> Self {
        let (live, lifecycles, audience) = Default::default();
        Self { store, strategy, keep, rollout: None, live, lifecycles, audience }
    }

    /// Takes up where an earlier process ended. What has become invalid since it was stored is served as a refusal and
    /// reported: better a few routes that answer 500 than a fleet without a control plane.
    pub fn restore(&mut self, admission: &dyn Admission, now: SystemTime) -> Result<Option<Revision>, ApplyError> {
        let Some(latest) = self.store.latest()? else { return Ok(None) };
        let noted = self.store.note(ROLLOUT)?.and_then(|note| serde_json::from_slice::<Rollout>(&note).ok());
        let mut rollout = match noted {
            Some(rollout) if rollout.candidate() == latest.number => rollout,
            // The process ended between storing a revision and its first step.
            earlier => {
                let last_good = earlier.and_then(|rollout| rollout.last_good());
                Rollout::start(latest.number, last_good, self.strategy.clone())
            }
        };
        for number in BTreeSet::from_iter([Some(latest.number), rollout.last_good()].into_iter().flatten()) {
            match self.load(number, admission, now) {
                Ok(()) => {}
                // The last good one will do.
                Err(error) if Some(number) != rollout.last_good() && rollout.abort().is_ok() => {
                    tracing::error!(revision = number, "a stored revision cannot be served: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        self.rollout = Some(rollout);
        Ok(Some(latest))
    }

    fn load(&mut self, number: u64, admission: &dyn Admission, now: SystemTime) -> Result<(), ApplyError> {
        let documents = self.store.documents(number)?.ok_or(ApplyError::NoRevision(number))?;
        let mut lifecycle = Lifecycle::scheduled(now);
        let permissive::Served { bundle, publication, problems } = permissive::serve(documents, admission)?;
        match problems {
            None => lifecycle.initialized(now),
            Some(problems) => {
                for problem in &problems {
                    tracing::error!(revision = number, "stored, but no longer valid: {problem}");
                }
                lifecycle.invalid(&problems, now);
            }
        }
        self.live.insert(number, Release { bundle, publication: Arc::new(publication) });
        self.lifecycles.insert(number, lifecycle);
        Ok(())
    }

    /// Admission, gate, store, rollout: a proposal that passes the first three is a revision, and spreads.
    pub fn apply(
        &mut self,
        proposal: Proposal,
        admission: &dyn Admission,
        now: SystemTime,
    ) -> Result<Applied, ApplyError> {
        let bundle = model::read(&proposal.files)?;
        let publication = admission.admit(&bundle)?;
        let digest = admission.digest(&bundle).to_string();
        if let Some(latest) = self.store.latest()?.filter(|latest| latest.digest == digest)
            && self.live.contains_key(&latest.number)
        {
            return Ok(Applied::Unchanged(latest));
        }
        self.release(proposal, digest, bundle, publication, now).map(Applied::Revision)
    }

    /// The second half of [`Self::apply`]: stores what was admitted, and starts its rollout.
    pub(crate) fn release(
        &mut self,
        proposal: Proposal,
        digest: String,
        bundle: Bundle,
        publication: Publication,
        now: SystemTime,
    ) -> Result<Revision, ApplyError> {
        let Proposal { files, author, message, parent } = proposal;
        let draft = Draft { digest, author, message, at: now, documents: split(&files) };
        let revision = self.store.append(draft, parent)?;
        let last_good = self.rollout.as_ref().and_then(Rollout::last_good);
        let last_good = last_good.filter(|number| self.live.contains_key(number));
        self.live.insert(revision.number, Release { bundle, publication: Arc::new(publication) });
        let mut lifecycle = Lifecycle::scheduled(now);
        lifecycle.initialized(now);
        self.lifecycles.insert(revision.number, lifecycle);
        self.rollout = Some(Rollout::start(revision.number, last_good, self.strategy.clone()));
        self.tidy_up();
        Ok(revision)
    }

    /// A proposal to go back to what an earlier revision said.
    pub fn rollback(&self, number: u64, author: String, parent: Parent) -> Result<Proposal, ApplyError> {
        let documents = self.store.documents(number)?.ok_or(ApplyError::NoRevision(number))?;
        Ok(Proposal { files: assemble(&documents), author, message: format!("rollback to revision {number}"), parent })
    }

    /// Looks at the fleet. Says whether nodes are to get something else now.
    pub fn observe(&mut self, fleet: Vec<NodeReport>, now: SystemTime) -> bool {
        let Some(rollout) = &mut self.rollout else { return false };
        let Some(candidate) = self.live.get(&rollout.candidate()) else { return false };
        let observed = self.audience.observe(&fleet, &candidate.publication);
        let change = rollout.observe(&observed, now);
        for (number, release) in &self.live {
            let Some(lifecycle) = self.lifecycles.get_mut(number) else { continue };
            let mut observed = self.audience.observe(&fleet, &release.publication);
            observed.retain(|observed| rollout.revision_for(&observed.node) == *number);
            lifecycle.observe(&observed, now);
        }
        if change == Change::None {
            return false;
        }
        self.tidy_up();
        true
    }

    /// Pauses, resumes or aborts the rollout.
    pub fn command(&mut self, command: impl FnOnce(&mut Rollout) -> Result<(), NotNow>) -> Result<(), ApplyError> {
        command(self.rollout.as_mut().ok_or(ApplyError::NoRollout)?)?;
        self.tidy_up();
        Ok(())
    }

    /// The same resources with what admission knows now, such as fetched keys.
    pub fn renew(&mut self, admission: &dyn Admission) -> Result<(), CompileError> {
        for release in self.live.values_mut() {
            release.publication = Arc::new(admission.admit(&release.bundle)?);
        }
        Ok(())
    }

    /// What nodes are to get.
    pub fn publication(&self) -> Option<Publication> {
        let rollout = self.rollout.as_ref()?;
        let candidate = self.live.get(&rollout.candidate());
        let last_good = rollout.last_good().and_then(|number| self.live.get(&number)).or(candidate)?;
        let candidate = candidate.unwrap_or(last_good);
        let [last_good, candidate] = [last_good, candidate].map(|release| Arc::clone(&release.publication));
        Some(Publication::split(rollout.clone(), last_good, candidate, Arc::clone(&self.audience)))
    }

    /// All resources that nodes run or are to run.
    pub fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        self.live.values().map(|release| &release.bundle)
    }

    /// Whether a rollout has to be looked at.
    pub fn is_under_way(&self) -> bool {
        self.rollout.as_ref().is_some_and(Rollout::is_under_way)
    }

    /// Where the rollout is.
    pub fn report(&self) -> Option<RolloutReport> {
        let rollout = self.rollout.as_ref()?;
        let (step, steps) = rollout.progress();
        let (candidate, last_good, state) = (rollout.candidate(), rollout.last_good(), rollout.state().clone());
        Some(RolloutReport { candidate, last_good, step, steps, state })
    }

    /// What is known of the revisions that matter now.
    pub fn lifecycles(&self) -> &BTreeMap<u64, Lifecycle> {
        &self.lifecycles
    }

    /// Where everything is kept.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Notes where the rollout is, and forgets what nothing leads back to. That it could not is no reason to stop: the
    /// revisions themselves are stored, and a restart takes the rollout up from its first step.
    fn tidy_up(&mut self) {
        let Some(rollout) = &self.rollout else { return };
        let needed = BTreeSet::from_iter([Some(rollout.candidate()), rollout.last_good()].into_iter().flatten());
        self.live.retain(|number, _| needed.contains(number));
        let noted = serde_json::to_vec(rollout).map_err(|error| error.to_string()).and_then(|note| {
            self.store.put_note(ROLLOUT, Some(&note)).map_err(|error| error.to_string())?;
            self.store.collect(self.keep, &needed).map_err(|error| error.to_string())
        });
        match noted {
            Ok(gone) => self.lifecycles.retain(|number, _| !gone.contains(number)),
            Err(error) => tracing::error!("the rollout's state was not kept: {error}"),
        }
    }
}
