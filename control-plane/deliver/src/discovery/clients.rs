//! The clients of a running control plane: a shared [`Registry`] that follows what is published.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Instant, SystemTime},
};

use postern_base::digest::Digest;
use postern_release::{
    fleet::{LiveFleet, Sighting},
    owner::Enforcers,
    publication::{Audience, Publication, Publications},
};
use prometheus_client::metrics::counter::Counter;
use tokio::{
    sync::{Mutex as Turn, Notify, oneshot, watch},
    task,
};
use tonic::Status;

use super::{
    Registry, Ticket,
    registry::Assignment,
    report::{GroupReport, GroupView},
    update::{Acknowledgement, Update},
};

/// Ends a stream from outside, with the status for its client.
pub(super) type Cut = oneshot::Sender<Status>;

/// The connected clients, and what each is to have.
#[derive(Debug)]
pub struct Clients {
    registry: Mutex<Registry<Cut>>,
    publications: Publications,
    /// Notified when a rollout may have to be looked at.
    fleet: Arc<LiveFleet>,
    /// The publication of which all clients have been assigned their policies. Only the holder of the turn assigns any.
    caught_up: Turn<Weak<Publication>>,
    /// Notified when a client answers, connects, disconnects or falls silent.
    moved: Notify,
    /// The number of policy sets that were sent.
    pub pushes: Counter,
    /// The number of policy sets that were accepted.
    pub acks: Counter,
    /// The number of policy sets that were refused.
    pub nacks: Counter,
}

impl Clients {
    /// No clients. They are assigned policies of what is published, and rollouts over this fleet include them.
    pub fn new(publications: Publications, fleet: Arc<LiveFleet>) -> Self {
        let (registry, caught_up, moved, pushes, acks, nacks) = Default::default();
        Self { registry, publications, fleet, caught_up, moved, pushes, acks, nacks }
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, Registry<Cut>> {
        // A poisoned lock is ignored: every statement leaves the registry consistent.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver of publications, for streams that push them.
    pub(super) fn publications(&self) -> watch::Receiver<Option<Arc<Publication>>> {
        self.publications.follow()
    }

    /// The clients by the version that they are to have, as of the last assignment.
    pub fn latest_report(&self) -> Vec<GroupReport> {
        self.registry().report()
    }

    /// Counts and logs a client's answer to an update.
    pub(super) fn record(&self, ticket: &Ticket, due: &Update, answer: Acknowledgement) {
        let (client, version) = (ticket.address(), due.version().short());
        match &answer {
            Acknowledgement::Accepted => {
                tracing::info!(client, version, "accepted policies");
                self.acks.inc();
            }
            Acknowledgement::Refused(message) => {
                tracing::error!(client, version, message, "refused policies");
                self.nacks.inc();
            }
        }
        self.registry().answered(ticket, &due.nonce, answer);
        self.changed();
    }

    /// Notifies those who wait, and the rollout, that a client answered, connected, disconnected or fell silent.
    pub(super) fn changed(&self) {
        self.moved.notify_waiters();
        self.fleet.ring();
    }

    /// Assigns to every client what is in force for it now.
    pub(super) async fn catch_up(self: &Arc<Self>) {
        let mut caught_up = self.caught_up.lock().await;
        let Some(publication) = self.publications.latest() else { return };
        if !is_same(&caught_up, &publication) {
            self.catch_up_with(&publication).await;
            *caught_up = Arc::downgrade(&publication);
        }
    }

    /// Like [`Self::catch_up`], for one new client.
    pub(super) async fn welcome(self: &Arc<Self>, ticket: &Ticket, audience: &Arc<Audience>) {
        let mut caught_up = self.caught_up.lock().await;
        let Some(publication) = self.publications.latest() else { return };
        if !is_same(&caught_up, &publication) {
            self.catch_up_with(&publication).await;
            *caught_up = Arc::downgrade(&publication);
            return;
        }
        let assigned = if publication.has_policies_for(audience) {
            Some(assignment(&publication, audience))
        } else {
            let (publication, audience) = (Arc::clone(&publication), Arc::clone(audience));
            on_a_thread(move || assignment(&publication, &audience)).await
        };
        if let Some(assignment) = assigned {
            self.registry().assign(ticket, &assignment, SystemTime::now());
        }
    }

    async fn catch_up_with(self: &Arc<Self>, publication: &Arc<Publication>) {
        let (clients, publication) = (Arc::clone(self), Arc::clone(publication));
        on_a_thread(move || {
            let audiences = clients.registry().audiences();
            let assigned: Vec<_> =
                audiences.into_iter().map(|(ticket, audience)| (ticket, assignment(&publication, &audience))).collect();
            clients.registry().publish(assigned, SystemTime::now());
        })
        .await;
    }

    /// The clients by the version that they are to have, as of now.
    pub(crate) async fn report(self: &Arc<Self>) -> Vec<GroupReport> {
        self.catch_up().await;
        self.latest_report()
    }

    /// Like [`Self::report`], in the form that the API shows.
    pub async fn views(self: &Arc<Self>) -> Vec<GroupView> {
        let now = (Instant::now(), SystemTime::now());
        self.report().await.iter().map(|group| group.view(now)).collect()
    }

    /// Waits until every client has answered the version that it is to have, by accepting or refusing it. Silent
    /// clients are not waited for. If another version is put in force meanwhile, that one is waited for instead.
    pub(super) async fn all_acked(self: &Arc<Self>) -> Vec<GroupReport> {
        self.wait(|registry| registry.all_acked().then(|| registry.report())).await
    }

    /// Like [`Self::all_acked`], for the clients of one version. `None` if no connected client is to have it, or none
    /// any longer.
    pub(super) async fn group_all_acked(self: &Arc<Self>, version: &Digest) -> Option<GroupReport> {
        self.wait(|registry| {
            let group = registry.report().into_iter().find(|group| group.version() == Some(version));
            match group {
                Some(group) => group.all_acked.then_some(Some(group)),
                None => Some(None),
            }
        })
        .await
    }

    async fn wait<T>(self: &Arc<Self>, look: impl Fn(&Registry<Cut>) -> Option<T>) -> T {
        let mut publications = self.publications();
        loop {
            // Registered before looking, so that no notification in between is missed.
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            publications.mark_unchanged();
            self.catch_up().await;
            if let Some(found) = look(&self.registry()) {
                return found;
            }
            tokio::select! {
                () = moved => {}
                // When the owner has ended, nothing more is published, and only answers can come.
                Ok(()) = publications.changed() => {}
            }
        }
    }
}

impl Enforcers for Clients {
    fn sightings(&self) -> Vec<Sighting> {
        self.registry().sightings()
    }
}

/// Runs slow work, such as compilation, on a thread that may block. `None` if it panicked.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = task::spawn_blocking(work).await;
    done.inspect_err(|error| tracing::error!("policies were not put in force for discovery: {error}")).ok()
}

fn assignment(publication: &Publication, audience: &Audience) -> Assignment {
    let revision = publication.release_for_client(audience).revision().clone();
    Assignment { set: publication.policies_for(audience), revision }
}

fn is_same(caught_up: &Weak<Publication>, publication: &Arc<Publication>) -> bool {
    std::ptr::eq(caught_up.as_ptr(), Arc::as_ptr(publication))
}
