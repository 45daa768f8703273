//! What a change removes, and the words that it needs for that. More than a share of the resources at once is more likely
//! a wrong directory than a wish.

use std::collections::BTreeSet;

use postern_base::digest::Digest;
use postern_model::{Bundle, MaxRemoved};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{catalogue::ResourceKey, rollout::Tolerance};

/// The most resources that a message names.
const MOST_NAMED: usize = 20;

/// How many resources one change may remove without another word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removable(pub Tolerance);

impl Default for Removable {
    fn default() -> Self {
        Self(Tolerance::Share(25))
    }
}

impl From<&MaxRemoved> for Removable {
    fn from(written: &MaxRemoved) -> Self {
        match (written.resources, written.share) {
            (Some(resources), _) => Self(Tolerance::Nodes(resources)),
            // Admission guarantees a number or a percentage.
            (None, share) => Self(Tolerance::Share(share.unwrap_or(0))),
        }
    }
}

impl Removable {
    /// How many of `all` resources. By a share, it is at least one.
    fn of(self, all: usize) -> usize {
        match self.0 {
            Tolerance::Nodes(_) => self.0.of(all),
            Tolerance::Share(_) => self.0.of(all).max(1),
        }
    }
}

/// What whoever makes a change said about removals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    /// Resources may be removed.
    pub some: bool,
    /// They may be more than a change may usually remove.
    pub many: bool,
    /// The digest of the removals that were shown; others are refused.
    pub digest: Option<String>,
}

/// The resources that a change removes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Removals {
    /// The resources, by kind, mesh and name.
    pub resources: Vec<ResourceKey>,
    /// How many resources are in force.
    pub of: usize,
    /// How many of them one change may remove without another word.
    pub most: usize,
    /// The digest of these removals, to confirm exactly them; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl Removals {
    /// What `after` lacks of `before`.
    pub(super) fn between(before: Option<&Bundle>, after: &Bundle, removable: Removable) -> Self {
        let keys = |bundle: &Bundle| bundle.iter().map(ResourceKey::from).collect::<BTreeSet<_>>();
        let (before, after) = (before.map(keys).unwrap_or_default(), keys(after));
        let resources: Vec<_> = before.difference(&after).cloned().collect();
        let digest = (!resources.is_empty()).then(|| digest_of(&resources));
        Self { of: before.len(), most: removable.of(before.len()), resources, digest }
    }

    /// Whether they are more than one change may remove without another word.
    pub fn are_many(&self) -> bool {
        self.resources.len() > self.most
    }

    /// Checks that the word for them was said.
    pub(super) fn check(self, word: &Word) -> Result<(), Removes> {
        let is_other = word.digest.as_ref().is_some_and(|digest| self.digest.as_ref() != Some(digest));
        match (self.resources.len(), self.are_many()) {
            (0, _) if !is_other => Ok(()),
            _ if is_other => Err(Removes::Others(self)),
            (_, true) if !word.many => Err(Removes::Many(self)),
            _ if !word.some => Err(Removes::Some(self)),
            _ => Ok(()),
        }
    }
}

/// The digest of the names of resources.
pub(super) fn digest_of(resources: &[ResourceKey]) -> String {
    let parts = resources.iter().flat_map(|key| [key.kind.as_bytes(), key.mesh.as_bytes(), key.name.as_bytes()]);
    Digest::of_parts(parts).short().to_owned()
}

/// The names of resources, in a message.
pub(super) fn named(resources: &[ResourceKey]) -> String {
    let mut names: Vec<_> = resources.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    if let Some(more) = resources.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// A change that removes resources without the word for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Removes {
    /// No word was said.
    #[error(
        "this change would remove {}; nothing was changed. If that is meant, say `--yes` (in the API: `allowRemovals`); to add \
         and change only, use `postern apply`", named(&.0.resources)
    )]
    Some(Removals),
    /// The word for many was not said.
    #[error(
        "this change would remove {} of {} resources, more than {}: {}; nothing was changed. If that is meant, say \
         `--remove-many` (in the API: `removeMany`)", .0.resources.len(), .0.of, .0.most, named(&.0.resources)
    )]
    Many(Removals),
    /// The removals are not those that were shown.
    #[error("what this change would remove is not what was shown: now it is {}; nothing was changed", match named(&.0.resources) {
        names if names.is_empty() => "nothing".to_owned(),
        names => names,
    })]
    Others(Removals),
}

impl Removes {
    /// The removals.
    pub fn removals(&self) -> &Removals {
        match self {
            Self::Some(removals) | Self::Many(removals) | Self::Others(removals) => removals,
        }
    }
}
