//! Releases: the revisions that nodes run or are to run, from a proposal to the store and through a rollout.
//!
//! This module owns the order: admission and gate, then the store, then publication, so that only what is stored is
//! published. The store is its only I/O; the fleet and the time are arguments, and its owner publishes. Readers get a
//! [`View`], a value, so that they and the owner never wait for each other.

mod alone;
mod builds;
mod complete;
mod directory;
mod examine;
mod generations;
mod held;
mod observed;
mod permissive;
mod plans;
mod proposal;
mod purge;
mod refused;
mod removals;
mod revived;
mod salvage;
mod state;
mod terms;
mod trust;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use postern_compile::{keys::StoredKeySet, lint::Finding};
use postern_model::{Bundle, Diagnostics};
use serde::de::DeserializeOwned;

use self::{
    builds::Builds,
    directory::Following,
    generations::Generations,
    observed::known,
    plans::{Plans, uses_of},
    terms::{Runners, kept_by, runners_of},
    trust::Trust,
};
pub use self::{
    builds::{ChangeBuilds, kept_build, kept_code},
    complete::complete,
    directory::{Directory, HeldBack, digest_of},
    examine::{Examined, Ground, Proved, examine, prove},
    held::HeldChange,
    observed::observed,
    plans::PlanUse,
    proposal::{
        Admission, Applied, ApplyError, Extent, NotHeld, NotPurged, Opens, Pace, Proposal, StillSaid, whole_documents,
    },
    purge::Purged,
    refused::{RefusedChange, RefusedResource, errors_by_resource, is_refusal},
    removals::{Removable, Removals, Removes, Word},
    revived::{RevivedCredential, revived},
    salvage::{Salvaged, salvage},
    state::{NodeRefusal, RevisionState},
    terms::Terms,
    view::{Concerns, NodeStanding, View},
};
use crate::{
    fleet::Sighting,
    lifecycle::Lifecycle,
    publication::Publication,
    rollout::{Change, NotNow, Rollout, RolloutReport},
    store::{Draft, NodeRecord, Parent, Revision, Store, StoreError, assemble, milliseconds},
};

/// The names of the notes in which the rollout, and what is known of revisions, are stored.
const ROLLOUT: &str = "rollout";
const LIFECYCLES: &str = "lifecycles";
/// The note that records which revision brought which plan to which nodes.
const PLANS: &str = "plans";
/// The note with the generation of each resource.
const GENERATIONS: &str = "generations";
/// The sealed note with the key sets that issuers publish.
const KEY_SETS: &str = "key-sets";
/// The number of revisions that are kept by default.
pub const KEPT: usize = 20;

/// A live revision: nodes run it or are to run it.
#[derive(Debug, Clone)]
struct Release {
    /// The digest of the revision, as the store has it. Unlike that of the publication, it does not depend on keys.
    digest: Arc<str>,
    bundle: Arc<Bundle>,
    publication: Arc<Publication>,
    /// Its warnings.
    findings: Arc<[Finding]>,
}

/// All live revisions.
#[derive(Debug)]
pub struct Releases {
    store: Arc<dyn Store>,
    terms: Terms,
    keep: usize,
    rollout: Option<Rollout>,
    /// The nodes that run the last good revision.
    runners: Runners,
    live: BTreeMap<u64, Release>,
    /// Shared with views: copied on write.
    lifecycles: BTreeMap<u64, Arc<Lifecycle>>,
    plans: Plans,
    builds: Builds,
    /// The nodes that were connected when a rollout last ended.
    known: Arc<BTreeMap<String, NodeRecord>>,
    directory: Following,
    /// Shared with views: copied on write.
    generations: Arc<Generations>,
    /// Whether the generations have changed since they were stored.
    has_counted: bool,
}

