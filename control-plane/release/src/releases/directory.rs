//! The directory that is followed: the revision that it last became, and whether that was taken back. What was taken back
//! is not applied again because something else in the directory changes.

use std::{collections::BTreeMap, sync::Arc};

use postern_base::digest::Digest;
use postern_model::{Bundle, File};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Admission, Ground, Proved, Releases, StillSaid};
use crate::{
    catalogue::{ResourceKey, digests},
    rollout::State,
    store::{Store, StoreError, split},
};

/// The most resources that are named of those that were taken back.
const MOST_NAMED: usize = 20;
/// The note with what is kept of the directory.
const DIRECTORY: &str = "directory";

/// What is known of the directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Following {
    /// The revision that it last became.
    revision: Option<u64>,
    /// The digest of its files, if this process read them.
    said: Option<Digest>,
    taken_back: Option<Arc<TakenBack>>,
}

/// How the directory's last revision was taken back.
#[derive(Debug)]
pub(super) struct TakenBack {
    because: Because,
    /// What the revision had changed: each resource, with its digest or without it if it was removed.
    changes: BTreeMap<ResourceKey, Option<Digest>>,
}

/// Why the directory's last revision was taken back, as it is stored. Digests of resources are not stored, since they
/// could be tested for credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Because {
    /// The revision that came back.
    to: u64,
    reason: String,
}

/// The note. Earlier versions kept the number alone.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Noted {
    Number(u64),
    #[serde(rename_all = "camelCase")]
    Whole {
        revision: u64,
        taken_back: Option<Because>,
    },
}

impl Noted {
    fn parts(self) -> (u64, Option<Because>) {
        match self {
            Self::Number(revision) => (revision, None),
            Self::Whole { revision, taken_back } => (revision, taken_back),
        }
    }
}

/// What the directory says that is not in force, because it was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldBack {
    /// The revision that the directory became.
    pub revision: u64,
    /// The revision that came back in its place.
    pub to: u64,
    /// Why.
    pub reason: String,
    /// The resources that the directory still has as that revision had them.
    pub resources: Vec<String>,
}

impl TakenBack {
    /// What a revision changed, compared with the one that came back.
    fn new(because: Because, back: &Bundle, taken: &Bundle) -> Self {
        let (back, taken) = (digests(back), digests(taken));
        let gone = back.keys().filter(|key| !taken.contains_key(*key)).map(|key| (key.clone(), None));
        let gone: Vec<_> = gone.collect();
        let changed = taken.into_iter().filter(|(key, digest)| back.get(key) != Some(digest));
        let changes = changed.map(|(key, digest)| (key, Some(digest))).chain(gone).collect();
        Self { because, changes }
    }

    /// Whether resources still have everything that was taken back.
    fn is_in(&self, bundle: &Bundle) -> bool {
        let now = digests(bundle);
        !self.changes.is_empty() && self.changes.iter().all(|(key, digest)| now.get(key) == digest.as_ref())
    }
}

impl Following {
    fn noted(&self) -> Option<Noted> {
        let taken_back = self.taken_back.as_ref().map(|taken| taken.because.clone());
        Some(Noted::Whole { revision: self.revision?, taken_back })
    }

    /// The directory's last revision, if this process follows it.
    pub(super) fn followed(&self) -> Option<u64> {
        self.revision.filter(|_| self.said.is_some())
    }

    /// The revisions that the store must keep for it.
    pub(super) fn pinned(&self) -> impl Iterator<Item = u64> {
        self.revision.into_iter().chain(self.taken_back.as_ref().map(|taken| taken.because.to))
    }

    /// What is held back, unless it is in force by now.
    pub(super) fn held_back(&self, in_force: Option<&Bundle>) -> Option<HeldBack> {
        let (revision, taken) = (self.revision?, self.taken_back.as_ref()?);
        if taken.changes.is_empty() || in_force.is_some_and(|bundle| taken.is_in(bundle)) {
            return None;
        }
        let Because { to, reason } = taken.because.clone();
        let mut resources: Vec<_> = taken.changes.keys().take(MOST_NAMED).map(ToString::to_string).collect();
        if taken.changes.len() > MOST_NAMED {
            resources.push(format!("one of {} more", taken.changes.len() - MOST_NAMED));
        }
        Some(HeldBack { revision, to, reason, resources })
    }
}

/// The last contents of the directory, to compare new contents with.
#[derive(Debug, Clone)]
pub struct Directory {
    revision: Option<u64>,
    said: Option<Digest>,
    store: Arc<dyn Store>,
}

