//! The terms of a rollout: its strategy, its tolerance, and its witnesses.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use postern_model::Bundle;

use super::{Pace, Releases, removals::Removable};
use crate::{
    rollout::{DEPARTED, Rollout, Strategy, Tolerance},
    store::NodeRecord,
};

/// The defaults for revisions whose `Settings` do not set them.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Which nodes get them first.
    pub strategy: Strategy,
    /// How many nodes may refuse one.
    pub tolerance: Tolerance,
    /// How long a node that refused one must be away for the rollout to start again without it.
    pub departed_after: Duration,
    /// How many resources a change may remove without another word.
    pub removable: Removable,
}

impl Default for Terms {
    fn default() -> Self {
        let (strategy, tolerance, removable) = Default::default();
        Self { strategy, tolerance, departed_after: DEPARTED, removable }
    }
}

impl From<Strategy> for Terms {
    fn from(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }
}

impl Terms {
    /// The terms while a revision is the last good one: those of its `Settings`, with these as defaults.
    pub(super) fn with(&self, bundle: &Bundle) -> Self {
        let said = bundle.settings.iter().find_map(|settings| settings.spec.rollout.as_ref());
        let steps = said.and_then(|said| said.steps.as_deref());
        let tolerance = said.and_then(|said| said.max_refused.as_ref());
        let removable = said.and_then(|said| said.max_removed.as_ref());
        Self {
            strategy: steps.map_or_else(|| self.strategy.clone(), Strategy::from),
            tolerance: tolerance.map_or(self.tolerance, Tolerance::from),
            departed_after: self.departed_after,
            removable: removable.map_or(self.removable, Removable::from),
        }
    }

    /// These terms at the pace of a proposal.
    pub(super) fn at(self, pace: Pace) -> Self {
        match pace {
            Pace::Settings => self,
            Pace::AtOnce => Self { strategy: Strategy::AllAtOnce, ..self },
            Pace::Steps(steps) => Self { strategy: Strategy::Canary(steps), ..self },
        }
    }

    pub(super) fn start(self, candidate: u64, stable: Option<u64>) -> Rollout {
        Rollout::start(candidate, stable, self.strategy).tolerating(self.tolerance).departed_after(self.departed_after)
    }
}

impl Releases {
    /// The terms by which the next revision spreads: those of the last good revision. So no change escapes a canary by
    /// what it says itself, nor by what one before it says that has not reached all nodes.
    pub(super) fn settled_terms(&self) -> Terms {
        let settled = self.rollout.as_ref().and_then(Rollout::last_good).or_else(|| self.in_force());
        let settled = settled.and_then(|number| self.bundle(number));
        settled.map_or_else(|| self.terms.clone(), |bundle| self.terms.with(bundle))
    }
}

/// The nodes that were seen to run a revision.
#[derive(Debug, Default)]
pub(super) struct Runners {
    of: Option<u64>,
    nodes: BTreeSet<String>,
}

impl Runners {
    /// Adds nodes that run a revision, and forgets those of other revisions. `known` are records from before a restart.
    pub(super) fn add<'a>(
        &mut self,
        revision: u64,
        known: &BTreeMap<String, NodeRecord>,
        nodes: impl Iterator<Item = &'a str>,
    ) {
        if self.of != Some(revision) {
            *self = Self { of: Some(revision), nodes: runners_of(Some(revision), known) };
        }
        for node in nodes {
            if !self.nodes.contains(node) {
                self.nodes.insert(node.to_owned());
            }
        }
    }

    /// Takes all nodes that ran a revision, as far as is known.
    pub(super) fn take(&mut self, revision: Option<u64>, known: &BTreeMap<String, NodeRecord>) -> BTreeSet<String> {
        if self.of.is_some() && self.of == revision { self.nodes.clone() } else { runners_of(revision, known) }
    }
}

/// The nodes that ran a revision when they were last seen.
pub(super) fn runners_of(revision: Option<u64>, known: &BTreeMap<String, NodeRecord>) -> BTreeSet<String> {
    let ran = known.iter().filter(|(_, node)| revision.is_some() && node.revision == revision);
    ran.map(|(id, _)| id.clone()).collect()
}

/// The number of revisions to keep, if the bundle sets it.
pub(super) fn kept_by(bundle: &Bundle) -> Option<usize> {
    let retention = bundle.settings.iter().find_map(|settings| settings.spec.retention.as_ref());
    retention.map(|retention| retention.revisions)
}
