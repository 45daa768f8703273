//! What a group of clients is sent, and how a client answers.

use std::sync::Arc;

use postern_base::digest::Digest;
use postern_release::publication::PolicySet;

/// A policy set that was put in force for some clients.
#[derive(Debug)]
pub struct Update {
    /// The nonce that an answer repeats. It is unique, even among updates with the same policies.
    pub nonce: String,
    /// The policies.
    pub set: PolicySetRef,
}

/// A policy set that streams share.
pub type PolicySetRef = Arc<PolicySet>;

impl Update {
    /// The version of its policies.
    pub fn version(&self) -> &Digest {
        self.set.version()
    }
}

/// A client's answer to an update. A refusal is an answer too: the client is no longer waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acknowledgement {
    /// It applied the update.
    Accepted,
    /// It refused the update, with this message.
    Refused(String),
}
