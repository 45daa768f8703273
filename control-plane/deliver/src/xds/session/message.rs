//! The inputs and outputs of a session, as plain values.

use std::{collections::BTreeMap, sync::Arc};

use postern_compile::snapshot::ResourceType;
use postern_release::fleet::Event;

use crate::xds::content::Content;

/// A client's request about one type: its subscriptions, and its answer to an earlier response.
#[derive(Debug, Clone)]
pub struct Request {
    /// The type.
    pub kind: ResourceType,
    /// The nonce of the response that it answers, or empty.
    pub nonce: String,
    /// The reason for which it refused that response, if it did.
    pub error: Option<String>,
    /// Its subscriptions.
    pub wish: Wish,
}

/// A client's subscriptions, in either variant.
#[derive(Debug, Clone)]
pub enum Wish {
    /// State of the world: all names, and the version that it has.
    All {
        /// The names. None at all is a wildcard, until a name has been given once.
        names: Vec<String>,
        /// The version that it has.
        version: String,
    },
    /// Incremental: the changes of its subscriptions.
    Changes {
        /// The names to subscribe to, which are sent in any case.
        subscribe: Vec<String>,
        /// The names to unsubscribe from.
        unsubscribe: Vec<String>,
        /// The resources that it has from an earlier stream, by name and version. Counts in the first request of a type
        /// only.
        initial: BTreeMap<String, String>,
    },
}

/// A response to a client.
#[derive(Debug, Clone)]
pub struct Response {
    /// The nonce that the answer must have. Unique in the stream, and among all streams of this process.
    pub nonce: String,
    /// The rest of the response.
    pub content: Arc<Content>,
}

impl Response {
    /// The type of its resources.
    pub fn kind(&self) -> ResourceType {
        self.content.kind
    }
}

/// The result of a request, a new snapshot or the passing of time.
#[derive(Debug, Default)]
pub struct Reaction {
    /// The responses to send, in order.
    pub responses: Vec<Response>,
    /// The events to record, in order.
    pub events: Vec<Event>,
}
