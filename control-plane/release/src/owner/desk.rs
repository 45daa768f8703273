//! The owner itself: its state, and how it carries out each command.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use postern_base::digest::Digest;
use postern_compile::{
    keys::{LiveSources, StoredKeySet},
    lint::Finding,
    pipeline::CompileError,
    review::{Expiring, Waiting},
};
use postern_model::{Bundle, Diagnostic};
use tokio::sync::{mpsc::UnboundedReceiver, watch};

use super::{
    Counts, Examiner, InForce, Population, Purge, Steering,
    command::Command,
    in_force::{Refusals, Warned},
    work::{Examination, Reply, Step, Workshop},
};
use crate::{
    journal::{Happening, Journal},
    publication::Publication,
    releases::{
        Admission, Applied, ApplyError, Ground, Proposal, Purged, RefusedChange, Releases, Salvaged, digest_of,
        errors_by_resource, is_refusal, prove, salvage,
    },
    rollout::{Rollout, RolloutReport},
    store::Revision,
};

/// The time after which key sets that could not be stored are stored again.
const STORE_AGAIN: Duration = Duration::from_secs(10);
/// The maximum number of errors of a refused change in an event.
const MOST_REASONS: usize = 50;
/// The maximum number of warnings about a directory that are logged; the status has all.
const MOST_LOGGED: usize = 20;

/// The channel of publications.
type Publishing = watch::Sender<Option<Arc<Publication>>>;

/// The owner's state: what is in force, and the channels by which it is published.
pub(super) struct Desk {
    releases: Releases,
    refusals: Refusals,
    warned: Arc<Warned>,
    /// The rollout as it was when something was last put in force.
    shown: Option<RolloutReport>,
    moves: u64,
    examiner: Examiner,
    workshop: Workshop,
    is_at_work: bool,
    /// The changes that wait for the end of the work under way.
    waiting: VecDeque<Command>,
    /// The reply to the command to end, while work is under way.
    ended: Option<Reply<()>>,
    publications: Publishing,
    in_force: watch::Sender<Arc<InForce>>,
    keys: Arc<LiveSources>,
    /// The key sets as they were last stored.
    stored_keys: Vec<StoredKeySet>,
    /// When they could last not be stored, since they could.
    keys_not_stored: Option<Instant>,
    journal: Arc<Journal>,
    population: Population,
    counts: Arc<Counts>,
}

impl Desk {
    pub(super) fn new(
        releases: Releases,
        examiner: Examiner,
        workshop: Workshop,
        (publications, in_force): (Publishing, watch::Sender<Arc<InForce>>),
        (keys, journal, population): (Arc<LiveSources>, Arc<Journal>, Population),
    ) -> Self {
        let (refusals, warned, shown, moves, waiting, ended, counts) = Default::default();
        Self {
            releases,
            refusals,
            warned,
            shown,
            moves,
            examiner,
            workshop,
            is_at_work: false,
            waiting,
            ended,
            publications,
            in_force,
            keys,
            stored_keys: Vec::new(),
            keys_not_stored: None,
            journal,
            population,
            counts,
        }
    }

    pub(super) fn counting(self, counts: Arc<Counts>) -> Self {
        Self { counts, ..self }
    }

    /// Carries out commands until all senders are dropped, or until a command ends it.
    pub(super) fn run(mut self, mut commands: UnboundedReceiver<Command>) {
        while let Some(command) = commands.blocking_recv() {
            self.guarded(|desk| desk.take(command));
            while !self.is_at_work
                && self.ended.is_none()
                && let Some(next) = self.waiting.pop_front()
            {
                self.guarded(|desk| desk.carry_out(next));
            }
            if let Some(reply) = self.ended.take() {
                self.store_keys();
                // The state is dropped before the reply, so that the store is closed.
                drop((self, commands));
                return answer(reply, Ok(()));
            }
        }
    }

