//! What is proposed, what proves it, and what comes of it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    digest::Digest,
    model::{Bundle, Diagnostics, File},
    pipeline::CompileError,
    publication::Publication,
    rollout::{NotNow, State},
    store::{Parent, Revision, StoreError},
};

/// What proves resources: the way from a bundle to what nodes get, through the gate.
pub trait Admission {
    /// What nodes would get, or why they must not.
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError>;

    /// What the content of a bundle is called.
    fn digest(&self, bundle: &Bundle) -> Digest;
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
    /// There is nothing to go back to under this number.
    #[error("revision {0} is not kept: `postern revisions` lists those that are")]
    NoRevision(u64),
    /// A command that does not fit.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// There is nothing to command.
    #[error("no rollout has been started")]
    NoRollout,
}

impl From<Diagnostics> for ApplyError {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Compile(diagnostics.into())
    }
}

/// Where the rollout is, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutReport {
    /// The revision that spreads, or spread last.
    pub candidate: u64,
    /// The last good revision, which new nodes get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<u64>,
    /// The step under way, from 1.
    pub step: usize,
    /// How many there are.
    pub steps: usize,
    /// What became of it.
    #[serde(flatten)]
    pub state: State,
}
