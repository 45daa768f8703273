//! The protocol state of one stream, free of I/O: requests and updates in, responses and records out.
//!
//! The five cases of a request are the protocol's own ([`Case`]; docs/rules.md, Policy discovery). Two rules are added,
//! because updates are pushed and not only requested: a client that begins a stream with a version other than the one
//! in force is sent that one, and an answer that crossed a newer update does not cause the newer one to be sent twice.

use std::{collections::VecDeque, sync::Arc};

use super::update::{Acknowledgement, Update};

/// The maximum number of unanswered responses that are remembered. An answer to none of these counts as a new request.
const MOST_UNANSWERED: usize = 16;

/// A client's request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The version that it last applied.
    pub version: String,
    /// The nonce of the last response that it received.
    pub nonce: String,
    /// The reason for which it refused that response, if it did.
    pub error: Option<String>,
}

/// The case of a request, with regard to the update in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Case {
    /// 1: it applied the update.
    Ack,
    /// 2: it refused the update, with this message.
    Nack(String),
    /// 3: it missed an update.
    StaleNonce,
    /// 4: it has nothing.
    Initial,
    /// 5: anything else.
    NoUpdate,
}

impl Case {
    /// The case of a request when this update is in force.
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

/// The result of a request or an update.
#[derive(Debug, Default)]
pub struct Reaction {
    /// The update to send, if any.
    pub response: Option<Arc<Update>>,
    /// The answer to record for the update in force, if any.
    pub answer: Option<Acknowledgement>,
}

/// The protocol state of one stream.
#[derive(Debug, Default)]
pub struct Session {
    /// Its first request, kept until an update is in force.
    waiting: Option<Request>,
    /// The nonce of the update that the client has or is being sent.
    has: Option<String>,
    /// The nonces that it was sent and has not answered.
    unanswered: VecDeque<String>,
}

impl Session {
    /// Handles a request. Before anything is in force the client waits: an empty set would mean that nothing is
    /// guarded.
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
            // It has been sent the update in force since, and will answer that.
            Case::StaleNonce if awaited && self.has_been_sent(current) => Reaction::default(),
            Case::StaleNonce | Case::Initial => self.send(current),
            Case::NoUpdate if self.has.is_some() => Reaction::default(),
            // In the first request of a stream, the version alone says what the client has.
            Case::NoUpdate if request.version == current.version().as_str() => {
                self.record(current, Acknowledgement::Accepted)
            }
            Case::NoUpdate => self.send(current),
        }
    }

    /// Handles another update in force.
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

    /// Whether the client has not answered this nonce yet. It counts as answered from then on.
    fn answered(&mut self, nonce: &str) -> bool {
        let place = self.unanswered.iter().position(|unanswered| unanswered == nonce);
        place.and_then(|place| self.unanswered.remove(place)).is_some()
    }
}
