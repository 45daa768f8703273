//! The state that all streams share: who is connected, the update that each client is to have, and who has answered.
//! Free of I/O: the time is an argument, and what ends a connection is a type parameter.
//!
//! Clients that are to have the same version are a group, which shares one update with one nonce.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use postern_base::digest::Digest;
use postern_release::{fleet::Sighting, publication::Audience};

use super::{
    report::{ClientReport, GroupReport},
    update::{Acknowledgement, PolicySetRef, Update},
};

/// The maximum number of updates that are kept although no connected client is to have them, so that a client that
/// reconnects finds its nonce.
const MOST_UNUSED: usize = 1024;

/// The handle to one connection of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    address: String,
    number: u64,
}

impl Ticket {
    /// The client's address.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// What a client is to have, and of which release.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The policies.
    pub set: PolicySetRef,
    /// The revision of the release.
    pub revision: Digest,
}

/// The clients and the updates in force. A `C` ends a connection from outside.
#[derive(Debug)]
pub struct Registry<C> {
    connections: BTreeMap<String, Connection<C>>,
    /// Updates by version.
    updates: BTreeMap<Digest, Arc<Update>>,
    /// The latest nonce, as a number.
    nonce: u128,
    tickets: u64,
    is_published: bool,
}

#[derive(Debug)]
struct Connection<C> {
    number: u64,
    audience: Arc<Audience>,
    since: Instant,
    /// The time of its last request or health check.
    last_active: Instant,
    last_health_check: Option<Instant>,
    /// Whether it has been silent for too long.
    is_silent: bool,
    /// The update that it is to have, and the revision of that.
    due: Option<(Arc<Update>, Digest)>,
    /// Its answer to that update.
    answer: Option<Acknowledgement>,
    /// The version that it last applied.
    running: Option<Digest>,
    cut: C,
}

impl<C> Default for Registry<C> {
    fn default() -> Self {
        let (connections, updates) = Default::default();
        Self { connections, updates, nonce: 0, tickets: 0, is_published: false }
    }
}

impl<C> Registry<C> {
    /// Opens a connection of a client. An earlier connection of the same client is replaced: what ends it is returned.
    pub fn connect(&mut self, address: &str, audience: Arc<Audience>, now: Instant, cut: C) -> (Ticket, Option<C>) {
        self.tickets = self.tickets.wrapping_add(1);
        let number = self.tickets;
        let connection = Connection {
            number,
            audience,
            since: now,
            last_active: now,
            last_health_check: None,
            is_silent: false,
            due: None,
            answer: None,
            running: None,
            cut,
        };
        let replaced = self.connections.insert(address.to_owned(), connection);
        (Ticket { address: address.to_owned(), number }, replaced.map(|replaced| replaced.cut))
    }

    /// Whether a client may open a stream when at most this many clients may be connected.
    pub fn has_room_for(&self, address: &str, most: usize) -> bool {
        self.connections.len() < most || self.connections.contains_key(address)
    }

    /// Removes a connection. Its client is no longer waited for. Ignored if another has replaced it.
    pub fn disconnect(&mut self, ticket: &Ticket) {
        if self.connection(ticket).is_some() {
            self.connections.remove(&ticket.address);
        }
    }

    /// The connected clients, each with its identity.
    pub fn audiences(&self) -> Vec<(Ticket, Arc<Audience>)> {
        let audience = |(address, connection): (&String, &Connection<C>)| {
            (Ticket { address: address.clone(), number: connection.number }, Arc::clone(&connection.audience))
        };
        self.connections.iter().map(audience).collect()
    }

    /// Assigns to these clients what they are to have, and forgets updates that no client is to have.
    pub fn publish(&mut self, assignments: impl IntoIterator<Item = (Ticket, Assignment)>, now: SystemTime) {
        self.is_published = true;
        for (ticket, assignment) in assignments {
            self.assign(&ticket, &assignment, now);
        }
        self.forget_unused();
    }

    /// Assigns to one client what it is to have. If the version is the same as before, its nonce and the client's
    /// answer are kept.
    pub fn assign(&mut self, ticket: &Ticket, assignment: &Assignment, now: SystemTime) {
        self.is_published = true;
        let Assignment { set, revision } = assignment;
        let Some(connection) = self.connections.get_mut(&ticket.address) else { return };
        if connection.number != ticket.number {
            return;
        }
        if let Some((due, of)) = &mut connection.due
            && due.version() == set.version()
        {
            *of = revision.clone();
            return;
        }
        let nonce = &mut self.nonce;
        let update = self.updates.entry(set.version().clone()).or_insert_with(|| {
            // From the clock, so that a restarted control plane does not repeat a nonce, and always increasing.
            let time = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
            *nonce = time.max(nonce.saturating_add(1));
            Arc::new(Update { nonce: nonce.to_string(), set: Arc::clone(set) })
        });
        (connection.due, connection.answer) = (Some((Arc::clone(update), revision.clone())), None);
        if self.updates.len() > MOST_UNUSED.saturating_add(self.connections.len()) {
            self.forget_unused();
        }
    }

