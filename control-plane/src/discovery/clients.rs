//! The clients of a running control plane: the [`Registry`], kept up with what the hub publishes.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Instant, SystemTime},
};

use tokio::{
    sync::{Mutex as Turn, Notify, oneshot},
    task,
};
use tonic::Status;

use super::{
    Registry, Ticket,
    registry::Assignment,
    report::{GroupReport, GroupView},
    update::{Acknowledgement, Update},
};
use crate::{
    digest::Digest,
    fleet::Sighting,
    metrics::Counter,
    node::NodeIdentity,
    publication::{Audience, Publication},
    serve::Hub,
};

/// What ends a stream from outside: the status that its client is told.
pub(super) type Cut = oneshot::Sender<Status>;

/// The clients that are connected, and what each is to have.
#[derive(Debug, Default)]
pub struct Clients {
    registry: Mutex<Registry<Cut>>,
    /// The publication that all clients are assigned policies of. Only who has the turn assigns any.
    caught_up: Turn<Weak<Publication>>,
    /// Somebody answered, came, went or fell silent.
    moved: Notify,
    pub(crate) pushes: Counter,
    pub(crate) acks: Counter,
    pub(crate) nacks: Counter,
}

impl Clients {
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry<Cut>> {
        // Each statement leaves it whole, so that a panic elsewhere does not spoil it.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait.
    pub(super) fn moved(&self) {
        self.moved.notify_waiters();
    }

    /// The clients that say who they are, as a rollout looks at nodes.
    pub(crate) fn sightings(&self) -> Vec<Sighting> {
        self.registry().sightings()
    }

    /// Who these say they are.
    pub(crate) fn identities(&self) -> Vec<NodeIdentity> {
        self.sightings().into_iter().map(|sighting| NodeIdentity::clone(&sighting.node)).collect()
    }

    /// The clients by the version that they are to have, as of the last time that they were brought up to date.
    pub(crate) fn report(&self) -> Vec<GroupReport> {
        self.registry().report()
    }
}

/// What a client made of its update, for the records.
pub(super) fn record(hub: &Hub, ticket: &Ticket, due: &Update, answer: Acknowledgement) {
    let (client, version, clients) = (ticket.address(), due.version().short(), hub.clients());
    match &answer {
        Acknowledgement::Accepted => {
            tracing::info!(client, version, "accepted policies");
            clients.acks.increment();
        }
        Acknowledgement::Refused(message) => {
            tracing::error!(client, version, message, "refused policies");
            clients.nacks.increment();
        }
    }
    clients.registry().answered(ticket, &due.nonce, answer);
    changed(hub);
}

/// Somebody answered, came, went or fell silent: a rollout may have to be looked at.
pub(super) fn changed(hub: &Hub) {
    hub.clients().moved();
    hub.fleet().ring();
}

/// Has every client assigned what is in force for it now.
pub(super) async fn catch_up(hub: &Arc<Hub>) {
    let mut caught_up = hub.clients().caught_up.lock().await;
    let Some(publication) = in_force(hub) else { return };
    if !is_same(&caught_up, &publication) {
        catch_up_with(hub, &publication).await;
        *caught_up = Arc::downgrade(&publication);
    }
}

/// The same with one client that is new.
pub(super) async fn welcome(hub: &Arc<Hub>, ticket: &Ticket, audience: &Arc<Audience>) {
    let mut caught_up = hub.clients().caught_up.lock().await;
    let Some(publication) = in_force(hub) else { return };
    if !is_same(&caught_up, &publication) {
        catch_up_with(hub, &publication).await;
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
        hub.clients().registry().assign(ticket, &assignment, SystemTime::now());
    }
}

async fn catch_up_with(hub: &Arc<Hub>, publication: &Arc<Publication>) {
    let (of, publication) = (Arc::clone(hub), Arc::clone(publication));
    on_a_thread(move || {
        let audiences = of.clients().registry().audiences();
        let assigned: Vec<_> =
            audiences.into_iter().map(|(ticket, audience)| (ticket, assignment(&publication, &audience))).collect();
        of.clients().registry().publish(assigned, SystemTime::now());
    })
    .await;
}

/// Compiling takes its time, and nobody else should wait for it.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = task::spawn_blocking(work).await;
    done.inspect_err(|error| tracing::error!("policies were not put in force for discovery: {error}")).ok()
}

fn assignment(publication: &Publication, audience: &Audience) -> Assignment {
    let revision = publication.release_for_client(audience).revision().clone();
    Assignment { set: publication.policies_for(audience), revision }
}

fn in_force(hub: &Hub) -> Option<Arc<Publication>> {
    hub.publications().borrow().clone()
}

fn is_same(caught_up: &Weak<Publication>, publication: &Arc<Publication>) -> bool {
    std::ptr::eq(caught_up.as_ptr(), Arc::as_ptr(publication))
}

/// The clients by the version that they are to have, as of now.
pub(crate) async fn report(hub: &Arc<Hub>) -> Vec<GroupReport> {
    catch_up(hub).await;
    hub.clients().report()
}

/// The same as it is shown.
pub(crate) async fn views(hub: &Arc<Hub>) -> Vec<GroupView> {
    let now = (Instant::now(), SystemTime::now());
    report(hub).await.iter().map(|group| group.view(now)).collect()
}

/// Waits until every client has answered the version that it is to have, by applying or by refusing it; silent ones are not
/// waited for. A version that is put in force meanwhile is waited for instead.
pub(super) async fn all_acked(hub: &Arc<Hub>) -> Vec<GroupReport> {
    wait(hub, |registry| registry.all_acked().then(|| registry.report())).await
}

/// The same for the clients of one version. `None` if no connected client is to have it, or none any longer.
pub(super) async fn group_all_acked(hub: &Arc<Hub>, version: &Digest) -> Option<GroupReport> {
    wait(hub, |registry| {
        let group = registry.report().into_iter().find(|group| group.version() == Some(version));
        match group {
            Some(group) => group.all_acked.then_some(Some(group)),
            None => Some(None),
        }
    })
    .await
}

async fn wait<T>(hub: &Arc<Hub>, look: impl Fn(&Registry<Cut>) -> Option<T>) -> T {
    let mut publications = hub.publications();
    loop {
        // Asked for before looking, so that what happens in between is not missed.
        let mut moved = std::pin::pin!(hub.clients().moved.notified());
        moved.as_mut().enable();
        publications.mark_unchanged();
        catch_up(hub).await;
        if let Some(found) = look(&hub.clients().registry()) {
            return found;
        }
        tokio::select! {
            () = moved => {}
            // Without a hub nothing more is published, and the clients' answers are all that can come.
            Ok(()) = publications.changed() => {}
        }
    }
}
