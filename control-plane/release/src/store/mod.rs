//! The store: revisions with their documents, the notes of rollouts, and the last known revision of nodes.
//!
//! [`Store`] is the interface for the rest of the control plane. [`Database`] is an embedded database in one file, and
//! [`Memory`] is for runs without a state directory. Every implementation guarantees:
//!
//! - What [`Store::append`] returned is kept whole and, on a disk, is durable. After an error, the revision is there
//!   whole or not at all.
//! - Revisions have consecutive numbers and never change, except that resources are [purged](Store::purge) from them.
//! - Documents, which can hold credentials, and sealed notes are encrypted and authenticated at rest.
//! - Two writers cannot both follow the same revision: the second gets [`StoreError::Conflict`].

mod database;
mod document;
mod error;
mod memory;
mod purge;
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
    /// The SHA-256 of its content, with that of the filter; empty after a purge.
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
    /// The resources that were purged from it. It is no longer whole then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub purged: Vec<String>,
}

impl Revision {
    /// Records that a resource was purged, so that `left` documents are left. The digest goes, since whoever knows the rest
    /// could test guesses by it.
    fn purge(&mut self, resource: &str, left: usize) {
        self.digest.clear();
        self.documents = left;
        if !self.purged.iter().any(|purged| purged == resource) {
            self.purged.push(resource.to_owned());
        }
    }
}

/// The content of a revision to be appended.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The SHA-256 of its content, with that of the filter.
    pub digest: String,
    /// The author.
    pub author: String,
    /// The author's message.
    pub message: String,
    /// When it was made.
    pub at: SystemTime,
    /// All of its documents.
    pub documents: Prepared,
}

/// The revision that a writer expects to follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Parent {
    /// Any: whichever is the latest.
    #[default]
    Latest,
    /// This one; `None` if it expects no revision at all.
    Exactly(Option<u64>),
}

/// Storage of everything that outlives the process.
pub trait Store: fmt::Debug + Send + Sync {
    /// Prepares documents to be appended. It writes nothing and may be slow, so that it can run on another thread.
    fn prepare(&self, documents: Vec<Document>) -> Result<Prepared, StoreError> {
        Ok(documents.into())
    }

    /// Appends a revision. It is durable when this returns. Fails with [`StoreError::Conflict`] if `parent` is not the
    /// latest.
    fn append(&self, draft: Draft, parent: Parent) -> Result<Revision, StoreError>;

    /// The latest revision, or `None` if the store is empty.
    fn latest(&self) -> Result<Option<Revision>, StoreError>;

    /// The revision of this number, or `None` if it is not kept.
    fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError>;

    /// All revisions that are kept, latest first.
    fn revisions(&self) -> Result<Vec<Revision>, StoreError>;

    /// The documents of a revision, sorted by file and line; `None` if it is not kept.
    fn documents(&self, number: u64) -> Result<Option<Vec<Document>>, StoreError>;

    /// Deletes all but the last `keep` revisions and the `pinned` ones, with the documents that only they had. Returns
    /// the deleted revisions.
    fn collect(&self, keep: usize, pinned: &BTreeSet<u64>) -> Result<Vec<u64>, StoreError>;

    /// Removes documents from all revisions for good, because a resource is purged, and returns the revisions that had
    /// some, in order. `doomed` gets the documents of one revision and returns the indices of those to remove. A changed
    /// revision names `resource` in [`Revision::purged`], and loses its digest. On a disk, nothing of a removed document is
    /// left in the file when this returns.
    fn purge(&self, resource: &str, doomed: &dyn Fn(&[Document]) -> BTreeSet<usize>) -> Result<Vec<u64>, StoreError>;

    /// Writes notes, all of them in one transaction. A note is a value under a name, such as the rollout. `None`
    /// deletes one.
    fn put_notes(&self, notes: &[(&str, Option<&[u8]>)]) -> Result<(), StoreError>;

    /// Like [`Self::put_notes`], for one note.
    fn put_note(&self, name: &str, value: Option<&[u8]>) -> Result<(), StoreError> {
        self.put_notes(&[(name, value)])
    }

    /// The note of this name, or `None`.
    fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Like [`Self::put_note`], encrypted and authenticated like a document: for what decides who is let in.
    fn put_sealed_note(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.put_note(name, Some(value))
    }

    /// The sealed note of this name, or `None`. Fails if it was not written by [`Self::put_sealed_note`].
    fn sealed_note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.note(name)
    }

    /// Replaces the records of all nodes, in one transaction.
    fn put_nodes(&self, nodes: &BTreeMap<String, NodeRecord>) -> Result<(), StoreError>;

    /// The records of nodes.
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

/// A time in milliseconds since 1970.
pub fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
