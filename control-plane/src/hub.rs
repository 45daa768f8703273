//! What the hub does with revisions: takes proposals in, publishes what comes of them, and looks after their rollouts.

use std::{
    collections::BTreeMap,
    sync::{Arc, MutexGuard},
    time::{Duration, Instant, SystemTime},
};

use tokio::time;

use crate::{
    digest::Digest,
    fleet::Sighting,
    journal::Happening,
    keys::KeySets,
    lint::Finding,
    model::{Bundle, Diagnostics, File, Reader},
    node::NodeIdentity,
    pipeline::CompileError,
    publication::Publication,
    releases::{Admission, Applied, ApplyError, Examined, Proposal, Releases, RolloutReport, examine},
    review::Waiting,
    revision::revision,
    serve::{Hub, Warned, lock},
    snapshot::FilterCode,
    store::{NodeRecord, Revision},
};

/// A rollout is looked at as soon as a node has something to say. After a look there is a pause of so many times what it
/// took: while thousands of nodes answer, a look costs much and tells little …
const PAUSE_FOR_LOOK: u32 = 19;
/// … but no longer than this, since one may have refused.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How often a rollout is looked at because a pause may have ended.
const PAUSES: Duration = Duration::from_millis(200);

impl Hub {
    /// Puts resources in force as a new revision, with the published keys that are known, or refuses them whole. Keys
    /// that are not known yet are fetched; nothing waits for them.
    pub fn apply(&self, proposal: Proposal) -> Result<Applied, ApplyError> {
        let fleet = self.fleet().sightings();
        let mut releases = lock(&self.releases);
        releases.note_runners(&fleet);
        let begin = Instant::now();
        let applied = releases.accept(proposal, &self.admission(), SystemTime::now());
        self.metrics().applied(&applied, begin.elapsed());
        let applied = applied?;
        *lock(&self.refused_change) = Vec::new();
        if let Applied::Revision(Revision { number, author, message, .. }) = &applied {
            let (revision, author, message) = (*number, author.clone(), message.clone());
            self.journal().note(Happening::RevisionAccepted { revision, author, message }, SystemTime::now());
            self.put_in_force(&releases);
            // It is stored; the rest can follow while nodes take it in.
            releases.note();
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
        let bundle = self.reader.read(&proposal.files)?;
        let digest = Digest::of(&plan);
        let plan = crate::gate::AdmittedPlan::forced_past_the_gate(&plan);
        let scope = crate::attach::Scope::of(&bundle, &NodeIdentity::default());
        let attachment = crate::attach::attach(&scope);
        let snapshot = crate::snapshot::Snapshot::build(&scope, &attachment, plan, &self.code, digest.clone());
        let publication = Publication::uniform(snapshot);
        let mut releases = lock(&self.releases);
        releases.note_runners(&self.fleet().sightings());
        releases.release_unproved(proposal, digest.to_string(), bundle, publication, SystemTime::now())?;
        self.put_in_force(&releases);
        Ok(())
    }

    /// Puts the same resources in force with the keys that are known now.
    pub(crate) fn keys_changed(&self) {
        let mut releases = lock(&self.releases);
        match releases.renew(&self.admission(), SystemTime::now()) {
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

    /// Whether a proposal would be taken, up to the store, and what is worth a warning about it.
    pub fn prove(&self, proposal: &Proposal) -> Result<Vec<Finding>, ApplyError> {
        let bundle = self.reader.read(&proposal.files)?;
        let Examined { findings, .. } = examine(&bundle, &self.admission())?;
        lock(&self.releases).refuse_to_open(&bundle, proposal.allow_unguarded, &self.identities())?;
        Ok(self.with_waiting(&findings, &Waiting::of(&bundle)))
    }

    /// Resources that are right: they would be taken, unless they open what is guarded now.
    pub fn admissible(&self, files: &[File]) -> Result<Bundle, ApplyError> {
        let bundle = self.reader.read(files)?;
        examine(&bundle, &self.admission())?;
        Ok(bundle)
    }

    /// What is worth a warning about what is in force, by file and line. It does not wait for a proposal that is being
    /// taken in.
    pub fn warnings(&self) -> Vec<Finding> {
        let warned = Arc::clone(&lock(&self.warned));
        self.with_waiting(&warned.findings, &warned.waiting)
    }

    fn with_waiting(&self, findings: &[Finding], waiting: &Waiting) -> Vec<Finding> {
        let mut all = findings.to_vec();
        all.extend(waiting.findings(&self.identities()));
        all.sort();
        all
    }

    /// The nodes and the clients of policy discovery that say who they are, in the order of their identities: both count for
    /// rollouts.
    pub fn sightings(&self) -> Vec<Sighting> {
        let mut all = self.fleet().sightings();
        all.extend(self.clients().sightings());
        all.sort_by(|one, other| one.node.id.cmp(&other.node.id));
        all
    }

    /// Who these say they are.
    pub fn identities(&self) -> Vec<NodeIdentity> {
        let mut all = self.fleet().identities();
        all.extend(self.clients().identities());
        all
    }

    /// Looks at the fleet now, so that conditions are up to date.
    pub fn look(&self) {
        let mut releases = lock(&self.releases);
        let fleet = self.sightings();
        if releases.observe(&fleet, SystemTime::now()) {
            self.put_in_force(&releases);
        }
    }

    /// Looks after rollouts, for ever: promotes, completes and rolls back as the fleet answers.
    pub async fn follow_rollouts(&self) {
        let mut changes = self.fleet().changes();
        loop {
            changes.mark_unchanged();
            let begin = Instant::now();
            self.look();
            let pause = begin.elapsed().saturating_mul(PAUSE_FOR_LOOK).min(LONGEST_PAUSE);
            let under_way = lock(&self.releases).is_under_way();
            tokio::select! {
                () = self.rollout.notified() => {}
                _ = changes.changed(), if under_way => time::sleep(pause).await,
                () = time::sleep(PAUSES), if under_way => {}
            }
        }
    }

    fn admission(&self) -> Known<'_> {
        let previous = self.publications.borrow().clone();
        let nodes = self.identities();
        Known { key_sets: self.key_sources().sets(), reader: &self.reader, code: &self.code, nodes, previous }
    }

    /// The nodes that were there when a rollout last ended, and are not now.
    pub fn absent_nodes(&self) -> BTreeMap<String, NodeRecord> {
        let mut absent = lock(&self.releases).known_nodes().clone();
        let fleet = self.sightings();
        fleet.iter().filter(|node| node.connected).for_each(|node| drop(absent.remove(&node.node.id)));
        absent
    }

    /// How what is in force spreads. It does not wait for a proposal that is being taken in.
    pub fn rollout_report(&self) -> Option<RolloutReport> {
        lock(&self.rollout_report).clone()
    }

    fn note_warnings(&self, releases: &Releases) {
        let mut warned = lock(&self.warned);
        let in_force = releases.in_force();
        if warned.revision != in_force {
            let waiting = in_force.and_then(|number| releases.bundle(number)).map(Waiting::of).unwrap_or_default();
            *warned = Arc::new(Warned { revision: in_force, findings: releases.findings(), waiting });
        }
    }

    /// Tells every stream, unless that would tell it nothing. The keys that the resources in force need are wanted from
    /// now on.
    fn put_in_force(&self, releases: &Releases) {
        let Some(publication) = releases.publication() else { return };
        let revision = publication.revision().clone();
        self.publications.send_if_modified(|current| {
            let is_news = !current.as_ref().is_some_and(|current| publication.serves_the_same_as(current));
            // Whoever comes later finds what holds on to nothing that is over.
            *current = Some(Arc::new(publication));
            is_news
        });
        self.note_warnings(releases);
        self.key_sources().want_all(releases.bundles(), self.uptime());
        let report = releases.report();
        if let Some(RolloutReport { candidate: number, step, steps, state, .. }) = &report {
            tracing::info!(number, revision = revision.short(), step, steps, ?state, "in force");
        }
        let mut shown = lock(&self.rollout_report);
        if let Some(rollout) = report.clone().filter(|report| shown.as_ref() != Some(report)) {
            self.metrics().rollout(shown.as_ref(), &rollout);
            self.journal().note(Happening::Rollout { rollout }, SystemTime::now());
        }
        *shown = report;
        drop(shown);
        self.wanted_keys.notify_one();
        self.rollout.notify_one();
    }
}

/// Admission with what is known at the time.
struct Known<'a> {
    key_sets: KeySets,
    /// What was read before.
    reader: &'a Reader,
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

    fn read(&self, files: &[File]) -> Result<Bundle, Diagnostics> {
        self.reader.read(files)
    }

    fn nodes(&self) -> &[NodeIdentity] {
        &self.nodes
    }

    /// Over the resources alone: keys come and go without anybody's doing.
    fn digest(&self, bundle: &Bundle) -> Digest {
        revision(bundle, &KeySets::default(), self.code.digest())
    }
}