impl Releases {
    /// Releases without anything in force until a revision is [restored](Self::restore) or [applied](Self::apply).
    /// Revisions spread by `terms`, and `keep` of them are kept, unless their own `Settings` say otherwise.
    pub fn new(store: Arc<dyn Store>, terms: impl Into<Terms>, keep: usize) -> Self {
        let (terms, runners) = (terms.into(), Runners::default());
        let (live, lifecycles, plans, known) = Default::default();
        let (rollout, directory, generations, builds) = Default::default();
        let has_counted = false;
        Self {
            store,
            terms,
            keep,
            rollout,
            runners,
            live,
            lifecycles,
            plans,
            builds,
            known,
            directory,
            generations,
            has_counted,
        }
    }

    /// Takes up where an earlier process ended. What has become invalid since it was stored is served as a refusal and
    /// reported: better a few routes that answer 500 than a fleet without a control plane.
    pub fn restore(&mut self, admission: &dyn Admission, now: SystemTime) -> Result<Option<Revision>, ApplyError> {
        let Some(latest) = self.store.latest()? else { return Ok(None) };
        self.known = Arc::new(self.store.nodes()?);
        self.lifecycles = self.noted(LIFECYCLES)?.unwrap_or_default();
        self.generations = Arc::new(self.noted(GENERATIONS)?.unwrap_or_default());
        self.plans = Plans::remembered(self.noted(PLANS)?.unwrap_or_default());
        self.restore_builds()?;
        let mut rollout = match self.noted::<Rollout>(ROLLOUT)? {
            Some(rollout) if rollout.candidate() == latest.number => rollout,
            // The earlier process ended after storing a revision, and before its first step.
            earlier => {
                let last_good = earlier.and_then(|rollout| rollout.last_good());
                let said = last_good.map(|number| self.written(number, admission)).transpose()?.flatten();
                let terms = said.map_or_else(|| self.terms.clone(), |bundle| self.terms.with(&bundle));
                terms.start(latest.number, last_good).witnessed_by(runners_of(last_good, &self.known))
            }
        };
        for number in BTreeSet::from_iter([Some(latest.number), rollout.last_good()].into_iter().flatten()) {
            // A candidate of which nothing is left is no better than the last good revision.
            let fallback = rollout.last_good().is_some_and(|good| good != number);
            match self.load(number, admission, fallback, now) {
                Ok(()) => {}
                // Falls back to the last good revision.
                Err(error) if fallback && rollout.abort().is_ok() => {
                    tracing::error!(revision = number, "a stored revision cannot be served: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        rollout.restarted();
        self.rollout = Some(rollout);
        self.note_failure(now);
        self.restore_directory(admission)?;
        self.count_missing(latest.number, admission)?;
        self.record_live_builds()?;
        self.plans.serve(&self.live, milliseconds(now));
        Ok(Some(latest))
    }

    /// The key sets that an earlier process kept.
    pub fn key_sets(&self) -> Result<Vec<StoredKeySet>, StoreError> {
        // What another version of this program kept may be unreadable. It is fetched again.
        let stored = self.store.sealed_note(KEY_SETS)?;
        Ok(stored.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default())
    }

    /// Keeps key sets for a later process.
    pub fn keep_key_sets(&self, sets: &[StoredKeySet]) -> Result<(), StoreError> {
        self.store.put_sealed_note(KEY_SETS, &serde_json::to_vec(sets).unwrap_or_default())
    }

    /// The resources of a stored revision as they were written. `None` if it is not kept, or is no longer valid.
    fn written(&self, number: u64, admission: &dyn Admission) -> Result<Option<Bundle>, StoreError> {
        let documents = self.store.documents(number)?;
        Ok(documents.and_then(|documents| admission.read(&assemble(&documents)).ok()))
    }

    /// Reads a note of an earlier process. Returns `None` for one that this version cannot parse.
    fn noted<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        Ok(self.store.note(name)?.and_then(|note| serde_json::from_slice(&note).ok()))
    }

    /// Makes a stored revision live. With a `fallback`, fails if every request would be refused.
    fn load(
        &mut self,
        number: u64,
        admission: &dyn Admission,
        fallback: bool,
        now: SystemTime,
    ) -> Result<(), ApplyError> {
        let documents = self.store.documents(number)?.ok_or(ApplyError::NoRevision(number))?;
        let own = self.builds.of(number).and_then(|builds| admission.for_builds(builds, &*self.store));
        let admission = own.as_deref().unwrap_or(admission);
        let revision = self.store.revisions()?.into_iter().find(|revision| revision.number == number);
        let trust = revision.as_ref().map_or(Trust::Never, |revision| trust::trust_of(&revision.digest));
        let digest = revision.map(|revision| revision.digest).unwrap_or_default().into();
        let mut lifecycle =
            self.lifecycles.remove(&number).map_or_else(|| Lifecycle::scheduled(now), Arc::unwrap_or_clone);
        let permissive::Served { bundle, publication, findings, problems } =
            permissive::serve(documents, admission, trust)?;
        if let Some(problems) = problems.clone().filter(|_| bundle.refuses_all && fallback) {
            return Err(problems.into());
        }
        match problems {
            None => lifecycle.initialized(now),
            Some(problems) => {
                for problem in &problems {
                    tracing::error!(revision = number, "stored, but not valid: {problem}");
                }
                lifecycle.invalid(&problems, now);
            }
        }
        let (bundle, publication) = (Arc::new(bundle), Arc::new(publication));
        self.live.insert(number, Release { digest, bundle, publication, findings: findings.into() });
        self.lifecycles.insert(number, Arc::new(lifecycle));
        Ok(())
    }

    /// Admits, stores and spreads a proposal, or returns why it is refused.
    pub fn apply(
        &mut self,
        proposal: Proposal,
        admission: &dyn Admission,
        now: SystemTime,
    ) -> Result<Applied, ApplyError> {
        let applied = self.accept(proposal, admission, now)?;
        self.note();
        Ok(applied)
    }

    /// Like [`Self::apply`], but leaves it to the caller to [note](Self::note) the rollout, after nodes have been told.
    pub fn accept(
        &mut self,
        proposal: Proposal,
        admission: &dyn Admission,
        now: SystemTime,
    ) -> Result<Applied, ApplyError> {
        let proved = prove(&proposal, &self.ground(), admission)?;
        self.admit(proved, now)
    }

    /// What a proposal is compared with now.
    pub fn ground(&self) -> Ground {
        let in_force = self.in_force().and_then(|number| Some((number, Arc::clone(&self.live.get(&number)?.bundle))));
        Ground { in_force, store: Arc::clone(&self.store) }
    }

    /// The second half of [`Self::accept`]: stores a proved proposal and starts its rollout. If the revision in force
    /// has changed since the examination, the routes that it would open are determined again.
    pub fn admit(&mut self, mut proved: Proved, now: SystemTime) -> Result<Applied, ApplyError> {
        if let Some(latest) = self.store.latest()?.filter(|latest| latest.digest == proved.digest)
            && self.live.contains_key(&latest.number)
            && !(proved.again && self.rollout.as_ref().is_some_and(Rollout::is_back))
        {
            return Ok(Applied::Unchanged(latest));
        }
        proved.stays_complete(&self.ground())?;
        proved.stays_guarded(&self.ground())?;
        if let Extent::Exactly(word) = &proved.extent {
            self.removals(&proved.bundle).check(word)?;
        }
        let Proved { digest, author, message, parent, documents, bundle, publication, findings, pace, .. } = proved;
        let (bundle, publication) = (Arc::new(bundle), Arc::new(publication));
        let release = Release { digest: digest.as_str().into(), bundle, publication, findings };
        let draft = Draft { digest, author, message, at: now, documents: documents? };
        self.release((draft, pace), parent, release, None, now).map(Applied::Revision)
    }

    /// Stores and spreads what can be served of invalid resources. For a start with nothing else in force.
    pub fn take_salvaged(&mut self, salvaged: Salvaged, now: SystemTime) -> Result<Revision, ApplyError> {
        let Salvaged { proposal: (digest, author, message, documents), served, .. } = salvaged;
        let permissive::Served { bundle, publication, findings, problems } = served;
        let (bundle, publication) = (Arc::new(bundle), Arc::new(publication));
        let release = Release { digest: digest.as_str().into(), bundle, publication, findings: findings.into() };
        let draft = Draft { digest, author, message, at: now, documents: documents? };
        self.release((draft, Pace::default()), Parent::Latest, release, problems.as_ref(), now)
    }

    /// Stores and spreads a publication that no gate has checked.
    #[cfg(feature = "test-hooks")]
    pub(crate) fn release_unproved(
        &mut self,
        proposal: Proposal,
        digest: String,
        bundle: Bundle,
        publication: Publication,
        now: SystemTime,
    ) -> Result<Revision, ApplyError> {
        let (bundle, publication) = (Arc::new(bundle), Arc::new(publication));
        let release = Release { digest: digest.as_str().into(), bundle, publication, findings: Arc::default() };
        let Proposal { files, author, message, parent, pace, .. } = proposal;
        let draft = Draft { digest, author, message, at: now, documents: crate::store::split(&files).into() };
        let revision = self.release((draft, pace), parent, release, None, now)?;
        self.note();
        Ok(revision)
    }

    /// Stores a release, and starts its rollout. `problems` are the errors for which parts of it are refusals.
    fn release(
        &mut self,
        (draft, pace): (Draft, Pace),
        parent: Parent,
        release: Release,
        problems: Option<&Diagnostics>,
        now: SystemTime,
    ) -> Result<Revision, ApplyError> {
        let next = self.store.latest()?.map_or(1, |latest| latest.number.saturating_add(1));
        self.record_builds(next, release.publication.code())?;
        let revision = self.store.append(draft, parent)?;
        let last_good = self.rollout.as_ref().and_then(Rollout::last_good);
        let last_good = last_good.filter(|number| self.live.contains_key(number));
        let terms = self.settled_terms().at(pace);
        self.count(revision.number, &release.bundle);
        self.live.insert(revision.number, release);
        let mut lifecycle = Lifecycle::scheduled(now);
        match problems {
            None => lifecycle.initialized(now),
            Some(problems) => lifecycle.invalid(problems, now),
        }
        self.lifecycles.insert(revision.number, Arc::new(lifecycle));
        let witnesses = self.runners.take(last_good, &self.known);
        self.rollout = Some(terms.start(revision.number, last_good).witnessed_by(witnesses));
        self.forget(now);
        Ok(revision)
    }

    /// A proposal with the content of an earlier revision.
    pub fn rollback(&self, number: u64, author: String, parent: Parent) -> Result<Proposal, ApplyError> {
        Proposal::to_go_back(&*self.store, number, author, parent)
    }

    /// Records which nodes run the last good revision: they are the witnesses of the next one.
    pub fn note_runners(&mut self, fleet: &[Sighting]) {
        let Some(last_good) = self.rollout.as_ref().and_then(Rollout::last_good) else { return };
        let Some(release) = self.live.get(&last_good) else { return };
        let revision = release.publication.revision();
        let running = fleet.iter().filter(|node| node.revision.as_ref() == Some(revision));
        self.runners.add(last_good, &self.known, running.map(|node| node.node.id.as_str()));
    }

    /// Looks at the fleet, whose nodes must be sorted by name. Returns whether the rollout changed.
    pub fn observe(&mut self, fleet: &[Sighting], now: SystemTime) -> bool {
        self.plans.look(fleet, &self.live, milliseconds(now));
        let Some(rollout) = &mut self.rollout else { return false };
        let Some(candidate) = self.live.get(&rollout.candidate()) else { return false };
        let seen: Vec<_> = fleet.iter().map(|node| observed(node, &candidate.publication)).collect();
        let before = rollout.clone();
        let change = rollout.observe(&seen, now);
        for (number, release) in &self.live {
            let Some(lifecycle) = self.lifecycles.get_mut(number) else { continue };
            // The conditions of a revision that failed are frozen, so that its author can see why.
            let judged = if rollout.is_back() && *number == rollout.candidate() { &before } else { &*rollout };
            if judged.is_back() && *number == rollout.candidate() {
                continue;
            }
            let concerned = fleet.iter().filter(|node| judged.revision_for(&node.node) == *number);
            let concerned: Vec<_> = concerned.map(|node| observed(node, &release.publication)).collect();
            Arc::make_mut(lifecycle).observe(&concerned, now);
        }
        if change == Change::None {
            self.note_runners(fleet);
            return false;
        }
        if change == Change::Ended {
            self.known = Arc::new(known(&seen, rollout, now));
            if let Err(error) = self.store.put_nodes(&self.known) {
                tracing::error!("the nodes were not noted: {error}");
            }
            self.note_taken_back();
            self.note_builds_taken_back();
        }
        self.note_failure(now);
        self.tidy_up(now);
        true
    }

    /// Pauses, resumes or aborts the rollout.
    pub fn command(
        &mut self,
        command: impl FnOnce(&mut Rollout) -> Result<(), NotNow>,
        now: SystemTime,
    ) -> Result<(), ApplyError> {
        command(self.rollout.as_mut().ok_or(ApplyError::NoRollout)?)?;
        self.note_failure(now);
        self.note_taken_back();
        self.note_builds_taken_back();
        self.tidy_up(now);
        Ok(())
    }

    /// The live revisions with their resources, to be compiled again, each with what is served of it now.
    pub fn live_bundles(&self) -> Vec<(u64, Arc<Bundle>, Arc<Publication>)> {
        let live = self.live.iter();
        live.map(|(number, release)| (*number, Arc::clone(&release.bundle), Arc::clone(&release.publication))).collect()
    }

    /// Replaces live publications by ones compiled again, by revision, because keys have changed. Revisions that are no
    /// longer live are ignored.
    pub fn renew(&mut self, renewed: Vec<(u64, Publication)>, now: SystemTime) {
        for (number, publication) in renewed {
            if let Some(release) = self.live.get_mut(&number) {
                release.publication = Arc::new(publication);
            }
        }
        self.plans.serve(&self.live, milliseconds(now));
        self.note_plans();
    }

    /// What nodes are to get.
    pub fn publication(&self) -> Option<Publication> {
        let rollout = self.rollout.as_ref()?;
        let candidate = self.live.get(&rollout.candidate());
        let last_good = rollout.last_good().and_then(|number| self.live.get(&number)).or(candidate)?;
        let candidate = candidate.unwrap_or(last_good);
        let [last_good, candidate] = [last_good, candidate].map(|release| Arc::clone(&release.publication));
        Some(Publication::split(rollout.clone(), last_good, candidate))
    }

    /// The resources of all live revisions.
    pub fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        self.live.values().map(|release| &*release.bundle)
    }

    /// Whether the rollout is under way.
    pub fn is_under_way(&self) -> bool {
        self.rollout.as_ref().is_some_and(Rollout::is_under_way)
    }

    /// The state of the rollout.
    pub fn report(&self) -> Option<RolloutReport> {
        self.rollout.as_ref().map(RolloutReport::of)
    }

    /// The revision in force: the candidate, or the last good revision if the candidate was rolled back.
    pub fn in_force(&self) -> Option<u64> {
        self.rollout.as_ref().and_then(in_force)
    }

    /// The resources of a live revision, as they are served.
    pub fn bundle(&self, number: u64) -> Option<&Bundle> {
        self.live.get(&number).map(|release| &*release.bundle)
    }

    /// A value with all that is known now, for readers.
    pub fn view(&self) -> View {
        let (rollout, live, lifecycles) = (self.rollout.clone(), self.live.clone(), self.lifecycles.clone());
        let (known, generations) = (Arc::clone(&self.known), Arc::clone(&self.generations));
        let (directory, builds) = (self.directory.clone(), self.builds.clone());
        let (uses, removable) = (self.plans.all().clone(), self.settled_terms().removable);
        View { rollout, live, lifecycles, uses, known, generations, directory, removable, builds }
    }

    /// The lifecycles of the revisions that matter now.
    pub fn lifecycles(&self) -> &BTreeMap<u64, Arc<Lifecycle>> {
        &self.lifecycles
    }

    /// The revisions that brought a plan to nodes, latest first.
    pub fn plan_uses(&self, label: &str) -> Vec<PlanUse> {
        uses_of(self.plans.all(), label)
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Removes revisions that are no longer needed, and notes the rollout.
    fn tidy_up(&mut self, now: SystemTime) {
        self.forget(now);
        self.note();
    }

    /// Forgets the revisions that are neither live nor a target of a rollback.
    fn forget(&mut self, now: SystemTime) {
        let needed = self.needed();
        for number in self.live.keys().filter(|number| !needed.contains(number)) {
            if let Some(lifecycle) = self.lifecycles.get_mut(number) {
                Arc::make_mut(lifecycle).superseded(now);
            }
        }
        self.live.retain(|number, _| needed.contains(number));
        self.plans.serve(&self.live, milliseconds(now));
    }

    fn needed(&self) -> BTreeSet<u64> {
        let rollout = self.rollout.iter();
        rollout.flat_map(|rollout| [Some(rollout.candidate()), rollout.last_good()]).flatten().collect()
    }

    /// Notes the rollout in the store, and removes old revisions. Errors are only logged: the revisions themselves are
    /// stored, and a restart starts the rollout at its first step.
    pub fn note(&mut self) {
        let needed = self.needed();
        let Some(rollout) = &self.rollout else { return };
        let latest = self.live.get(&rollout.candidate());
        let keep = latest.and_then(|release| kept_by(&release.bundle)).unwrap_or(self.keep);
        // Serialization of plain data cannot fail.
        let note = |value: Result<Vec<u8>, serde_json::Error>| value.unwrap_or_default();
        let pinned = needed.iter().copied().chain(self.directory.pinned()).collect();
        let kept = self.store.collect(keep, &pinned).and_then(|gone| {
            self.lifecycles.retain(|number, _| !gone.contains(number));
            if let Some(oldest) = self.lifecycles.keys().next().filter(|_| !gone.is_empty()) {
                Arc::make_mut(&mut self.generations).prune(*oldest);
            }
            let generations = self.has_counted.then(|| note(serde_json::to_vec(&*self.generations)));
            let (rollout, lifecycles) = (serde_json::to_vec(rollout), serde_json::to_vec(&self.lifecycles));
            let plans = self.plans.changes().map(|uses| note(serde_json::to_vec(uses)));
            let (rollout, lifecycles) = (note(rollout), note(lifecycles));
            let mut notes = vec![(ROLLOUT, Some(rollout.as_slice())), (LIFECYCLES, Some(lifecycles.as_slice()))];
            notes.extend(plans.as_ref().map(|plans| (PLANS, Some(plans.as_slice()))));
            let builds = self.builds.forget(&gone);
            notes.extend(builds.iter().map(|(name, value)| (name.as_str(), value.as_deref())));
            notes.extend(generations.as_ref().map(|generations| (GENERATIONS, Some(generations.as_slice()))));
            self.store.put_notes(&notes)?;
            self.has_counted = false;
            Ok(())
        });
        if let Err(error) = kept {
            tracing::error!("the rollout's state was not kept: {error}");
        }
    }

    /// Notes the plans: the labels in log lines must be resolvable after a restart.
    fn note_plans(&mut self) {
        let Some(uses) = self.plans.changes() else { return };
        let kept = self.store.put_note(PLANS, Some(&serde_json::to_vec(uses).unwrap_or_default()));
        if let Err(error) = kept {
            tracing::error!("the labels of plans were not kept: {error}");
        }
    }
}

/// The revision in force by a rollout.
fn in_force(rollout: &Rollout) -> Option<u64> {
    if rollout.is_back() { rollout.last_good() } else { Some(rollout.candidate()) }
}
