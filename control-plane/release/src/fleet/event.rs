//! What a stream learns about its node, as plain values.

use postern_base::digest::Digest;
use postern_compile::snapshot::ResourceType;

/// What a stream learnt about its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It runs a version of a type, and should.
    Acked {
        /// The type.
        kind: ResourceType,
        /// The version.
        version: Digest,
    },
    /// It is back on its last good version of a type, after it had refused another.
    Restored {
        /// The type.
        kind: ResourceType,
        /// The last good version.
        version: Digest,
    },
    /// It refused a version of a type.
    Nacked {
        /// The type.
        kind: ResourceType,
        /// The version.
        version: Digest,
        /// In the client's words.
        message: String,
        /// Those of the refused resources that the words name.
        resources: Vec<String>,
        /// What the refused response carried, by name and version, up to a limit. A client that subscribes to some names
        /// refuses a version that stands for these alone.
        carried: Vec<(String, Digest)>,
    },
    /// It runs a version of a type, but not all of what that is for.
    Warned {
        /// The type.
        kind: ResourceType,
        /// Why, and what to do about it.
        warning: &'static str,
    },
    /// It runs all that it subscribed to of a revision.
    Settled {
        /// The revision.
        revision: Digest,
    },
    /// It is due something else than what it was settled on.
    Unsettled,
}