    /// Calls `act` and catches a panic, which drops the reply of this command only: every statement leaves the state
    /// consistent.
    fn guarded(&mut self, act: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| act(self))).is_err() {
            tracing::error!("a command panicked, and was not carried out to its end");
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Look(reply) => answer(reply, self.look()),
            Command::Done(step) => {
                self.is_at_work = false;
                match step {
                    Some(step) => self.step(step),
                    None => tracing::error!("a change panicked while it was compiled, and is not taken in"),
                }
            }
            // One renewal is enough for all key changes that came before it.
            Command::RenewKeys if self.waiting.iter().any(|waiting| matches!(waiting, Command::RenewKeys)) => {}
            command => self.waiting.push_back(command),
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Restore(reply) => answer(reply, self.restore()),
            Command::Apply(proposal, back_to, reply) => self.apply(proposal, back_to, reply),
            Command::Follow(proposal, reply) => self.follow(proposal, reply),
            Command::Salvage(proposal, unread, reply) => self.salvage(proposal, unread, reply),
            Command::Steer(steering, reply) => answer(reply, self.steer(steering)),
            Command::Purge(purge, reply) => answer(reply, self.purge(&purge)),
            Command::Refuse(error, reply) => {
                self.refuse_directory(&error);
                answer(reply, Ok(()));
            }
            Command::RenewKeys => self.renew_keys(),
            Command::End(reply) => self.ended = Some(reply),
            #[cfg(any(test, feature = "test-hooks"))]
            Command::Publish(snapshot, reply) => {
                self.refusals = Refusals::default();
                self.publications.send_replace(Some(Arc::new(Publication::uniform(*snapshot))));
                self.publish();
                answer(reply, Ok(()));
            }
            #[cfg(feature = "test-hooks")]
            Command::PastTheGate(proposal, plan, reply) => answer(reply, self.apply_past_the_gate(proposal, &plan)),
            Command::Look(_) | Command::Done(_) => self.take(command),
        }
    }

    fn restore(&mut self) -> Result<bool, ApplyError> {
        // Before anything is compiled: nodes that run already must not lose the keys that they have.
        self.stored_keys = self.releases.key_sets()?;
        self.keys.restore(self.stored_keys.clone());
        let restored = self.releases.restore(&self.examiner.known(), SystemTime::now())?;
        self.put_in_force();
        self.publish();
        Ok(restored.is_some())
    }

    fn apply(&mut self, proposal: Proposal, back_to: Option<u64>, reply: Reply<Applied>) {
        self.releases.note_runners(&self.population.fleet.sightings());
        let (ground, examiner) = (self.releases.ground(), self.examiner.clone());
        self.work(move || Step::TakeIn(examination(&proposal, &ground, &examiner), back_to, reply));
    }

    /// Applies a directory, but only when its contents change.
    fn follow(&mut self, proposal: Proposal, reply: Reply<()>) {
        self.releases.note_runners(&self.population.fleet.sightings());
        let (ground, examiner, directory) = (self.releases.ground(), self.examiner.clone(), self.releases.directory());
        self.work(move || {
            let said = digest_of(&proposal.files);
            let news = directory.says_again(&proposal.files, &said).map_err(ApplyError::from);
            let news = news.map(|again| (!again).then(|| examination(&proposal, &ground, &examiner)));
            Step::Follow(news.map(|news| (news, said)), reply)
        });
    }

    fn salvage(&mut self, proposal: Proposal, unread: Vec<Diagnostic>, reply: Reply<()>) {
        let (ground, examiner) = (self.releases.ground(), self.examiner.clone());
        self.work(move || {
            let said = digest_of(&proposal.files);
            Step::Salvage(salvage(proposal, unread, &ground, &examiner.known()).map(Box::new), said, reply)
        });
    }

    fn take_salvaged(&mut self, salvaged: Salvaged, said: Digest) -> Result<(), ApplyError> {
        let is_whole = salvaged.is_whole();
        let problems = salvaged.problems().cloned();
        let Revision { number, author, message, .. } = self.releases.take_salvaged(salvaged, SystemTime::now())?;
        for problem in problems.iter().flatten() {
            tracing::error!(revision = number, "not valid, and served as a refusal: {problem}");
        }
        self.journal.note(Happening::RevisionAccepted { revision: number, author, message }, SystemTime::now());
        self.put_in_force();
        self.releases.note();
        self.publish();
        if is_whole { Ok(self.releases.followed(number, said)?) } else { Ok(()) }
    }

    /// Carries out the result of a piece of work.
    fn step(&mut self, step: Step) {
        match step {
            Step::TakeIn(examined, back_to, reply) => answer(reply, self.take_in_change(examined, back_to)),
            Step::Follow(news, reply) => answer(reply, self.take_in_directory(news)),
            Step::Salvage(salvaged, said, reply) => {
                answer(reply, salvaged.and_then(|salvaged| self.take_salvaged(*salvaged, said)));
            }
            Step::Renew(renewed) => self.take_in_keys(renewed),
        }
    }

    /// Takes in a change of a user, or remembers why it was refused.
    fn take_in_change(&mut self, mut examined: Examination, back_to: Option<u64>) -> Result<Applied, ApplyError> {
        let (by, errors) = (mem::take(&mut examined.by), mem::take(&mut examined.errors));
        let before = self.releases.ground();
        let applied = self.take_in(examined);
        match &applied {
            Ok(applied) => {
                self.refusals.of_users = None;
                if let (Applied::Revision(_), Some(number)) = (applied, back_to) {
                    self.releases.went_back(&before, number, &by.0);
                }
                self.publish();
            }
            Err(error) if is_refusal(error) => {
                let refused = RefusedChange::new(by, &error.to_string(), SystemTime::now());
                self.tell_refused(&refused.reasons);
                self.refusals.of_users = Some(Arc::new(RefusedChange { resources: errors, ..refused }));
                self.publish();
            }
            Err(_) => {}
        }
        applied
    }

    fn take_in_directory(&mut self, news: Result<(Option<Examination>, Digest), ApplyError>) -> Result<(), ApplyError> {
        let (examined, said) = news?;
        let Some(mut examined) = examined else {
            // The last refusal is obsolete.
            self.refusals.of_directory = None;
            self.releases.heard(said);
            self.publish();
            return Ok(());
        };
        if let Ok(proved) = &examined.proved
            && let Err(still_said) = self.releases.stays_taken_back(proved)
        {
            examined.proved = Err(still_said.into());
        }
        let (by, errors) = (mem::take(&mut examined.by), mem::take(&mut examined.errors));
        let applied = self.take_in(examined).inspect_err(|error| {
            // That it is refused is told by who reads the directory; here its errors are kept by resource.
            let refused = RefusedChange::new(by, &error.to_string(), SystemTime::now());
            self.refusals.of_directory = Some(Arc::new(RefusedChange { resources: errors, ..refused }));
        })?;
        self.refusals = Refusals::default();
        let followed = self.has_followed(&applied, said);
        self.publish();
        followed
    }

    fn has_followed(&mut self, applied: &Applied, said: Digest) -> Result<(), ApplyError> {
        let (Applied::Revision(revision) | Applied::Unchanged(revision)) = applied;
        for Finding { at, code } in self.releases.view().findings().iter().take(MOST_LOGGED) {
            tracing::warn!(code, "{at}");
        }
        Ok(self.releases.followed(revision.number, said)?)
    }

    /// Stores a proposal that was proved, or returns why it was refused.
    fn take_in(&mut self, Examination { proved, begin, .. }: Examination) -> Result<Applied, ApplyError> {
        let applied = proved.and_then(|proved| self.releases.admit(*proved, SystemTime::now()));
        self.counts.applied(&applied, begin.elapsed());
        let applied = applied?;
        if let Applied::Revision(Revision { number, author, message, .. }) = &applied {
            let (revision, author, message) = (*number, author.clone(), message.clone());
            self.journal.note(Happening::RevisionAccepted { revision, author, message }, SystemTime::now());
            self.put_in_force();
            // It is stored. The notes can be written while nodes receive it.
            self.releases.note();
        }
        Ok(applied)
    }

    fn renew_keys(&mut self) {
        let (bundles, examiner) = (self.releases.live_bundles(), self.examiner.clone());
        self.work(move || {
            let known = examiner.known();
            let admit = |(number, bundle): (u64, Arc<Bundle>)| Ok((number, known.admit(&bundle)?));
            Step::Renew(bundles.into_iter().map(admit).collect())
        });
    }

    fn take_in_keys(&mut self, renewed: Result<Vec<(u64, Publication)>, CompileError>) {
        match renewed {
            Ok(renewed) => {
                self.releases.renew(renewed, SystemTime::now());
                self.put_in_force();
                self.publish();
            }
            Err(error) => {
                tracing::error!("a change of keys is refused: {error}");
                let by = ("keys".to_owned(), String::new());
                let refused = RefusedChange::new(by, &error.to_string(), SystemTime::now());
                self.tell_refused(&refused.reasons);
                self.refusals.of_users = Some(Arc::new(refused));
                self.publish();
            }
        }
    }

    fn steer(&mut self, steering: Steering) -> Result<(), ApplyError> {
        let command = match steering {
            Steering::Pause => Rollout::pause,
            Steering::Resume => Rollout::resume,
            Steering::Abort => |rollout: &mut Rollout| rollout.abort().map(drop),
        };
        self.releases.command(command, SystemTime::now())?;
        self.put_in_force();
        self.publish();
        Ok(())
    }

    fn purge(&mut self, Purge { resource, dry_run, author }: &Purge) -> Result<Purged, ApplyError> {
        let purged = self.releases.purge(resource, *dry_run)?;
        if !dry_run {
            let (resource, revisions, author) = (resource.to_string(), purged.revisions.clone(), author.clone());
            tracing::info!(resource, ?revisions, author, "purged");
            self.journal.note(Happening::ResourcePurged { resource, revisions, author }, SystemTime::now());
            self.publish();
        }
        Ok(purged)
    }

    /// Records that a change of the directory was refused.
    fn refuse_directory(&mut self, error: &str) {
        let refused = RefusedChange::new(("directory".to_owned(), String::new()), error, SystemTime::now());
        self.tell_refused(&refused.reasons);
        // What was examined is kept with its errors by resource.
        if self.refusals.of_directory.as_ref().is_none_or(|known| known.reasons != refused.reasons) {
            self.refusals.of_directory = Some(Arc::new(refused));
        }
        self.publish();
    }

    /// Records a refusal in the journal.
    fn tell_refused(&self, reasons: &[String]) {
        let mut told: Vec<_> = reasons.iter().take(MOST_REASONS).cloned().collect();
        if reasons.len() > MOST_REASONS {
            told.push(format!("and {} more", reasons.len() - MOST_REASONS));
        }
        self.journal.note(Happening::ChangeRefused { reasons: told }, SystemTime::now());
    }

    fn look(&mut self) -> Result<(), ApplyError> {
        if self.releases.observe(&self.population.sightings(), SystemTime::now()) {
            self.put_in_force();
        }
        if self.keys_not_stored.is_some_and(|failed| failed.elapsed() > STORE_AGAIN) {
            self.store_keys();
        }
        self.publish();
        Ok(())
    }

    #[cfg(feature = "test-hooks")]
    fn apply_past_the_gate(&mut self, proposal: Proposal, plan: &[u8]) -> Result<(), ApplyError> {
        let bundle = self.examiner.known().read(&proposal.files)?;
        let digest = Digest::of(plan);
        let plan = postern_compile::gate::AdmittedPlan::forced_past_the_gate(plan);
        let scope = postern_compile::attach::Scope::of(&bundle, &postern_base::node::NodeIdentity::default());
        let attachment = postern_compile::attach::attach(&scope);
        let code = self.examiner.code();
        let snapshot = postern_compile::snapshot::Snapshot::build(&scope, &attachment, plan, code, digest.clone());
        let publication = Publication::uniform(snapshot);
        self.releases.note_runners(&self.population.fleet.sightings());
        self.releases.release_unproved(proposal, digest.to_string(), bundle, publication, SystemTime::now())?;
        self.put_in_force();
        self.publish();
        Ok(())
    }

    /// Starts long work on the second thread. Changes that come meanwhile wait.
    fn work(&mut self, work: impl FnOnce() -> Step + Send + 'static) {
        self.is_at_work = self.workshop.hand(work);
    }

    /// Publishes to every stream, unless nothing changes for any node. The key sets that the resources in force need
    /// are fetched from now on.
    fn put_in_force(&mut self) {
        let Some(publication) = self.releases.publication() else { return };
        self.store_new_keys();
        let revision = publication.revision().clone();
        let mut before = None;
        self.publications.send_if_modified(|current| {
            let is_news = !current.as_ref().is_some_and(|current| publication.serves_the_same_as(current));
            // Later readers get a value that does not keep the former publication alive.
            before = current.replace(Arc::new(publication));
            is_news
        });
        // Dropping it is slow, and no lock is held here.
        drop(before);
        self.moves = self.moves.wrapping_add(1);
        self.note_warnings();
        self.keys.want_all(self.releases.bundles());
        let report = self.releases.report();
        if let Some(RolloutReport { candidate: number, step, steps, state, .. }) = &report {
            tracing::info!(number, revision = revision.short(), step, steps, ?state, "in force");
        }
        if let Some(rollout) = report.clone().filter(|report| self.shown.as_ref() != Some(report)) {
            self.counts.rollout(self.shown.as_ref(), &rollout);
            self.journal.note(Happening::Rollout { rollout }, SystemTime::now());
        }
        self.shown = report;
    }

    /// Stores the key sets if one has changed. It is called before plans with them are published, so that no restart
    /// makes a plan with fewer keys than nodes have.
    fn store_new_keys(&mut self) {
        let known = self.keys.stored();
        let known_already = known.len() == self.stored_keys.len()
            && known.iter().zip(&self.stored_keys).all(|(set, stored)| set.is_the_answer_of(stored));
        if !known_already {
            self.store_keys();
        }
    }

    fn store_keys(&mut self) {
        let known = self.keys.stored();
        match self.releases.keep_key_sets(&known) {
            Ok(()) => (self.stored_keys, self.keys_not_stored) = (known, None),
            Err(error) => {
                tracing::error!("the keys of issuers were not stored: a restart has the former ones: {error}");
                self.keys_not_stored = Some(Instant::now());
            }
        }
    }

    fn note_warnings(&mut self) {
        let revision = self.releases.in_force();
        if self.warned.revision != revision {
            let bundle = revision.and_then(|number| self.releases.bundle(number));
            let waiting = bundle.map(Waiting::of).unwrap_or_default();
            let certificates = bundle.map(Expiring::of).unwrap_or_default();
            let findings = self.releases.view().findings();
            self.warned = Arc::new(Warned { revision, findings, waiting, certificates });
        }
    }

    /// Publishes the present state to readers.
    fn publish(&self) {
        let (releases, moves) = (self.releases.view(), self.moves);
        let (refusals, warned) = (self.refusals.clone(), Arc::clone(&self.warned));
        drop(self.in_force.send_replace(Arc::new(InForce { releases, refusals, warned, moves })));
    }
}

/// Examines a proposal with what is known now.
fn examination(proposal: &Proposal, ground: &Ground, examiner: &Examiner) -> Examination {
    let begin = Instant::now();
    let proved = prove(proposal, ground, &examiner.known()).map(Box::new);
    let errors = proved.as_ref().err().map(|error| errors_by_resource(&proposal.files, error)).unwrap_or_default();
    Examination { proved, errors, by: (proposal.author.clone(), proposal.message.clone()), begin }
}

/// Sends an answer, unless nobody waits for it any more.
fn answer<T>(reply: Reply<T>, answer: Result<T, ApplyError>) {
    let _ = reply.send(answer);
}