    /// The update that a client is to have; `None` before anything is in force.
    pub fn due(&self, ticket: &Ticket) -> Option<&Arc<Update>> {
        let connection = self.connections.get(&ticket.address)?;
        let (update, _) = connection.due.as_ref().filter(|_| connection.number == ticket.number)?;
        Some(update)
    }

    /// Records that a client sent a request.
    pub fn active(&mut self, ticket: &Ticket, now: Instant) {
        if let Some(connection) = self.connection(ticket) {
            (connection.last_active, connection.is_silent) = (now, false);
        }
    }

    /// Records a health check. Returns whether the client is connected, and then the version that it is to have.
    pub fn health_check(&mut self, address: &str, now: Instant) -> (bool, Option<Digest>) {
        let Some(connection) = self.connections.get_mut(address) else { return (false, None) };
        (connection.last_active, connection.is_silent) = (now, false);
        connection.last_health_check = Some(now);
        (true, connection.due.as_ref().map(|(update, _)| update.version().clone()))
    }

    /// Records a client's answer to the update of this nonce. An answer to an earlier update is ignored.
    pub fn answered(&mut self, ticket: &Ticket, nonce: &str, answer: Acknowledgement) {
        let Some(connection) = self.connection(ticket) else { return };
        let Some((due, _)) = connection.due.as_ref().filter(|(due, _)| due.nonce == nonce) else { return };
        if answer == Acknowledgement::Accepted {
            connection.running = Some(due.version().clone());
        }
        connection.answer = Some(answer);
    }

    /// Whether every connected client has answered the update that it is to have, by accepting or refusing it. Silent
    /// clients are not waited for. False before anything is in force.
    pub fn all_acked(&self) -> bool {
        self.is_published && !self.connections.values().any(Connection::is_waited_for)
    }

    /// Marks clients as silent that have not been heard of for longer than `longest`, and returns those that are new
    /// among them. Their streams stay open: a silent client may still be connected.
    pub fn flush(&mut self, now: Instant, longest: Duration) -> Vec<String> {
        let mut flushed = Vec::new();
        for (address, connection) in &mut self.connections {
            let is_silent = now.saturating_duration_since(connection.last_active) > longest;
            if is_silent && !connection.is_silent {
                flushed.push(address.clone());
            }
            connection.is_silent = is_silent;
        }
        flushed
    }

    /// The connected clients by the version that they are to have, sorted by address.
    pub fn report(&self) -> Vec<GroupReport> {
        let mut groups: BTreeMap<Option<&Digest>, GroupReport> = BTreeMap::new();
        for (address, connection) in &self.connections {
            let due = connection.due.as_ref().map(|(update, _)| update);
            let group =
                groups.entry(due.map(|update| update.version())).or_insert_with(|| GroupReport::of(due.cloned()));
            group.all_acked &= !connection.is_waited_for();
            group.clients.push(ClientReport {
                address: address.clone(),
                audience: Arc::clone(&connection.audience),
                answer: connection.answer.clone(),
                running: connection.running.clone(),
                since: connection.since,
                last_active: connection.last_active,
                last_health_check: connection.last_health_check,
                is_silent: connection.is_silent,
            });
        }
        groups.into_values().collect()
    }

    /// The clients with an identity, as a rollout sees nodes. A silent client that has not answered counts as
    /// disconnected.
    pub fn sightings(&self) -> Vec<Sighting> {
        self.connections.values().filter_map(Connection::sighting).collect()
    }

    fn forget_unused(&mut self) {
        let connections = &self.connections;
        let mut used: Vec<_> = connections.values().filter_map(|it| Some(it.due.as_ref()?.0.version())).collect();
        used.sort_unstable();
        self.updates.retain(|version, _| used.binary_search(&version).is_ok());
    }

    /// The connection of a ticket; `None` if it has ended or was replaced.
    fn connection(&mut self, ticket: &Ticket) -> Option<&mut Connection<C>> {
        self.connections.get_mut(&ticket.address).filter(|connection| connection.number == ticket.number)
    }
}

impl<C> Connection<C> {
    fn is_waited_for(&self) -> bool {
        self.answer.is_none() && !self.is_silent
    }

    fn sighting(&self) -> Option<Sighting> {
        let node = Arc::clone(self.audience.node()?);
        let revision = self.due.as_ref().map(|(_, revision)| revision.clone());
        let (revision, refused_policies) = match &self.answer {
            Some(Acknowledgement::Accepted) => (revision, None),
            Some(Acknowledgement::Refused(message)) => (None, revision.map(|revision| (revision, message.clone()))),
            None => (None, None),
        };
        let connected = self.answer.is_some() || !self.is_silent;
        Some(Sighting { node, connected, unsupported: false, revision, refused: Vec::new(), refused_policies })
    }
}
