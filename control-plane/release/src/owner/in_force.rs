//! What is in force, as a value for readers.

use std::{sync::Arc, time::SystemTime};

use postern_base::node::NodeIdentity;
use postern_compile::{
    lint::Finding,
    review::{Expiring, Waiting},
};
use tokio::sync::watch;

use crate::{
    lifecycle::Lifecycle,
    releases::{RefusedChange, View},
    rollout::RolloutReport,
};

/// What is in force, its rollout and the last refused change, as of one moment.
#[derive(Debug, Clone, Default)]
pub struct InForce {
    pub(super) releases: View,
    pub(super) refusals: Refusals,
    pub(super) warned: Arc<Warned>,
    /// The number of times that something was put in force.
    pub(super) moves: u64,
}

/// The latest refused changes that were not followed by an accepted one.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals {
    /// That of the followed directory. It stays until the directory is accepted.
    pub(super) of_directory: Option<Arc<RefusedChange>>,
    /// That of a user. It stays until a change is accepted.
    pub(super) of_users: Option<Arc<RefusedChange>>,
}

/// The warnings about a revision.
#[derive(Debug, Default)]
pub(super) struct Warned {
    pub(super) revision: Option<u64>,
    pub(super) findings: Arc<[Finding]>,
    /// Warnings that depend on which nodes are connected.
    pub(super) waiting: Waiting,
    /// Its certificates, some of which may expire soon.
    pub(super) certificates: Expiring,
}

impl InForce {
    /// The revisions that matter.
    pub fn releases(&self) -> &View {
        &self.releases
    }

    /// The errors of the latest changes of the directory and of users that were refused; empty if they were accepted.
    pub fn refused_change(&self) -> Vec<String> {
        self.refused_changes().flat_map(|refused| refused.reasons.iter().cloned()).collect()
    }

    /// Whether the latest change of the followed directory was refused.
    pub fn is_directory_refused(&self) -> bool {
        self.refusals.of_directory.is_some()
    }

    /// The latest changes of the directory and of users that were refused.
    pub fn refused_changes(&self) -> impl Iterator<Item = &RefusedChange> {
        let Refusals { of_directory, of_users } = &self.refusals;
        [of_directory, of_users].into_iter().flatten().map(Arc::as_ref)
    }

    /// The errors of what is in force, for which parts of it are refusals; empty if it is valid.
    pub fn invalid(&self) -> Vec<String> {
        let lifecycle = self.releases.in_force().and_then(|number| self.releases.lifecycle(number));
        lifecycle.map(Lifecycle::errors).unwrap_or_default()
    }

    /// The rollout of what is in force.
    pub fn rollout_report(&self) -> Option<RolloutReport> {
        self.releases.report()
    }

    /// The warnings about what is in force while these nodes are connected, sorted by file and line.
    pub fn warnings(&self, nodes: &[NodeIdentity]) -> Vec<Finding> {
        let Warned { findings, waiting, certificates, .. } = &*self.warned;
        warnings(findings, waiting, certificates, nodes)
    }

    /// The certificates of what is in force.
    pub fn certificates(&self) -> &Expiring {
        &self.warned.certificates
    }
}

/// The warnings about resources now, while these nodes are connected, sorted by file and line.
pub fn warnings(
    findings: &[Finding],
    waiting: &Waiting,
    certificates: &Expiring,
    nodes: &[NodeIdentity],
) -> Vec<Finding> {
    let mut all = findings.to_vec();
    all.extend(waiting.findings(nodes));
    all.extend(certificates.findings(SystemTime::now()));
    all.sort();
    all
}

/// The readers' handle to what the owner publishes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Readings(watch::Receiver<Arc<InForce>>);

impl Readings {
    /// What is in force now.
    pub fn latest(&self) -> Arc<InForce> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits until something is put in force after this reading. Never ends once the owner has ended.
    pub(super) async fn moved_since(&mut self, reading: &InForce) {
        if self.0.wait_for(|latest| latest.moves != reading.moves).await.is_err() {
            std::future::pending().await
        }
    }
}

impl From<watch::Receiver<Arc<InForce>>> for Readings {
    fn from(receiver: watch::Receiver<Arc<InForce>>) -> Self {
        Self(receiver)
    }
}
