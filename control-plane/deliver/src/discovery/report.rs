//! Reports about the clients of policy discovery.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_release::{publication::Audience, store::milliseconds};
use schemars::JsonSchema;
use serde::Serialize;

use super::update::{Acknowledgement, Update};

/// The clients that are to have one version.
#[derive(Debug, Clone)]
pub struct GroupReport {
    /// The update that they are to have; `None` before anything is in force.
    pub update: Option<Arc<Update>>,
    /// Whether each of them that is waited for has answered it, by accepting or refusing it.
    pub all_acked: bool,
    /// The clients, sorted by address.
    pub clients: Vec<ClientReport>,
}

impl GroupReport {
    /// A group without clients.
    pub(super) fn of(update: Option<Arc<Update>>) -> Self {
        Self { all_acked: update.is_some(), update, clients: Vec::new() }
    }

    /// The version that they are to have.
    pub fn version(&self) -> Option<&Digest> {
        self.update.as_ref().map(|update| update.version())
    }

    /// The group in the form that the API shows, at this time.
    pub(crate) fn view(&self, now: (Instant, SystemTime)) -> GroupView {
        let set = self.update.as_ref().map(|update| &update.set);
        GroupView {
            version: self.version().cloned(),
            nonce: self.update.as_ref().map(|update| update.nonce.clone()),
            policies: set.map_or(0, |set| set.policies().len()),
            plan: set.is_some_and(|set| !set.plan().is_empty()),
            all_acked: self.all_acked,
            clients: self.clients.iter().map(|client| client.view(now)).collect(),
        }
    }
}

/// The report about one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientReport {
    /// Its address.
    pub address: String,
    /// Its identity.
    pub audience: Arc<Audience>,
    /// Its answer to the update that it is to have; `None` if it has not answered.
    pub answer: Option<Acknowledgement>,
    /// The version that it last applied, of those that this stream brought.
    pub running: Option<Digest>,
    /// When its stream was opened.
    pub since: Instant,
    /// When it was last heard of.
    pub last_active: Instant,
    /// The time of its last health check, if there was one.
    pub last_health_check: Option<Instant>,
    /// Whether it has been silent for too long.
    pub is_silent: bool,
}

impl ClientReport {
    /// The state of the client.
    pub fn state(&self) -> ClientState {
        match &self.answer {
            Some(Acknowledgement::Accepted) => ClientState::Ready,
            Some(Acknowledgement::Refused(_)) => ClientState::Refusing,
            None if self.is_silent => ClientState::Silent,
            None => ClientState::Pending,
        }
    }

    fn view(&self, (now, clock): (Instant, SystemTime)) -> ClientView {
        let seconds = |instant: Instant| {
            let time = clock.checked_sub(now.saturating_duration_since(instant)).unwrap_or(clock);
            milliseconds(time) / 1000
        };
        ClientView {
            address: self.address.clone(),
            identity: self.audience.node().map(|node| NodeIdentity::clone(node)),
            state: self.state(),
            since: seconds(self.since),
            last_active: seconds(self.last_active),
            last_health_check: self.last_health_check.map(seconds),
            running: self.running.clone(),
            reason: match &self.answer {
                Some(Acknowledgement::Refused(message)) => Some(message.clone()),
                Some(Acknowledgement::Accepted) | None => None,
            },
        }
    }
}

/// Where a client is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClientState {
    /// It applied what it is to have.
    Ready,
    /// It has not answered yet.
    Pending,
    /// It refused what it is to have, and runs what it had before.
    Refusing,
    /// It has not answered, and nothing was heard of it for too long: it is not waited for.
    Silent,
}

impl ClientState {
    /// All states, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Pending, Self::Refusing, Self::Silent];
}

/// The clients that are to have one version.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    /// The version; absent while nothing is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Digest>,
    /// The nonce that answers to it repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    /// How many policies it has.
    policies: usize,
    /// Whether they are sent the plan, too.
    plan: bool,
    /// Whether every client that is waited for has answered, by applying or by refusing it.
    all_acked: bool,
    clients: Vec<ClientView>,
}

impl GroupView {
    /// Whether it runs the version that it is to have.
    pub fn is_acked(&self) -> bool {
        self.all_acked
    }
}

/// A client.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientView {
    /// What it is called.
    address: String,
    /// Who it says it is; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<NodeIdentity>,
    state: ClientState,
    /// Since when it is connected, in seconds since 1970.
    since: u64,
    /// When it was last heard of, in seconds since 1970.
    last_active: u64,
    /// When its last health check came, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_health_check: Option<u64>,
    /// The version that it applied last.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<Digest>,
    /// Why it refuses what it is to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}
