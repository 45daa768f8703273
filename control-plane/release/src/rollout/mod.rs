//! Rollouts: which node gets which of two revisions, and when the new one is promoted, completed or rolled back. Pure:
//! the fleet and the time are arguments.
//!
//! [`Rollout::observe`] can be called at any time. It depends on the present state only, not on having seen every
//! event, so it continues after a restart, and calling it twice is the same as once. A step never passes by default: it
//! needs at least one live node that has acknowledged.
//!
//! Only the answers of *witnesses* count, nodes that ran the last good revision before this rollout started. The
//! refusal of any other node proves nothing about the candidate: the node may be foreign, broken, or refuse both. If all
//! nodes that refused leave for good, the rollout starts again without them ([`Setback`]).

mod observed;
mod report;
mod setback;
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
    setback::{ATTEMPTS, DEPARTED, LONGEST_SETBACK, Setback},
    strategy::{Pick, Step, Strategy},
    tolerance::Tolerance,
};
use crate::store::milliseconds;

/// How long a node of a canary may be disconnected before it counts as failed: it may be reconnecting.
pub const GRACE: Duration = Duration::from_secs(10);
/// Like [`GRACE`], for a node that has not reconnected since this process started: clients back off while there is no
/// server.
pub const GRACE_AFTER_RESTART: Duration = Duration::from_secs(60);

/// A rollout of one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The revision that is spreading.
    candidate: u64,
    /// The revision to roll back to; `None` for the first revision.
    stable: Option<u64>,
    strategy: Strategy,
    /// How many witnesses may refuse the candidate.
    #[serde(default)]
    tolerance: Tolerance,
    /// The nodes that ran the last good revision when this rollout started; `None` if unknown: then every node is a
    /// witness.
    #[serde(default)]
    witnesses: Option<BTreeSet<String>>,
    /// The current step. After the last one, all nodes get the candidate.
    step: usize,
    state: State,
    /// The nodes that steps have chosen by percentage.
    chosen: BTreeSet<String>,
    /// Whether the current step has chosen its nodes.
    has_chosen: bool,
    /// When each disconnected node of a canary was first missed, in milliseconds since 1970.
    away: BTreeMap<String, u64>,
    /// Since when every node of the step runs the candidate, in milliseconds since 1970.
    settled: Option<u64>,
    /// Whether the pause of the current step is not waited for.
    #[serde(default)]
    hurried: bool,
    /// The refusals that took it back, and the nodes that refused and left since.
    #[serde(default)]
    setback: Setback,
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
    /// Nothing that requires an action.
    None,
    /// More nodes get the candidate now.
    Spread,
    /// The rollout has ended: see [`Rollout::state`].
    Ended,
}

/// The error of a command that does not fit the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rollout of revision {revision} is {state}")]
pub struct NotNow {
    revision: u64,
    state: &'static str,
}

