//! What goes into a session and what comes out of it, as plain values.

use std::{collections::BTreeMap, sync::Arc};

use postern_compile::snapshot::ResourceType;
use postern_release::fleet::Event;

use crate::xds::content::Content;

/// What a client says about one type: what it wants, and what it made of an earlier response.
#[derive(Debug, Clone)]
pub struct Request {
    /// The type.
    pub kind: ResourceType,
    /// The nonce of the response that it answers, or nothing.
    pub nonce: String,
    /// Why it refused that response, if it did.
    pub error: Option<String>,
    /// What it wants.
    pub wish: Wish,
}

/// What a client wants from now on.
#[derive(Debug, Clone)]
pub enum Wish {
    /// State of the world: all that it wants, and the version that it has.
    All {
        /// The names; none at all means everything, until a name has been given once.
        names: Vec<String>,
        /// The version of what it has.
        version: String,
    },
    /// Incremental: what it wants more and less than before.
    Changes {
        /// The names to be sent, in any case.
        subscribe: Vec<String>,
        /// The names that it no longer wants.
        unsubscribe: Vec<String>,
        /// What it has already, from an earlier stream. Counts in the first request of a type only.
        initial: BTreeMap<String, String>,
    },
}

/// What a client is to be sent.
#[derive(Debug, Clone)]
pub struct Response {
    /// What the client must answer with. Unique in the stream, and never that of an earlier stream of this process.
    pub nonce: String,
    /// All the rest.
    pub content: Arc<Content>,
}

impl Response {
    /// The type of its resources.
    pub fn kind(&self) -> ResourceType {
        self.content.kind
    }
}

/// What comes of a request, a new snapshot or the passing of time.
#[derive(Debug, Default)]
pub struct Reaction {
    /// What to send, in order.
    pub responses: Vec<Response>,
    /// What to record, in order.
    pub events: Vec<Event>,
}
