//! Rollouts: which node gets which of two revisions, and when the new one goes on, ends or goes back. Pure: the fleet
//! as it is and the time are arguments.
//!
//! A rollout is looked at as often as one likes ([`Rollout::observe`]); it depends on what is the case and not on
//! having seen every event, so that it goes on where it was after a restart, and two looks at the same are as good as
//! one. Nothing passes because nobody was asked: a step needs at least one live node that has acknowledged.
//!
//! Whose answer counts: the *witnesses*, nodes that ran the last good revision before this one started. One that never ran
//! that proves nothing about this one: it may be a stranger, broken, or have refused both.

mod observed;
mod report;
mod strategy;
mod tolerance;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use postern_base::{digest::Digest, node::NodeIdentity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    observed::{Observed, Standing},
    report::RolloutReport,
    strategy::{Pick, Step, Strategy},
    tolerance::Tolerance,
};
use crate::store::milliseconds;

/// How long a node of a canary may be away: a stream that is opened anew is no node that is gone.
pub const GRACE: Duration = Duration::from_secs(10);
/// The same for one that has not come since this process started: whoever found nobody for a while tries less often.
pub const GRACE_AFTER_RESTART: Duration = Duration::from_secs(60);

/// A revision on its way to the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The revision that spreads.
    candidate: u64,
    /// The one to go back to; none for the first of all.
    stable: Option<u64>,
    strategy: Strategy,
    /// How many witnesses may refuse it.
    #[serde(default)]
    tolerance: Tolerance,
    /// The nodes that ran the last good revision when this one started; if that is not known, every node.
    #[serde(default)]
    witnesses: Option<BTreeSet<String>>,
    /// The step under way; past the last one, all nodes get it.
    step: usize,
    state: State,
    /// The nodes that steps have chosen by share.
    chosen: BTreeSet<String>,
    /// Whether the step under way has chosen its own.
    has_chosen: bool,
    /// Since when nodes of a canary are away, in milliseconds since 1970.
    away: BTreeMap<String, u64>,
    /// Since when every node of the step runs it, in milliseconds since 1970.
    settled: Option<u64>,
}

/// What became of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum State {
    /// It goes on.
    Progressing,
    /// It goes no further until it is resumed; it still goes back by itself.
    Paused,
    /// Every live node runs the new revision, which is the last good one from now on.
    Completed,
    /// Every node is back on the last good revision.
    RolledBack {
        /// The node that it failed on.
        node: String,
        /// Why.
        reason: String,
    },
    /// The same, because somebody said so.
    Aborted,
}

/// What a look at the fleet, or a command, changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing that anybody has to act on.
    None,
    /// Other nodes get the new revision now.
    Spread,
    /// It is over: see [`Rollout::state`].
    Ended,
}

/// A command that does not fit the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rollout of revision {revision} is {state}")]
pub struct NotNow {
    revision: u64,
    state: &'static str,
}

impl Rollout {
    /// Starts to spread `candidate` over nodes that run `stable`. The first revision of all has nothing to go back to,
    /// and so spreads at once.
    pub fn start(candidate: u64, stable: Option<u64>, strategy: Strategy) -> Self {
        let strategy = if stable.is_some() { strategy } else { Strategy::AllAtOnce };
        Self {
            candidate,
            stable,
            strategy,
            tolerance: Tolerance::default(),
            witnesses: None,
            step: 0,
            state: State::Progressing,
            chosen: BTreeSet::new(),
            has_chosen: false,
            away: BTreeMap::new(),
            settled: None,
        }
    }

    /// The same, which so many witnesses may refuse.
    #[must_use]
    pub fn tolerating(self, tolerance: Tolerance) -> Self {
        Self { tolerance, ..self }
    }

    /// The same, with the nodes that run the last good revision now.
    #[must_use]
    pub fn witnessed_by(self, nodes: BTreeSet<String>) -> Self {
        Self { witnesses: Some(nodes), ..self }
    }

    /// The revision that spreads.
    pub fn candidate(&self) -> u64 {
        self.candidate
    }

    /// The revision before it, which nodes go back to.
    pub fn stable(&self) -> Option<u64> {
        self.stable
    }

    /// The last good revision: the one before until this one has completed.
    pub fn last_good(&self) -> Option<u64> {
        if self.state == State::Completed { Some(self.candidate) } else { self.stable }
    }

    /// What became of it.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The step under way, from 1, and how many there are with the last one, to all nodes.
    pub fn progress(&self) -> (usize, usize) {
        let steps = self.strategy.steps().len() + 1;
        ((self.step + 1).min(steps), steps)
    }

