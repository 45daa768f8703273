//! The fleet of a running control plane, shared by its streams and its readers.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use postern_base::{digest::Digest, node::NodeIdentity, via_cache::ViaCache};
use tokio::sync::watch;

use super::{Fleet, Joined, Learnt, NodeReport, RevisionProgress, Sighting};
use crate::journal::Journal;

/// The time between two looks at the fleet: a change reaches thousands of nodes at once, and their answers are batched.
const PAUSE: Duration = Duration::from_millis(5);

/// A shared [`Fleet`]. Every call takes and returns values, so that no caller can hold the lock.
#[derive(Debug, Default)]
pub struct LiveFleet(Mutex<Fleet>);

impl LiveFleet {
    /// An empty fleet that records connects and disconnects in a journal.
    pub fn noted_in(journal: Arc<Journal>) -> Self {
        Self(Mutex::new(Fleet::noted_in(journal)))
    }

    /// See [`Fleet::connect`].
    pub fn connect(&self, identity: &NodeIdentity, now: SystemTime) -> Joined {
        self.fleet().connect(identity, now)
    }

    /// See [`Fleet::connect_aggregated`].
    pub fn connect_aggregated(&self, identity: &NodeIdentity, now: SystemTime) -> Joined {
        self.fleet().connect_aggregated(identity, now)
    }

    /// See [`Fleet::came_via`].
    pub fn came_via(&self, id: &str, cache: Option<ViaCache>) {
        self.fleet().came_via(id, cache);
    }

    /// See [`Fleet::disconnect`].
    pub fn disconnect(&self, id: &str, stream: u64, now: SystemTime) {
        self.fleet().disconnect(id, stream, now);
    }

    /// See [`Fleet::record`].
    pub fn record(&self, id: &str, stream: u64, learnt: Learnt, now: SystemTime) {
        self.fleet().record(id, stream, learnt, now);
    }

    /// See [`Fleet::forget`].
    pub fn forget(&self, keep: Duration, now: SystemTime, is_known: impl Fn(&NodeIdentity) -> bool) -> usize {
        self.fleet().forget(keep, now, is_known)
    }

    /// See [`Fleet::identities`].
    pub fn identities(&self) -> Vec<NodeIdentity> {
        self.fleet().identities()
    }

    /// See [`Fleet::report`].
    pub fn report(&self) -> Vec<NodeReport> {
        self.fleet().report()
    }

    /// See [`Fleet::sightings`].
    pub fn sightings(&self) -> Vec<Sighting> {
        self.fleet().sightings()
    }

    /// See [`Fleet::progress`].
    pub fn progress(&self, revision: &Digest) -> RevisionProgress {
        self.fleet().progress(revision)
    }

    /// See [`Fleet::open_streams`].
    pub fn open_streams(&self) -> usize {
        self.fleet().open_streams()
    }

    /// See [`Fleet::changes`].
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.fleet().changes()
    }

    /// See [`Fleet::ring`].
    pub fn ring(&self) {
        self.fleet().ring();
    }

    /// Asks several questions about one moment. `ask` runs under the lock and must be fast.
    pub fn ask<T>(&self, ask: impl FnOnce(&Fleet) -> T) -> T {
        ask(&self.fleet())
    }

    /// Waits until every connected node runs a revision in all that it subscribed to. It never ends while a node
    /// refuses it or stays silent: set a time limit, and ask [`Self::progress`] for the reason.
    pub async fn all_acked(&self, revision: &Digest) {
        let mut changes = self.changes();
        while !self.progress(revision).is_complete() {
            // The sender is part of the fleet, so this fails only when the fleet is gone.
            if changes.changed().await.is_err() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Locks the fleet. A poisoned lock is ignored: every statement leaves the fleet consistent.
    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
