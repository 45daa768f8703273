//! What is in force, as a value for those who show it.

use std::sync::Arc;

use postern_base::node::NodeIdentity;
use postern_compile::{lint::Finding, review::Waiting};
use tokio::sync::watch;

use crate::{releases::View, rollout::RolloutReport};

/// What is in force, how it spreads and what was refused, as of one moment.
#[derive(Debug, Clone, Default)]
pub struct InForce {
    pub(super) releases: View,
    pub(super) refused_change: Arc<[String]>,
    pub(super) warned: Arc<Warned>,
    /// How often something was put in force.
    pub(super) moves: u64,
}

/// What is worth a warning about a revision.
#[derive(Debug, Default)]
pub(super) struct Warned {
    pub(super) revision: Option<u64>,
    pub(super) findings: Arc<[Finding]>,
    /// What depends on the nodes that are there.
    pub(super) waiting: Waiting,
}

impl InForce {
    /// The revisions that matter.
    pub fn releases(&self) -> &View {
        &self.releases
    }

    /// Why the latest change was refused, a line an error; empty if it was not.
    pub fn refused_change(&self) -> &[String] {
        &self.refused_change
    }

    /// How what is in force spreads.
    pub fn rollout_report(&self) -> Option<RolloutReport> {
        self.releases.report()
    }

    /// What is worth a warning about what is in force while these nodes are there, by file and line.
    pub fn warnings(&self, nodes: &[NodeIdentity]) -> Vec<Finding> {
        warnings(&self.warned.findings, &self.warned.waiting, nodes)
    }
}

/// What is worth a warning about resources while these nodes are there, by file and line.
pub fn warnings(findings: &[Finding], waiting: &Waiting, nodes: &[NodeIdentity]) -> Vec<Finding> {
    let mut all = findings.to_vec();
    all.extend(waiting.findings(nodes));
    all.sort();
    all
}

/// What is published for readers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Readings(watch::Receiver<Arc<InForce>>);

impl Readings {
    /// What is in force now.
    pub fn latest(&self) -> Arc<InForce> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits until something was put in force since a reading. Never ends after the owner has.
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
