//! What all streams have in common: the update in force, who is connected, and who has answered it. Free of I/O; time is
//! an argument, and so is whatever a connection is ended by.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::session::{PolicySetRef, Update};

/// What a client made of an update. Either way it is done with it: a client that refuses holds up nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It applied it.
    Accepted,
    /// It did not, in these words.
    Refused(String),
}

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

/// The clients and the update in force. `C` is what ends a connection from outside.
#[derive(Debug)]
pub struct Registry<C> {
    current: Option<Arc<Update>>,
    /// The nonce of the latest update, as a number.
    nonce: u128,
    connections: BTreeMap<String, Connection<C>>,
    tickets: u64,
}

#[derive(Debug)]
struct Connection<C> {
    number: u64,
    /// When it was last heard of, by a request or a health check.
    last_active: Instant,
    last_health_check: Option<Instant>,
    /// What it made of the update in force.
    answer: Option<Answer>,
    cut: C,
}

/// What is known of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientReport {
    /// Who it is.
    pub address: String,
    /// What it made of the update in force; nothing yet if it has not answered.
    pub answer: Option<Answer>,
    /// When it was last heard of.
    pub last_active: Instant,
    /// When it last said that it is alive, if it ever did.
    pub last_health_check: Option<Instant>,
}

impl<C> Default for Registry<C> {
    fn default() -> Self {
        Self { current: None, nonce: 0, connections: BTreeMap::new(), tickets: 0 }
    }
}

impl<C> Registry<C> {
    /// Puts policies in force: a new nonce, and nobody has answered. The same policies again change nothing.
    pub fn publish(&mut self, set: &PolicySetRef, now: SystemTime) -> bool {
        if self.current.as_ref().is_some_and(|current| current.version() == set.version()) {
            return false;
        }
        // By the clock, so that a restarted control plane does not repeat one; but never the same twice.
        let time = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        self.nonce = time.max(self.nonce.saturating_add(1));
        self.current = Some(Arc::new(Update { nonce: self.nonce.to_string(), set: Arc::clone(set) }));
        for connection in self.connections.values_mut() {
            connection.answer = None;
        }
        true
    }

    /// What is in force.
    pub fn current(&self) -> Option<&Arc<Update>> {
        self.current.as_ref()
    }

    /// A client opened a stream. Another one of the same client gives way: what ends it is returned.
    pub fn connect(&mut self, address: &str, now: Instant, cut: C) -> (Ticket, Option<C>) {
        self.tickets = self.tickets.wrapping_add(1);
        let number = self.tickets;
        let connection = Connection { number, last_active: now, last_health_check: None, answer: None, cut };
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

    /// A client sent a request.
    pub fn active(&mut self, ticket: &Ticket, now: Instant) {
        if let Some(connection) = self.connection(ticket) {
            connection.last_active = now;
        }
    }

    /// A client says that it is alive. Whether it has a stream.
    pub fn health_check(&mut self, address: &str, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(address) else { return false };
        connection.last_active = now;
        connection.last_health_check = Some(now);
        true
    }

    /// A client has answered the update of this nonce. An answer to an earlier one says nothing about this one.
    pub fn answered(&mut self, ticket: &Ticket, nonce: &str, answer: Answer) {
        if self.current.as_ref().is_none_or(|current| current.nonce != nonce) {
            return;
        }
        if let Some(connection) = self.connection(ticket) {
            connection.answer = Some(answer);
        }
    }

    /// Whether every client that is connected has answered the update in force, by applying or by refusing it. Not so
    /// before there is one.
    pub fn all_acked(&self) -> bool {
        self.current.is_some() && self.connections.values().all(|connection| connection.answer.is_some())
    }

    /// Forgets the clients that have not been heard of for longer than that. What ends their streams is returned.
    pub fn flush(&mut self, now: Instant, longest: Duration) -> Vec<(String, C)> {
        let inactive = |_: &String, connection: &mut Connection<C>| {
            now.saturating_duration_since(connection.last_active) > longest
        };
        self.connections.extract_if(.., inactive).map(|(address, connection)| (address, connection.cut)).collect()
    }

    /// The clients that are connected, in the order of their addresses.
    pub fn report(&self) -> Vec<ClientReport> {
        let report = |(address, connection): (&String, &Connection<C>)| ClientReport {
            address: address.clone(),
            answer: connection.answer.clone(),
            last_active: connection.last_active,
            last_health_check: connection.last_health_check,
        };
        self.connections.iter().map(report).collect()
    }

    /// The connection of a ticket, unless it has ended or given way.
    fn connection(&mut self, ticket: &Ticket) -> Option<&mut Connection<C>> {
        self.connections.get_mut(&ticket.address).filter(|connection| connection.number == ticket.number)
    }
}