    /// Whether it still has somewhere to go.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, State::Progressing | State::Paused)
    }

    /// Whether every node is to go back.
    pub fn is_back(&self) -> bool {
        matches!(self.state, State::RolledBack { .. } | State::Aborted)
    }

    /// Whether every node is to run the new revision, those that will come too.
    pub fn is_everywhere(&self) -> bool {
        match self.state {
            State::Completed => true,
            State::RolledBack { .. } | State::Aborted => false,
            State::Progressing | State::Paused => self.stable.is_none() || self.is_last_step(),
        }
    }

    /// The revision that a node is to run.
    pub fn revision_for(&self, node: &NodeIdentity) -> u64 {
        let Some(stable) = self.stable else { return self.candidate };
        let on_candidate = match self.state {
            State::Completed => true,
            State::RolledBack { .. } | State::Aborted => false,
            State::Progressing | State::Paused => self.includes(node),
        };
        if on_candidate { self.candidate } else { stable }
    }

    /// Looks at the fleet and draws conclusions.
    pub fn observe(&mut self, nodes: &[Observed], now: SystemTime) -> Change {
        if !self.is_under_way() {
            return Change::None;
        }
        if let Some((node, reason)) = self.failure(nodes, milliseconds(now)) {
            return self.roll_back(node, reason);
        }
        if self.choose(nodes) {
            return Change::Spread;
        }
        if !self.has_settled(nodes, milliseconds(now)) || self.state == State::Paused {
            return Change::None;
        }
        self.promote()
    }

    /// Goes no further for now.
    pub fn pause(&mut self) -> Result<(), NotNow> {
        self.expect(self.state == State::Progressing)?;
        self.state = State::Paused;
        Ok(())
    }

    /// Goes on.
    pub fn resume(&mut self) -> Result<(), NotNow> {
        self.expect(self.state == State::Paused)?;
        self.state = State::Progressing;
        Ok(())
    }

    /// Goes back to the last good revision.
    pub fn abort(&mut self) -> Result<Change, NotNow> {
        self.expect(self.is_under_way() && self.stable.is_some())?;
        self.state = State::Aborted;
        Ok(Change::Ended)
    }

    fn expect(&self, fits: bool) -> Result<(), NotNow> {
        let state = match self.state {
            State::Progressing if self.stable.is_none() => "the first one: there is nothing to go back to",
            State::Progressing => "under way",
            State::Paused => "paused",
            State::Completed => "completed",
            State::RolledBack { .. } => "rolled back",
            State::Aborted => "aborted",
        };
        if fits { Ok(()) } else { Err(NotNow { revision: self.candidate, state }) }
    }

    fn is_last_step(&self) -> bool {
        self.step >= self.strategy.steps().len()
    }

    fn includes(&self, node: &NodeIdentity) -> bool {
        let steps = self.strategy.steps().iter().take(self.step + 1);
        self.is_last_step() || self.chosen.contains(&node.id) || steps.into_iter().any(|step| step.nodes.names(node))
    }

    /// Whether a node ran the revision before, so that what it says of the new one counts.
    pub fn is_witness(&self, node: &NodeIdentity) -> bool {
        self.witnesses.as_ref().is_none_or(|witnesses| witnesses.contains(&node.id))
    }

    /// The node whose refusal of the new revision is one too many, or that is away since it got it.
    fn failure(&mut self, nodes: &[Observed], now: u64) -> Option<(String, String)> {
        if let Some(refusal) = self.refusal(nodes) {
            return Some(refusal);
        }
        let mut away = BTreeMap::new();
        for Observed { node, connected, .. } in nodes.iter().filter(|observed| self.includes(&observed.node)) {
            // Once all nodes get it, one that ends is no sign of anything: fleets shrink and grow.
            if !connected && !self.is_last_step() && (self.away.contains_key(&node.id) || self.was_asked(node)) {
                away.insert(node.id.clone(), self.away.get(&node.id).copied().unwrap_or(now));
            }
        }
        let unseen = self.unseen(nodes);
        away.extend(unseen.iter().map(|node| (node.clone(), self.away.get(node).copied().unwrap_or(now))));
        self.away = away;
        let gone = |(node, since): &(&String, &u64)| {
            let grace = if unseen.contains(*node) { GRACE_AFTER_RESTART } else { GRACE };
            u128::from(now.saturating_sub(**since)) >= grace.as_millis()
        };
        let (node, _) = self.away.iter().find(gone)?;
        Some((node.clone(), "it went away".to_owned()))
    }

    /// The first of the witnesses that refuse it, if they are too many.
    fn refusal(&self, nodes: &[Observed]) -> Option<(String, String)> {
        let asked = || nodes.iter().filter(|seen| self.includes(&seen.node) && self.is_witness(&seen.node));
        let mut refusals = asked().filter_map(|seen| match &seen.standing {
            Standing::Nacked(reason) => Some((seen.node.id.clone(), reason.clone())),
            Standing::Acked | Standing::Pending => None,
        });
        let first = refusals.next()?;
        let tolerated = self.tolerance.of(asked().filter(|seen| seen.connected).count());
        (refusals.count() >= tolerated).then_some(first)
    }

    /// The nodes of a canary that the fleet does not know: they went while nobody was there to see it.
    fn unseen(&self, nodes: &[Observed]) -> BTreeSet<String> {
        if self.chosen.is_empty() || self.is_last_step() {
            return BTreeSet::new();
        }
        let seen: BTreeSet<_> = nodes.iter().map(|observed| observed.node.id.as_str()).collect();
        self.chosen.iter().filter(|node| !seen.contains(node.as_str())).cloned().collect()
    }

    /// Nodes that a share chose were live then; those with tags may have been away all along.
    fn was_asked(&self, node: &NodeIdentity) -> bool {
        self.chosen.contains(&node.id)
    }

    fn roll_back(&mut self, node: String, reason: String) -> Change {
        // The first of all has nothing to go back to: it waits for its nodes, or for a better one.
        if self.stable.is_none() {
            return Change::None;
        }
        self.state = State::RolledBack { node, reason };
        Change::Ended
    }

    /// Lets the step under way choose its nodes, once there are any. Says whether it did.
    fn choose(&mut self, nodes: &[Observed]) -> bool {
        let Some(step) = self.strategy.steps().get(self.step).filter(|_| !self.has_chosen) else { return false };
        let mut live: Vec<_> = self.counted(nodes).map(|seen| &seen.node).collect();
        if live.is_empty() {
            return false;
        }
        let wanted = match &step.nodes {
            Pick::Share(share) => live.len().saturating_mul(usize::from(*share)).div_ceil(100),
            // Whoever is live and has the tags is watched from now on.
            Pick::Tags(_) => live.iter().filter(|node| step.nodes.names(node)).count(),
        };
        // Those with the tags and those of earlier steps first, then in an order that has nothing to do with names.
        live.sort_by_key(|node| {
            (!step.nodes.names(node), !self.chosen.contains(&node.id), Digest::of(node.id.as_bytes()))
        });
        self.chosen.extend(live.into_iter().take(wanted).map(|node| node.id.clone()));
        self.has_chosen = wanted > 0;
        wanted > 0
    }

    /// The live witnesses; if there are none, all live nodes.
    fn counted<'a>(&self, nodes: &'a [Observed]) -> impl Iterator<Item = &'a Observed> {
        let live = |seen: &&Observed| seen.connected;
        let any = nodes.iter().filter(live).any(|seen| self.is_witness(&seen.node));
        nodes.iter().filter(live).filter(move |seen| !any || self.is_witness(&seen.node))
    }

    /// Whether every live node of the step that counts runs it, but for refusals that are tolerated, and has for as long
    /// as the step wants.
    fn has_settled(&mut self, nodes: &[Observed], now: u64) -> bool {
        let concerned: Vec<_> = self.counted(nodes).filter(|seen| self.includes(&seen.node)).collect();
        let asked = self.has_chosen || self.is_last_step();
        let runs = |seen: &&&Observed| seen.standing == Standing::Acked;
        // That there are not too many of these was seen before.
        let refuses = |seen: &Observed| self.is_witness(&seen.node) && matches!(seen.standing, Standing::Nacked(_));
        let answered = concerned.iter().all(|seen| runs(&seen) || refuses(seen));
        if !asked || !answered || !concerned.iter().any(|seen| runs(&seen)) {
            self.settled = None;
            return false;
        }
        let since = *self.settled.get_or_insert(now);
        let pause = self.strategy.steps().get(self.step).map_or(Duration::ZERO, |step| step.pause);
        self.away.is_empty() && u128::from(now.saturating_sub(since)) >= pause.as_millis()
    }

    fn promote(&mut self) -> Change {
        if self.is_last_step() {
            self.state = State::Completed;
            return Change::Ended;
        }
        self.step += 1;
        (self.has_chosen, self.settled) = (false, None);
        Change::Spread
    }
}
