//! Proposals, their admission, and their results.

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::pipeline::CompileError;
use postern_model::{Bundle, Diagnostics, File};

use super::{
    removals::{Removes, Word},
    trust::{Trust, trust_of},
};
use crate::{
    catalogue::ResourceKey,
    publication::Publication,
    rollout::{NotNow, Step},
    store::{Document, Parent, Revision, Store, StoreError, assemble},
};

/// Admission: the way from a bundle to what nodes get, through the gate.
pub trait Admission: Sync {
    /// Compiles what nodes would get, or returns why it must not be served.
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError>;

    /// The same admission for other filter builds, whose code the store keeps. `None` if they are those of this one, or
    /// are not kept.
    fn for_builds(&self, _builds: &[String], _store: &dyn Store) -> Option<Box<dyn Admission>> {
        None
    }

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
#[derive(Debug, Clone, Default)]
pub struct Proposal {
    /// The resources.
    pub files: Vec<File>,
    /// Whether these are all resources, or a change to some.
    pub extent: Extent,
    /// Which nodes get it first.
    pub pace: Pace,
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

/// What the files of a proposal are, beside what is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Extent {
    /// All resources, as they stand.
    #[default]
    Whole,
    /// All resources. Hidden values are kept, and what is not there is removed only with a word.
    Exactly(Word),
    /// Resources to be added, or to replace those of the same name. Hidden values are kept.
    Additions,
}

/// How a proposal spreads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Pace {
    /// By the settings that are in force before it.
    #[default]
    Settings,
    /// To all nodes at once.
    AtOnce,
    /// By these steps.
    Steps(Vec<Step>),
}

impl Proposal {
    /// A proposal with the content of an earlier revision. Fails if that revision is not kept, or not whole.
    pub fn to_go_back(store: &dyn Store, number: u64, author: String, parent: Parent) -> Result<Self, ApplyError> {
        let revision = store.revision(number)?.ok_or(ApplyError::NoRevision(number))?;
        if !revision.purged.is_empty() {
            return Err(ApplyError::NotWhole { number, purged: revision.purged.join(", ") });
        }
        let documents = whole_documents(store, number)?;
        let message = format!("rollback to revision {number}");
        Ok(Self {
            files: assemble(&documents),
            author,
            message,
            parent,
            again: true,
            pace: Pace::AtOnce,
            ..Self::default()
        })
    }
}

/// The documents of a revision, to make a change of. Fails if it is not kept, or if files could not be read when it was
/// made: without what they guard, what was refused would be open.
pub fn whole_documents(store: &dyn Store, number: u64) -> Result<Vec<Document>, ApplyError> {
    let revision = store.revision(number)?.ok_or(ApplyError::NoRevision(number))?;
    if trust_of(&revision.digest) == Trust::Incomplete {
        return Err(ApplyError::Incomplete(number));
    }
    store.documents(number)?.ok_or(ApplyError::NoRevision(number))
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
    /// It would remove resources, and this was not allowed explicitly.
    #[error(transparent)]
    Removes(#[from] Removes),
    /// A held change cannot be confirmed.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),
    /// There is no resource in what is to be added.
    #[error("there is no resource in what was sent: a certificate or key comes with the resource that names it")]
    NoResource,
    /// The followed directory still has what was taken back.
    #[error(transparent)]
    TakenBack(#[from] StillSaid),
    /// The revision to roll back to does not exist.
    #[error("revision {0} is not kept: `postern revisions` lists those that are")]
    NoRevision(u64),
    /// A resource to roll back alone is not in the revision.
    #[error("revision {number} has no {resource}: `postern get --revision {number}` lists what it has")]
    NotInRevision {
        /// The revision.
        number: u64,
        /// The resource.
        resource: ResourceKey,
    },
    /// Resources were purged from the revision to roll back to.
    #[error(
        "revision {number} is no longer whole, since {purged} was purged from it: go back with single resources by `--only` (in \
         the API: `only`)"
    )]
    NotWhole {
        /// The revision.
        number: u64,
        /// The purged resources.
        purged: String,
    },
    /// Files were missing when a revision was made, so that nothing can be made of it.
    #[error(
        "revision {0} is not complete: files of its directory could not be read, and every request was refused; mend the \
         directory, or apply a whole one"
    )]
    Incomplete(u64),
    /// A resource cannot be purged.
    #[error(transparent)]
    NotPurged(#[from] NotPurged),
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

/// Why a resource cannot be purged. Nothing is changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPurged {
    /// It is in force, or nodes may go back to it.
    #[error(
        "{resource} cannot be purged: revision {revision}, {role}, has it; delete it first, and let the rollout end"
    )]
    Needed {
        /// The resource.
        resource: ResourceKey,
        /// The revision that has it.
        revision: u64,
        /// What the revision is.
        role: &'static str,
    },
    /// The followed directory has it.
    #[error("{0} cannot be purged: the followed directory has it; remove it there first")]
    Followed(ResourceKey),
    /// No revision has it.
    #[error("no revision that is kept has {0}")]
    Unknown(ResourceKey),
}

/// Why nothing is confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHeld {
    /// No change is held.
    #[error("no change of the directory is held: there is nothing to confirm")]
    Nothing,
    /// Another change is held than the one that was shown.
    #[error(
        "what is held is not what was shown: its digest is {0} now; look at it with `postern status`, and confirm that"
    )]
    Other(String),
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

/// A change of the followed directory that leaves what was taken back as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the directory still says what was taken back with revision {revision} ({reason}), so that nothing of it is applied: change {resources}, \
     or put it in force once more with `postern apply`"
)]
pub struct StillSaid {
    pub(super) revision: u64,
    pub(super) reason: String,
    pub(super) resources: String,
}

impl From<Diagnostics> for ApplyError {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Compile(diagnostics.into())
    }
}
