//! What outlives the process: revisions with their resources, where each is on its way, and who ran what.
//!
//! [`Store`] is what the rest of the control plane knows of it. [`Database`] is an embedded database in one file,
//! and [`Memory`] serves where nothing has to last. The rules of all implementations:
//!
//! - What [`Store::append`] returned is kept, whole: on the disk, if there is one. What it did not return is there whole or not at all.
//! - Revisions have consecutive numbers and never change.
//! - Documents, which can hold credentials, are not readable where they lie without a key.
//! - Two writers cannot both follow the same revision: the second is told ([`StoreError::Conflict`]).

mod database;
mod document;
mod error;
mod memory;
mod seal;
mod transaction;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    database::Database,
    document::{Document, Prepared, assemble, split},
    error::StoreError,
    memory::Memory,
};

/// A numbered, immutable set of resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Its number, from 1.
    pub number: u64,
    /// The SHA-256 of its content, with that of the filter.
    pub digest: String,
    /// Who made it.
    pub author: String,
    /// Why.
    pub message: String,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// The one that it followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// How many documents it has.
    pub documents: usize,
}

/// What is to become a revision.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The SHA-256 of its content, with that of the filter.
    pub digest: String,
    /// Who makes it.
    pub author: String,
    /// Why.
    pub message: String,
    /// When.
    pub at: SystemTime,
    /// All of its documents.
    pub documents: Prepared,
}

/// Which revision a writer believes to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// Whichever is the latest.
    Latest,
    /// This one; `None`: there is no revision yet.
    Exactly(Option<u64>),
}

/// Where everything that outlives the process is.
pub trait Store: fmt::Debug + Send + Sync {
    /// Makes documents ready to be appended. It writes nothing, and may take its time: it can run beside other work.
    fn prepare(&self, documents: Vec<Document>) -> Result<Prepared, StoreError> {
        Ok(documents.into())
    }

    /// Adds a revision, durably, before it returns.
    fn append(&self, draft: Draft, parent: Parent) -> Result<Revision, StoreError>;

    /// The latest revision.
    fn latest(&self) -> Result<Option<Revision>, StoreError>;

    /// A revision that is kept.
    fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError>;

    /// All that are kept, the latest first.
    fn revisions(&self) -> Result<Vec<Revision>, StoreError>;

    /// The documents of a revision that is kept, in the order of their files and lines.
    fn documents(&self, number: u64) -> Result<Option<Vec<Document>>, StoreError>;

    /// Forgets all but the last `keep` revisions and the `pinned` ones, with what only they had. Says which.
    fn collect(&self, keep: usize, pinned: &BTreeSet<u64>) -> Result<Vec<u64>, StoreError>;

    /// Keeps notes, all of them at once: values by their names, such as the rollout under way. `None` removes one.
    fn put_notes(&self, notes: &[(&str, Option<&[u8]>)]) -> Result<(), StoreError>;

    /// The same for one.
    fn put_note(&self, name: &str, value: Option<&[u8]>) -> Result<(), StoreError> {
        self.put_notes(&[(name, value)])
    }

    /// A note, if it was kept.
    fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keeps what is known of nodes, all of it at once.
    fn put_nodes(&self, nodes: &BTreeMap<String, NodeRecord>) -> Result<(), StoreError>;

    /// What was known of nodes.
    fn nodes(&self) -> Result<BTreeMap<String, NodeRecord>, StoreError>;
}

/// What is kept of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The service that it belongs to.
    pub service: String,
    /// The revision that it ran when it was last heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// When that was, in milliseconds since 1970.
    pub seen: u64,
}

/// A time as it is kept.
pub fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
