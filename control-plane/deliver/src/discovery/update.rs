//! What a group of clients is sent, and what a client makes of it.

use std::sync::Arc;

use postern_base::digest::Digest;
use postern_release::publication::PolicySet;

/// A set of policies that was put in force for some clients at a time.
#[derive(Debug)]
pub struct Update {
    /// What an answer to it repeats. Two updates never have the same, even with the same policies.
    pub nonce: String,
    /// The policies.
    pub set: PolicySetRef,
}

/// Streams share what they are sent.
pub type PolicySetRef = Arc<PolicySet>;

impl Update {
    /// The version of its policies.
    pub fn version(&self) -> &Digest {
        self.set.version()
    }
}

/// What a client made of an update. Either way it is done with it: a client that refuses holds up nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acknowledgement {
    /// It applied it.
    Accepted,
    /// It did not, in these words.
    Refused(String),
}