impl Rollout {
    /// Starts to spread `candidate` over nodes that run `stable`. The first revision has nothing to roll back to, and
    /// spreads to all nodes at once.
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
            hurried: false,
            setback: Setback::default(),
        }
    }

    /// Sets how long a node that refused must be away to count as departed.
    #[must_use]
    pub fn departed_after(mut self, time: Duration) -> Self {
        self.setback.departed_after(time);
        self
    }

    /// Sets how many witnesses may refuse the candidate.
    #[must_use]
    pub fn tolerating(self, tolerance: Tolerance) -> Self {
        Self { tolerance, ..self }
    }

    /// Sets the witnesses: the nodes that run the last good revision now.
    #[must_use]
    pub fn witnessed_by(self, nodes: BTreeSet<String>) -> Self {
        Self { witnesses: Some(nodes), ..self }
    }

    /// The revision that is spreading.
    pub fn candidate(&self) -> u64 {
        self.candidate
    }

    /// The revision that nodes are rolled back to.
    pub fn stable(&self) -> Option<u64> {
        self.stable
    }

    /// The last good revision: the previous one until the candidate has completed.
    pub fn last_good(&self) -> Option<u64> {
        if self.state == State::Completed { Some(self.candidate) } else { self.stable }
    }

    /// The state of the rollout.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The current step, from 1, and the number of steps including the last one, to all nodes.
    pub fn progress(&self) -> (usize, usize) {
        let steps = self.strategy.steps().len() + 1;
        ((self.step + 1).min(steps), steps)
    }

    /// Whether the rollout has not ended.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, State::Progressing | State::Paused)
    }

    /// Whether every node is to run the previous revision.
    pub fn is_back(&self) -> bool {
        matches!(self.state, State::RolledBack { .. } | State::Aborted)
    }

    /// Whether every node is to run the candidate, including nodes that connect later.
    pub fn is_everywhere(&self) -> bool {
        match self.state {
            State::Completed => true,
            State::RolledBack { .. } | State::Aborted => false,
            State::Progressing | State::Paused => self.stable.is_none() || self.is_last_step(),
        }
    }

    /// Whether it was rolled back, and starts again if the nodes that refused leave.
    pub fn may_start_again(&self, now: SystemTime) -> bool {
        matches!(self.state, State::RolledBack { .. }) && self.setback.is_open(milliseconds(now))
    }

    /// The nodes that refused the candidate and left: it was started again without them.
    pub fn without(&self) -> &BTreeSet<String> {
        self.setback.departed()
    }

    /// Records that this process has just started, and has seen no node yet.
    pub fn restarted(&mut self) {
        self.setback.forget_absences();
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

    /// Looks at the fleet and updates the state. Returns what changed. Nodes that are not supported have no say: a step
    /// that has chosen one chooses another instead.
    pub fn observe(&mut self, nodes: &[Observed], now: SystemTime) -> Change {
        if !nodes.iter().any(|seen| seen.standing == Standing::Unsupported) {
            return self.observe_supported(nodes, now);
        }
        let (without, nodes): (Vec<_>, Vec<_>) =
            nodes.iter().cloned().partition(|seen| seen.standing == Standing::Unsupported);
        for Observed { node, .. } in without {
            let was_chosen = self.chosen.remove(&node.id);
            self.has_chosen &= !was_chosen;
            self.setback.excuse(&node.id);
        }
        self.observe_supported(&nodes, now)
    }

    fn observe_supported(&mut self, nodes: &[Observed], now: SystemTime) -> Change {
        if matches!(self.state, State::RolledBack { .. }) {
            return self.reconsider(nodes, milliseconds(now));
        }
        if !self.is_under_way() {
            return Change::None;
        }
        if let Some((node, reason)) = self.refusal(nodes) {
            let refusing = self.refusing(nodes);
            self.setback.begin(refusing, milliseconds(now));
            return self.roll_back(node, reason);
        }
        if let Some(node) = self.vanished(nodes, milliseconds(now)) {
            return self.roll_back(node, "it went away".to_owned());
        }
        if self.choose(nodes) {
            return Change::Spread;
        }
        if !self.has_settled(nodes, milliseconds(now)) || self.state == State::Paused {
            return Change::None;
        }
        self.advance()
    }

    /// Pauses the rollout. Fails if it is not progressing.
    pub fn pause(&mut self) -> Result<(), NotNow> {
        self.expect(self.state == State::Progressing)?;
        self.state = State::Paused;
        Ok(())
    }

    /// Resumes a paused rollout. Fails if it is not paused.
    pub fn resume(&mut self) -> Result<(), NotNow> {
        self.expect(self.state == State::Paused)?;
        self.state = State::Progressing;
        Ok(())
    }

    /// Goes on without the pause of the current step, as soon as all of its nodes run the candidate; resumes a paused
    /// rollout. With `now`, all nodes get the candidate at once. Fails if the rollout has ended, or there is no step left.
    pub fn promote(&mut self, now: bool) -> Result<(), NotNow> {
        if self.state == State::Progressing && self.is_last_step() {
            return Err(NotNow { revision: self.candidate, state: "at its last step: all nodes get it already" });
        }
        self.expect(self.is_under_way())?;
        self.state = State::Progressing;
        if now {
            self.step = self.strategy.steps().len();
            (self.has_chosen, self.settled) = (false, None);
        } else {
            self.hurried = true;
        }
        Ok(())
    }

    /// Rolls back to the last good revision. Fails if there is none, or if the rollout has ended.
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

    /// Whether a node ran the previous revision, so that its answer counts. A node that refused and left no longer does,
    /// so that it takes nobody back when it returns.
    pub fn is_witness(&self, node: &NodeIdentity) -> bool {
        self.witnesses.as_ref().is_none_or(|witnesses| witnesses.contains(&node.id))
            && !self.setback.departed().contains(&node.id)
    }

    /// Starts again from the first step if enough of the nodes that refused have departed.
    fn reconsider(&mut self, nodes: &[Observed], now: u64) -> Change {
        let refusing = self.refusing(nodes);
        let witnesses = || nodes.iter().filter(|seen| seen.connected && self.is_witness(&seen.node));
        let tolerated = self.tolerance.of(witnesses().count());
        if !self.setback.is_over(refusing, nodes, tolerated, now) {
            return Change::None;
        }
        (self.step, self.has_chosen, self.settled, self.hurried) = (0, false, None, false);
        self.chosen.clear();
        self.away.clear();
        self.state = State::Progressing;
        Change::Spread
    }

    /// The witnesses that refuse the candidate.
    fn refusing(&self, nodes: &[Observed]) -> BTreeSet<String> {
        let refuses = |seen: &&Observed| self.is_witness(&seen.node) && matches!(seen.standing, Standing::Nacked(_));
        nodes.iter().filter(refuses).map(|seen| seen.node.id.clone()).collect()
    }

    /// A node of the canary that disconnected after it got the candidate, and did not come back in time.
    fn vanished(&mut self, nodes: &[Observed], now: u64) -> Option<String> {
        let mut away = BTreeMap::new();
        for Observed { node, connected, .. } in nodes.iter().filter(|observed| self.includes(&observed.node)) {
            // In the last step a node that disconnects is no failure: fleets shrink and grow.
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
        self.away.iter().find(gone).map(|(node, _)| node.clone())
    }

    /// The first of the witnesses that refuse the candidate, if they exceed the tolerance.
    fn refusal(&self, nodes: &[Observed]) -> Option<(String, String)> {
        let asked = || nodes.iter().filter(|seen| self.includes(&seen.node) && self.is_witness(&seen.node));
        let mut refusals = asked().filter_map(|seen| match &seen.standing {
            Standing::Nacked(reason) => Some((seen.node.id.clone(), reason.clone())),
            Standing::Acked | Standing::Pending | Standing::Unsupported => None,
        });
        let first = refusals.next()?;
        let tolerated = self.tolerance.of(asked().filter(|seen| seen.connected).count());
        (refusals.count() >= tolerated).then_some(first)
    }

    /// The chosen nodes that the fleet does not know: they left while no control plane was running.
    fn unseen(&self, nodes: &[Observed]) -> BTreeSet<String> {
        if self.chosen.is_empty() || self.is_last_step() {
            return BTreeSet::new();
        }
        let seen: BTreeSet<_> = nodes.iter().map(|observed| observed.node.id.as_str()).collect();
        self.chosen.iter().filter(|node| !seen.contains(node.as_str())).cloned().collect()
    }

    /// Whether a node was live when a step chose it by percentage. Nodes chosen by tags may never have been connected.
    fn was_asked(&self, node: &NodeIdentity) -> bool {
        self.chosen.contains(&node.id)
    }

    fn roll_back(&mut self, node: String, reason: String) -> Change {
        // The first revision has nothing to roll back to: it waits for its nodes, or for a better revision.
        if self.stable.is_none() {
            return Change::None;
        }
        self.state = State::RolledBack { node, reason };
        Change::Ended
    }

    /// Chooses the nodes of the current step, once there are any. Returns whether it did.
    fn choose(&mut self, nodes: &[Observed]) -> bool {
        let Some(step) = self.strategy.steps().get(self.step).filter(|_| !self.has_chosen) else { return false };
        let mut live: Vec<_> = self.counted(nodes).map(|seen| &seen.node).collect();
        if live.is_empty() {
            return false;
        }
        let wanted = match &step.nodes {
            Pick::Share(share) => live.len().saturating_mul(usize::from(*share)).div_ceil(100),
            // Live nodes with these tags are watched from now on.
            Pick::Tags(_) => live.iter().filter(|node| step.nodes.names(node)).count(),
        };
        // Nodes with the tags and those of earlier steps come first, then the rest in an order that does not depend on
        // names.
        live.sort_by_key(|node| {
            (!step.nodes.names(node), !self.chosen.contains(&node.id), Digest::of(node.id.as_bytes()))
        });
        self.chosen.extend(live.into_iter().take(wanted).map(|node| node.id.clone()));
        self.has_chosen = wanted > 0;
        wanted > 0
    }

    /// The live witnesses or, if there are none, all live nodes.
    fn counted<'a>(&self, nodes: &'a [Observed]) -> impl Iterator<Item = &'a Observed> {
        let live = |seen: &&Observed| seen.connected;
        let any = nodes.iter().filter(live).any(|seen| self.is_witness(&seen.node));
        nodes.iter().filter(live).filter(move |seen| !any || self.is_witness(&seen.node))
    }

    /// Whether every counted live node of the step has run the candidate for as long as the step requires. Tolerated
    /// refusals do not count.
    fn has_settled(&mut self, nodes: &[Observed], now: u64) -> bool {
        let concerned: Vec<_> = self.counted(nodes).filter(|seen| self.includes(&seen.node)).collect();
        let asked = self.has_chosen || self.is_last_step();
        let runs = |seen: &&&Observed| seen.standing == Standing::Acked;
        // The tolerance was checked before.
        let refuses = |seen: &Observed| self.is_witness(&seen.node) && matches!(seen.standing, Standing::Nacked(_));
        let answered = concerned.iter().all(|seen| runs(&seen) || refuses(seen));
        if !asked || !answered || !concerned.iter().any(|seen| runs(&seen)) {
            self.settled = None;
            return false;
        }
        let since = *self.settled.get_or_insert(now);
        let pause = self.strategy.steps().get(self.step).filter(|_| !self.hurried);
        let pause = pause.map_or(Duration::ZERO, |step| step.pause);
        self.away.is_empty() && u128::from(now.saturating_sub(since)) >= pause.as_millis()
    }

    fn advance(&mut self) -> Change {
        if self.is_last_step() {
            self.state = State::Completed;
            return Change::Ended;
        }
        self.step += 1;
        (self.has_chosen, self.settled, self.hurried) = (false, None, false);
        Change::Spread
    }
}
