//! A change of the followed directory that waits for a word: it would remove many resources, or the last guard of a route,
//! and nobody can be asked. What is in force goes on until somebody confirms exactly what was shown, or the directory
//! changes.

use std::time::SystemTime;

use postern_base::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Opens, Proved, Releases, Removals};
use crate::store::{StoreError, milliseconds};

/// The note with the digest of what is held, and since when.
const HELD: &str = "held";

/// A held change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldChange {
    /// The digest of the change and of what it would remove: the word that confirms it.
    pub digest: String,
    /// Since when it is held, in milliseconds since 1970.
    pub since: u64,
    /// The revision in force that it was compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Whether it removes more resources than a change may without a word.
    pub too_many: bool,
    /// What it would remove.
    pub removals: Removals,
    /// The routes that would lose their last authentication step.
    pub routes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Noted {
    digest: String,
    since: u64,
}

impl Releases {
    /// Whether a revision with this digest is in force.
    fn is_in_force(&self, digest: &str) -> bool {
        let in_force = self.in_force().and_then(|number| self.live.get(&number));
        in_force.is_some_and(|release| &*release.digest == digest)
    }

    /// Whether a change of the directory, with files of the digest `said`, must wait for a word, and why.
    pub fn holds(&self, proved: &mut Proved, said: &Digest, now: SystemTime) -> Option<HeldChange> {
        if self.is_in_force(&proved.digest) {
            return None;
        }
        let routes = match proved.opens(&self.ground()) {
            Some(Opens::Routes(routes)) => routes.clone(),
            // It is refused, since an empty directory is more likely a mistake.
            Some(Opens::Everything(_)) => return None,
            None => Vec::new(),
        };
        let removals = self.removals(&proved.bundle);
        let too_many = removals.are_many();
        if !too_many && routes.is_empty() {
            return None;
        }
        let mut parts = vec![said.as_str().as_bytes(), removals.digest.as_deref().unwrap_or_default().as_bytes()];
        parts.extend(routes.iter().map(String::as_bytes));
        let digest = Digest::of_parts(parts).short().to_owned();
        let since = self.noted::<Noted>(HELD).ok().flatten().filter(|noted| noted.digest == digest);
        let since = since.map_or_else(|| milliseconds(now), |noted| noted.since);
        Some(HeldChange { digest, since, revision: self.in_force(), too_many, removals, routes })
    }

    /// What a change would remove from what is in force.
    pub fn removals(&self, after: &postern_model::Bundle) -> Removals {
        let before = self.in_force().and_then(|number| self.bundle(number));
        Removals::between(before, after, self.settled_terms().removable)
    }

    /// Keeps over a restart since when a change is held.
    pub fn note_held(&self, held: Option<&HeldChange>) -> Result<(), StoreError> {
        let noted = held.map(|HeldChange { digest, since, .. }| Noted { digest: digest.clone(), since: *since });
        // Serialization of plain data cannot fail.
        let noted = noted.map(|noted| serde_json::to_vec(&noted).unwrap_or_default());
        self.store.put_note(HELD, noted.as_deref())
    }
}
