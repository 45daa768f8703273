//! The filter builds that each revision is for, and their code as long as a kept revision needs it. A filter spreads with
//! a revision and goes back with it.

use std::collections::BTreeMap;

use postern_base::digest::Digest;
use postern_compile::snapshot::FilterCode;
use serde::{Deserialize, Serialize};

use super::{Extent, Ground, Pace, Proposal, Releases, whole_documents};
use crate::store::{Document, Parent, Store, StoreError, assemble, split};

/// The note that says which builds each revision is for.
const BUILDS: &str = "filter-builds";
/// The maximum number of builds whose code is kept. A revision whose builds are not kept is served in the current ones.
const MOST_BUILDS: usize = 8;
/// The author of revisions that bring another filter.
const AUTHOR: &str = "postern";

/// The digests of some builds, the one that is served first.
pub(super) type Digests = Vec<String>;

/// Notes to be written: a name, and the value or none to delete it.
type Notes = Vec<(String, Option<Vec<u8>>)>;

/// What is known of builds, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Builds {
    of: BTreeMap<u64, Digests>,
    /// The builds whose code is kept.
    kept: Digests,
    /// The builds that were last taken back. They come again only with a revision that had them.
    taken_back: Option<Digests>,
}

impl Builds {
    /// The builds that a revision is for, if that is known.
    pub(super) fn of(&self, revision: u64) -> Option<&Digests> {
        self.of.get(&revision)
    }

    /// The builds that were last taken back.
    pub(super) fn taken_back(&self) -> Option<&Digests> {
        self.taken_back.as_ref()
    }

    /// Records what a revision is for. Returns the notes to be written before the revision is stored.
    fn record(&mut self, revision: u64, code: &FilterCode) -> Notes {
        let mut notes = Notes::new();
        for (digest, bytes) in code.builds() {
            if !self.kept.iter().any(|kept| kept == digest.as_str()) {
                notes.push((note_of(digest.as_str()), Some(bytes.to_vec())));
                self.kept.push(digest.to_string());
            }
        }
        let digests = digests(code);
        if self.taken_back.as_ref() == Some(&digests) {
            self.taken_back = None;
        }
        self.of.insert(revision, digests);
        notes.extend(self.drop_unused());
        notes.push(self.note());
        notes
    }

    /// Forgets revisions that are no longer kept. Returns the notes to be written, if anything changes.
    pub(super) fn forget(&mut self, gone: &[u64]) -> Notes {
        let before = self.of.len();
        self.of.retain(|revision, _| !gone.contains(revision));
        if self.of.len() == before {
            return Notes::new();
        }
        let mut notes: Notes = self.drop_unused().collect();
        notes.push(self.note());
        notes
    }

    /// Drops the code of builds that no revision needs, and of those that only the oldest need if there are too many.
    fn drop_unused(&mut self) -> impl Iterator<Item = (String, Option<Vec<u8>>)> + use<> {
        let mut needed: Vec<&String> = Vec::new();
        for digest in self.of.values().rev().flatten() {
            if needed.len() < MOST_BUILDS && !needed.contains(&digest) {
                needed.push(digest);
            }
        }
        let (kept, dropped) = self.kept.drain(..).partition(|digest| needed.contains(&digest));
        self.kept = kept;
        let dropped: Digests = dropped;
        dropped.into_iter().map(|digest| (note_of(&digest), None))
    }

    fn note(&self) -> (String, Option<Vec<u8>>) {
        // Serialization of plain data cannot fail.
        (BUILDS.to_owned(), Some(serde_json::to_vec(self).unwrap_or_default()))
    }
}

/// The name of the note with the code of a build.
fn note_of(digest: &str) -> String {
    format!("filter {digest}")
}

/// The digests of the builds, as they are stored.
pub(super) fn digests(code: &FilterCode) -> Digests {
    code.digests().iter().map(ToString::to_string).collect()
}

/// The code of kept builds, with gates of the kind of `current`. `None` if these are the current builds, or if one of
/// them is not kept or cannot be run, which is logged: then the current ones take their place.
pub fn kept_code(builds: &[String], store: &dyn Store, current: &FilterCode) -> Option<FilterCode> {
    if digests(current) == builds {
        return None;
    }
    let code = builds.iter().map(|digest| kept_build(digest, store)).collect::<Result<Vec<_>, _>>();
    let code = code.and_then(|code| current.of_builds(code).map_err(|error| error.to_string()));
    code.unwrap_or_else(|error| {
        tracing::warn!("an earlier filter cannot be served, and the current one takes its place: {error}");
        None
    })
}

/// The code of a build that a kept revision is for, or why there is none.
pub fn kept_build(digest: &str, store: &dyn Store) -> Result<Vec<u8>, String> {
    let bytes = store.note(&note_of(digest)).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or_else(|| format!("filter {digest} is no longer kept"))?;
    if Digest::of(&bytes).as_str() == digest { Ok(bytes) } else { Err(format!("filter {digest} was damaged")) }
}