impl Directory {
    /// Whether these files are the directory's last contents, even if an earlier process read them. They are then not
    /// applied, so that they do not overrule changes made by other ways since. `digest` is the [digest](digest_of) of
    /// `files`.
    pub fn says_again(&self, files: &[File], digest: &Digest) -> Result<bool, StoreError> {
        let Some(number) = self.revision else { return Ok(false) };
        if let Some(said) = &self.said {
            return Ok(said == digest);
        }
        Ok(self.store.documents(number)?.is_some_and(|documents| documents == split(files)))
    }
}

/// The digest of the names and bytes of files.
pub fn digest_of(files: &[File]) -> Digest {
    Digest::of_parts(files.iter().flat_map(|file| [file.name.as_bytes(), file.bytes.as_slice()]))
}

impl Releases {
    /// Takes up what an earlier process knew of the directory.
    pub(super) fn restore_directory(&mut self, admission: &dyn Admission) -> Result<(), StoreError> {
        let Some((revision, because)) = self.noted::<Noted>(DIRECTORY)?.map(Noted::parts) else { return Ok(()) };
        self.directory.revision = Some(revision);
        let Some(because) = because else {
            // A version that noted no reason may have rolled it back.
            self.note_taken_back();
            return Ok(());
        };
        match (self.written(because.to, admission)?, self.written(revision, admission)?) {
            (Some(back), Some(taken)) => {
                self.directory.taken_back = Some(Arc::new(TakenBack::new(because, &back, &taken)));
            }
            _ => tracing::warn!(revision, "what the directory said was taken back, and can no longer be read"),
        }
        Ok(())
    }

    /// The last contents of the directory, to compare new contents with.
    pub fn directory(&self) -> Directory {
        let Following { revision, said, .. } = &self.directory;
        Directory { revision: *revision, said: said.clone(), store: Arc::clone(&self.store) }
    }

    /// Records that a directory with files of this [digest](digest_of) became this revision.
    pub fn followed(&mut self, number: u64, said: Digest) -> Result<(), StoreError> {
        self.directory = Following { revision: Some(number), said: Some(said), taken_back: None };
        self.note_directory()
    }

    /// Records that the directory says what it said before, with files of this [digest](digest_of).
    pub fn heard(&mut self, said: Digest) {
        self.directory.said = Some(said);
    }

    /// Refuses a change of the directory that leaves what was taken back as it was.
    pub fn stays_taken_back(&self, proved: &Proved) -> Result<(), StillSaid> {
        let in_force = self.in_force().and_then(|number| self.bundle(number));
        let Some(held) = self.directory.held_back(in_force) else { return Ok(()) };
        if !self.directory.taken_back.as_ref().is_some_and(|taken| taken.is_in(&proved.bundle)) {
            return Ok(());
        }
        let HeldBack { revision, reason, resources, .. } = held;
        Err(StillSaid { revision, reason, resources: resources.join(" or ") })
    }

    /// Records that `author` went back to the revision `to` from what was in force before.
    pub fn went_back(&mut self, before: &Ground, to: u64, author: &str) {
        let Some((from, taken)) = &before.in_force else { return };
        let Some(now) = self.ground().in_force.filter(|_| self.directory.revision == Some(*from)) else { return };
        let because = Because { to, reason: format!("{author} went back to revision {to}") };
        self.directory.taken_back = Some(Arc::new(TakenBack::new(because, &now.1, taken)));
        self.log_directory();
    }

    /// Records that the rollout was taken back, if its revision is what the directory says.
    pub(super) fn note_taken_back(&mut self) {
        let Some(rollout) = self.rollout.as_ref().filter(|rollout| rollout.is_back()) else { return };
        let (candidate, to) = (rollout.candidate(), rollout.last_good());
        let (Some(taken), Some(to)) = (self.live.get(&candidate), to) else { return };
        let Some(back) = self.live.get(&to).filter(|_| self.directory.revision == Some(candidate)) else { return };
        let reason = match rollout.state() {
            State::RolledBack { node, reason } => format!("node `{node}`: {reason}"),
            _ => "it was aborted".to_owned(),
        };
        let because = Because { to, reason };
        self.directory.taken_back = Some(Arc::new(TakenBack::new(because, &back.bundle, &taken.bundle)));
        self.log_directory();
    }

    fn note_directory(&self) -> Result<(), StoreError> {
        let Some(noted) = self.directory.noted() else { return Ok(()) };
        // Serialization of plain data cannot fail.
        self.store.put_note(DIRECTORY, Some(&serde_json::to_vec(&noted).unwrap_or_default()))
    }

    fn log_directory(&self) {
        if let Err(error) = self.note_directory() {
            tracing::error!("it was not kept that the directory was taken back: {error}");
        }
    }
}
