//! What all streams have in common: who is connected, the update that each client is to have, and who has answered. Free
//! of I/O; time is an argument, and so is whatever a connection is ended by.
//!
//! Clients that are to have the same version are a group: they share one update with one nonce.

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

/// How many updates are kept that no connected client is to have, so that one that comes back finds its nonce.
const MOST_UNUSED: usize = 1024;

/// One connection of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    address: String,
    number: u64,
}

impl Ticket {
    /// Whose it is.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// What a client is to have, and of which release it is.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The policies.
    pub set: PolicySetRef,
    /// The revision of the release.
    pub revision: Digest,
}

/// The clients and the updates in force. `C` is what ends a connection from outside.
#[derive(Debug)]
pub struct Registry<C> {
    connections: BTreeMap<String, Connection<C>>,
    /// By version.
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
    /// When it was last heard of, by a request or a health check.
    last_active: Instant,
    last_health_check: Option<Instant>,
    /// Whether nothing was heard of it for too long.
    is_silent: bool,
    /// What it is to have, and the revision that this is of.
    due: Option<(Arc<Update>, Digest)>,
    /// What it made of that.
    answer: Option<Acknowledgement>,
    /// The version that it applied last.
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
    /// A client opened a stream. Another one of the same client gives way: what ends it is returned.
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

    /// Whether a client may open a stream, if so many clients may be connected.
    pub fn has_room_for(&self, address: &str, most: usize) -> bool {
        self.connections.len() < most || self.connections.contains_key(address)
    }

    /// A stream ended. Nobody waits for its client any longer.
    pub fn disconnect(&mut self, ticket: &Ticket) {
        if self.connection(ticket).is_some() {
            self.connections.remove(&ticket.address);
        }
    }

    /// Who is connected, each with whom it is.
    pub fn audiences(&self) -> Vec<(Ticket, Arc<Audience>)> {
        let audience = |(address, connection): (&String, &Connection<C>)| {
            (Ticket { address: address.clone(), number: connection.number }, Arc::clone(&connection.audience))
        };
        self.connections.iter().map(audience).collect()
    }

    /// Puts in force what these clients are to have, and forgets the updates that nobody is to have any more.
    pub fn publish(&mut self, assignments: impl IntoIterator<Item = (Ticket, Assignment)>, now: SystemTime) {
        self.is_published = true;
        for (ticket, assignment) in assignments {
            self.assign(&ticket, &assignment, now);
        }
        self.forget_unused();
    }

    /// Says what one client is to have. The same version as before is no update: its nonce and the client's answer stay.
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
            // By the clock, so that a restarted control plane does not repeat one; but never the same twice.
            let time = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
            *nonce = time.max(nonce.saturating_add(1));
            Arc::new(Update { nonce: nonce.to_string(), set: Arc::clone(set) })
        });
        (connection.due, connection.answer) = (Some((Arc::clone(update), revision.clone())), None);
        if self.updates.len() > MOST_UNUSED.saturating_add(self.connections.len()) {
            self.forget_unused();
        }
    }

    /// What a client is to have; nothing before something is in force.
    pub fn due(&self, ticket: &Ticket) -> Option<&Arc<Update>> {
        let connection = self.connections.get(&ticket.address)?;
        let (update, _) = connection.due.as_ref().filter(|_| connection.number == ticket.number)?;
        Some(update)
    }

    /// A client sent a request.
    pub fn active(&mut self, ticket: &Ticket, now: Instant) {
        if let Some(connection) = self.connection(ticket) {
            (connection.last_active, connection.is_silent) = (now, false);
        }
    }

    /// A client says that it is alive. Whether it has a stream, and then the version that it is to have.
    pub fn health_check(&mut self, address: &str, now: Instant) -> (bool, Option<Digest>) {
        let Some(connection) = self.connections.get_mut(address) else { return (false, None) };
        (connection.last_active, connection.is_silent) = (now, false);
        connection.last_health_check = Some(now);
        (true, connection.due.as_ref().map(|(update, _)| update.version().clone()))
    }

    /// A client has answered the update of this nonce. An answer to an earlier one says nothing about this one.
    pub fn answered(&mut self, ticket: &Ticket, nonce: &str, answer: Acknowledgement) {
        let Some(connection) = self.connection(ticket) else { return };
        let Some((due, _)) = connection.due.as_ref().filter(|(due, _)| due.nonce == nonce) else { return };
        if answer == Acknowledgement::Accepted {
            connection.running = Some(due.version().clone());
        }
        connection.answer = Some(answer);
    }

    /// Whether every client that is connected has answered the update that it is to have, by applying or by refusing it.
    /// Silent ones are not waited for. Not so before anything is in force.
    pub fn all_acked(&self) -> bool {
        self.is_published && !self.connections.values().any(Connection::is_waited_for)
    }

    /// No longer waits for clients that have not been heard of for longer than that, and says which are new among them.
    /// Their streams go on: what is silent is not gone.
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

    /// The clients that are connected, by the version that they are to have, and in the order of their addresses.
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

    /// The clients that say who they are, as a rollout looks at nodes. One that is silent and owes an answer is away.
    pub fn sightings(&self) -> Vec<Sighting> {
        self.connections.values().filter_map(Connection::sighting).collect()
    }

    fn forget_unused(&mut self) {
        let connections = &self.connections;
        let mut used: Vec<_> = connections.values().filter_map(|it| Some(it.due.as_ref()?.0.version())).collect();
        used.sort_unstable();
        self.updates.retain(|version, _| used.binary_search(&version).is_ok());
    }

    /// The connection of a ticket, unless it has ended or given way.
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
        Some(Sighting { node, connected, revision, refused: Vec::new(), refused_policies })
    }
}