/// Which builds a change is for.
#[derive(Debug, Clone)]
pub struct ChangeBuilds {
    /// Those of an ordinary change; `None` for the current ones.
    usual: Option<Digests>,
    /// Those of the revision that it goes back to, with all of its documents.
    back: Option<(u64, Digests)>,
}

impl ChangeBuilds {
    /// The builds for a proposal. Reads the store, and must not run on the owner's thread.
    pub fn of(self, proposal: &Proposal, store: &dyn Store) -> Option<Digests> {
        let Some((number, builds)) = self.back else { return self.usual };
        let is_whole = |documents: Vec<Document>| documents == split(&proposal.files);
        let whole = store.documents(number).ok().flatten().is_some_and(is_whole);
        if whole { Some(builds) } else { self.usual }
    }
}

impl Releases {
    /// Takes up what an earlier process knew of builds.
    pub(super) fn restore_builds(&mut self) -> Result<(), StoreError> {
        self.builds = self.noted(BUILDS)?.unwrap_or_default();
        Ok(())
    }

    /// Records the builds that live revisions are served in, where that is not known or has changed: their own were not
    /// kept.
    pub(super) fn record_live_builds(&mut self) -> Result<(), StoreError> {
        let served =
            self.live.iter().filter_map(|(number, release)| Some((*number, release.publication.code()?.clone())));
        for (number, code) in served.collect::<Vec<_>>() {
            if self.builds.of(number) != Some(&digests(&code)) {
                self.record_builds(number, Some(&code))?;
            }
        }
        Ok(())
    }

    /// Records the builds of a revision. It is called before the revision is stored: if that fails, the next revision of
    /// this number overwrites it.
    pub(super) fn record_builds(&mut self, number: u64, code: Option<&FilterCode>) -> Result<(), StoreError> {
        let Some(code) = code else { return Ok(()) };
        let mut builds = self.builds.clone();
        let notes = builds.record(number, code);
        let notes: Vec<_> = notes.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        self.store.put_notes(&notes)?;
        self.builds = builds;
        Ok(())
    }

    /// Records that the rollout was taken back, if its revision brought another filter.
    pub(super) fn note_builds_taken_back(&mut self) {
        let Some(rollout) = self.rollout.as_ref().filter(|rollout| rollout.is_back()) else { return };
        let back = rollout.last_good().and_then(|number| self.builds.of(number));
        let taken = self.builds.of(rollout.candidate()).filter(|taken| back.is_some_and(|back| back != *taken));
        self.take_back(taken.cloned());
    }

    /// Records that somebody went back from what was in force before, if that had another filter. A way back to the
    /// current builds takes nothing back.
    pub fn builds_went_back(&mut self, before: &Ground, current: &FilterCode) {
        let now = self.rollout.as_ref().and_then(|rollout| self.builds.of(rollout.candidate()));
        let before = before.in_force.as_ref().and_then(|(number, _)| self.builds.of(*number));
        let taken = before.filter(|before| now.is_some_and(|now| now != *before && *now != digests(current)));
        self.take_back(taken.cloned());
    }

    fn take_back(&mut self, taken: Option<Digests>) {
        let Some(taken) = taken.filter(|taken| self.builds.taken_back.as_ref() != Some(taken)) else { return };
        tracing::warn!(filter = taken.join(" "), "this filter was taken back, and changes are for the former one");
        self.builds.taken_back = Some(taken);
        let (name, value) = self.builds.note();
        if let Err(error) = self.store.put_note(&name, value.as_deref()) {
            tracing::error!("it was not kept that a filter was taken back: {error}");
        }
    }

    /// Which builds a change is for: those of the revision that it goes back to; the current ones, unless they were taken
    /// back; and then those of what is in force.
    pub fn builds_for_change(&self, back_to: Option<u64>, current: &FilterCode) -> ChangeBuilds {
        let in_force = || self.builds.of(self.in_force()?);
        let usual = self.builds.taken_back().filter(|taken| **taken == digests(current)).and_then(|_| in_force());
        let back = back_to.and_then(|number| Some((number, self.builds.of(number)?.clone())));
        ChangeBuilds { usual: usual.cloned(), back }
    }

    /// A proposal of what is in force for the current builds, if these are others and were not taken back.
    pub fn filter_news(&self, current: &FilterCode) -> Option<Proposal> {
        let number = self.in_force()?;
        let (now, current) = (self.builds.of(number)?, digests(current));
        if *now == current || self.builds.taken_back() == Some(&current) {
            return None;
        }
        let message = format!("filter {} in place of {}", shown(&current), shown(now));
        match whole_documents(&*self.store, number) {
            Ok(documents) => Some(Proposal {
                files: assemble(&documents),
                author: AUTHOR.to_owned(),
                message,
                parent: Parent::Latest,
                again: false,
                allow_unguarded: false,
                extent: Extent::Whole,
                pace: Pace::Settings,
            }),
            Err(error) => {
                tracing::error!("{message}: it does not spread: {error}");
                None
            }
        }
    }
}

/// The first digits of each digest.
fn shown(builds: &[String]) -> String {
    let short: Vec<_> = builds.iter().map(|digest| digest.get(..12).unwrap_or(digest)).collect();
    short.join(" and ")
}
