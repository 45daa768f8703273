//! The protocol state of one stream, free of I/O: requests and updates in, what to send and what to record out.
//!
//! The five cases of a request are the protocol's own ([`Case`]). Two rules are added, since updates are pushed and do
//! not wait for a request: a client that begins a stream with another version than the one in force is sent that one,
//! and an answer that crossed a newer update on the way is no reason to send the newer one twice.

use std::{collections::VecDeque, sync::Arc};

use super::update::{Acknowledgement, Update};

/// How many responses are remembered that a client has not answered. One that answers none of so many is asking anew.
const MOST_UNANSWERED: usize = 16;

/// What a client said.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The version that it applied last.
    pub version: String,
    /// The nonce of the last response that it got.
    pub nonce: String,
    /// Why it refused that response, if it did.
    pub error: Option<String>,
}

/// What a request is, by the update in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Case {
    /// 1: the update was applied.
    Ack,
    /// 2: it was not, in these words.
    Nack(String),
    /// 3: the client has missed an update.
    StaleNonce,
    /// 4: the client has nothing.
    Initial,
    /// 5: anything else.
    NoUpdate,
}

impl Case {
    /// The case of a request.
    pub fn of(request: &Request, current: &Update) -> Self {
        let same_version = request.version == current.version().as_str();
        if request.nonce.is_empty() {
            return if request.version.is_empty() { Self::Initial } else { Self::NoUpdate };
        }
        if request.nonce != current.nonce {
            return Self::StaleNonce;
        }
        match &request.error {
            _ if same_version => Self::Ack,
            Some(error) => Self::Nack(error.clone()),
            None => Self::NoUpdate,
        }
    }
}

/// What comes of a request.
#[derive(Debug, Default)]
pub struct Reaction {
    /// What to send.
    pub response: Option<Arc<Update>>,
    /// What to record about the update in force.
    pub answer: Option<Acknowledgement>,
}

/// One stream.
#[derive(Debug, Default)]
pub struct Session {
    /// What its first request said, while there is nothing in force to compare it with.
    waiting: Option<Request>,
    /// The nonce of the update that the client has or is being sent.
    has: Option<String>,
    /// The nonces that it was sent and has not answered.
    unanswered: VecDeque<String>,
}

impl Session {
    /// The client asks, accepts or refuses. Before anything is in force, it waits: an empty set would tell it that nothing
    /// is guarded.
    pub fn on_request(&mut self, request: Request, current: Option<&Arc<Update>>) -> Reaction {
        let Some(current) = current else {
            self.waiting = Some(request);
            return Reaction::default();
        };
        let case = Case::of(&request, current);
        let awaited = self.answered(&request.nonce);
        match case {
            Case::Ack => self.record(current, Acknowledgement::Accepted),
            Case::Nack(message) => self.record(current, Acknowledgement::Refused(message)),
            // It was sent the update in force since, and will answer that.
            Case::StaleNonce if awaited && self.has_been_sent(current) => Reaction::default(),
            Case::StaleNonce | Case::Initial => self.send(current),
            Case::NoUpdate if self.has.is_some() => Reaction::default(),
            // The first request of a stream: what the client has, it says by the version alone.
            Case::NoUpdate if request.version == current.version().as_str() => {
                self.record(current, Acknowledgement::Accepted)
            }
            Case::NoUpdate => self.send(current),
        }
    }

    /// There is another update in force.
    pub fn on_update(&mut self, current: &Arc<Update>) -> Reaction {
        match self.waiting.take() {
            Some(request) => self.on_request(request, Some(current)),
            None if self.has.is_none() || self.has_been_sent(current) => Reaction::default(),
            None => self.send(current),
        }
    }

    fn send(&mut self, update: &Arc<Update>) -> Reaction {
        self.has = Some(update.nonce.clone());
        if self.unanswered.len() >= MOST_UNANSWERED {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(update.nonce.clone());
        Reaction { response: Some(Arc::clone(update)), answer: None }
    }

    fn record(&mut self, current: &Update, answer: Acknowledgement) -> Reaction {
        self.has = Some(current.nonce.clone());
        Reaction { response: None, answer: Some(answer) }
    }

    fn has_been_sent(&self, update: &Update) -> bool {
        self.has.as_deref() == Some(&update.nonce)
    }

    /// Whether a nonce is one that the client owed an answer to. It owes it no longer.
    fn answered(&mut self, nonce: &str) -> bool {
        let place = self.unanswered.iter().position(|unanswered| unanswered == nonce);
        place.and_then(|place| self.unanswered.remove(place)).is_some()
    }
}
