//! What is proposed, what proves it, and what comes of it.

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::pipeline::CompileError;
use postern_model::{Bundle, Diagnostics, File};

use crate::{
    publication::Publication,
    rollout::NotNow,
    store::{Parent, Revision, Store, StoreError, assemble},
};

/// What proves resources: the way from a bundle to what nodes get, through the gate.
pub trait Admission: Sync {
    /// What nodes would get, or why they must not.
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError>;

    /// What files declare, or all that is wrong with them.
    fn read(&self, files: &[File]) -> Result<Bundle, Diagnostics> {
        postern_model::read(files)
    }

    /// What the content of a bundle is called.
    fn digest(&self, bundle: &Bundle) -> Digest;

    /// The nodes that are known, for which a change must not open a route unasked.
    fn nodes(&self) -> &[NodeIdentity] {
        &[]
    }
}

/// What somebody wants in force.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// All resources.
    pub files: Vec<File>,
    /// Who wants it.
    pub author: String,
    /// Why.
    pub message: String,
    /// What it is meant to follow.
    pub parent: Parent,
    /// Whether to try once more what the latest revision says, if that was rolled back.
    pub again: bool,
    /// Whether it may leave routes without authentication that have it now, or remove everything.
    pub allow_unguarded: bool,
}

impl Proposal {
    /// A proposal to go back to what an earlier revision said.
    pub fn to_go_back(store: &dyn Store, number: u64, author: String, parent: Parent) -> Result<Self, ApplyError> {
        let documents = store.documents(number)?.ok_or(ApplyError::NoRevision(number))?;
        let message = format!("rollback to revision {number}");
        Ok(Self { files: assemble(&documents), author, message, parent, again: true, allow_unguarded: false })
    }
}

/// What came of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It is a revision now, and spreads.
    Revision(Revision),
    /// The latest revision says the same.
    Unchanged(Revision),
}

/// Why a proposal came to nothing. What is in force stays.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It is wrong, or the filter refuses it.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It would open routes, and nobody said that this is meant.
    #[error(transparent)]
    Unguarded(#[from] Opens),
    /// There is nothing to go back to under this number.
    #[error("revision {0} is not kept: `postern revisions` lists those that are")]
    NoRevision(u64),
    /// A command that does not fit.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// There is nothing to command.
    #[error("no rollout has been started")]
    NoRollout,
    /// Whoever was to take it in has ended, or panicked.
    #[error("the change was not taken in: the control plane failed or is shutting down, and the log says why")]
    Ended,
}

/// What a change would open. It needs an explicit word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Opens {
    /// These routes are guarded now, and would not be afterwards.
    #[error(
        "this change would leave routes without authentication that have it now: {}; nothing was changed. If that is meant, \
         say `--allow-unguarded` (in the API: `allowUnguarded`), or `public: {{ reason: … }}` at the route", .0.join(", ")
    )]
    Routes(Vec<String>),
    /// It declares nothing at all.
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
