//! Proposals, their admission, and their results.

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::pipeline::CompileError;
use postern_model::{Bundle, Diagnostics, File};

use crate::{
    publication::Publication,
    rollout::NotNow,
    store::{Parent, Revision, Store, StoreError, assemble},
};

/// Admission: the way from a bundle to what nodes get, through the gate.
pub trait Admission: Sync {
    /// Compiles what nodes would get, or returns why it must not be served.
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError>;

    /// Reads files, or returns all errors.
    fn read(&self, files: &[File]) -> Result<Bundle, Diagnostics> {
        postern_model::read(files)
    }

    /// The digest that identifies the content of a bundle.
    fn digest(&self, bundle: &Bundle) -> Digest;

    /// The known nodes, for which a change must not open a route unless it is allowed explicitly.
    fn nodes(&self) -> &[NodeIdentity] {
        &[]
    }
}

/// A set of resources that somebody proposes to put in force.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The complete set of resources.
    pub files: Vec<File>,
    /// The author.
    pub author: String,
    /// The author's message.
    pub message: String,
    /// The revision that it must follow.
    pub parent: Parent,
    /// Whether to retry the content of the latest revision if that was rolled back.
    pub again: bool,
    /// Whether it may remove authentication from routes that have it now, or remove all resources.
    pub allow_unguarded: bool,
}

impl Proposal {
    /// A proposal with the content of an earlier revision. Fails if that revision is not kept.
    pub fn to_go_back(store: &dyn Store, number: u64, author: String, parent: Parent) -> Result<Self, ApplyError> {
        let documents = store.documents(number)?.ok_or(ApplyError::NoRevision(number))?;
        let message = format!("rollback to revision {number}");
        Ok(Self { files: assemble(&documents), author, message, parent, again: true, allow_unguarded: false })
    }
}

/// The result of an accepted proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It is a new revision, and spreads.
    Revision(Revision),
    /// It equals the latest revision; nothing changed.
    Unchanged(Revision),
}

/// Why a proposal was refused. What is in force does not change.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It is invalid, or the filter refuses it.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It would open routes, and this was not allowed explicitly.
    #[error(transparent)]
    Unguarded(#[from] Opens),
    /// The revision to roll back to does not exist.
    #[error("revision {0} is not kept: `postern revisions` lists those that are")]
    NoRevision(u64),
    /// The command does not fit the state of the rollout.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// There is no rollout to command.
    #[error("no rollout has been started")]
    NoRollout,
    /// The owner has ended, or panicked.
    #[error("the change was not taken in: the control plane failed or is shutting down, and the log says why")]
    Ended,
}

impl ApplyError {
    /// Whether the resources themselves are the reason, so that parts of them may be served.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Compile(_) | Self::Unguarded(_))
    }
}

/// What a change would open. It must be allowed explicitly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Opens {
    /// These routes have authentication now, and would lose it.
    #[error(
        "this change would leave routes without authentication that have it now: {}; nothing was changed. If that is meant, \
         say `--allow-unguarded` (in the API: `allowUnguarded`), or `public: {{ reason: … }}` at the route", .0.join(", ")
    )]
    Routes(Vec<String>),
    /// It declares no resources.
    #[error(
        "this change declares no resources, so that {0} would be removed; nothing was changed. If that is meant, say \
         `--allow-unguarded` (in the API: `allowUnguarded`)"
    )]
    Everything(String),
}

impl From<Diagnostics> for ApplyError {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Compile(diagnostics.into())
    }
}
