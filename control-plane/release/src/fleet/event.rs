//! Events that a stream reports about its node, as plain values.

use postern_base::digest::Digest;
use postern_compile::snapshot::ResourceType;

/// What a stream learnt about its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The node accepted the version of a type that it should run.
    Acked {
        /// The type.
        kind: ResourceType,
        /// The version.
        version: Digest,
    },
    /// The node is back on its last good version of a type, after it had refused another.
    Restored {
        /// The type.
        kind: ResourceType,
        /// The last good version.
        version: Digest,
    },
    /// The node refused a version of a type.
    Nacked {
        /// The type.
        kind: ResourceType,
        /// The version.
        version: Digest,
        /// The client's error message.
        message: String,
        /// The refused resources that the message names.
        resources: Vec<String>,
        /// The contents of the refused response, by name and version, up to a limit. For a client that subscribes to
        /// some names only, the refused version is that of these resources.
        carried: Vec<(String, Digest)>,
    },
    /// The node runs a version of a type, but ignores some of it.
    Warned {
        /// The type.
        kind: ResourceType,
        /// The reason, and what to do about it.
        warning: &'static str,
    },
    /// The node runs everything that it subscribed to of a revision.
    Settled {
        /// The revision.
        revision: Digest,
    },
    /// The node is to run something other than what it was settled on.
    Unsettled,
}
