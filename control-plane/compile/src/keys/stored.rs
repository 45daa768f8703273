//! Key sets as they outlive a process: the text of the last good answer, not the keys that were read from it, so that a
//! newer program reads them by its own rules.

use postern_model::KeyUri;
use serde::{Deserialize, Serialize};

/// The last good answer of one publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredKeySet {
    /// Where it is published.
    pub uri: KeyUri,
    /// The answer.
    pub text: String,
    /// Its entity tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// When it was last fetched, in seconds since 1970.
    pub fetched_at: u64,
}

impl StoredKeySet {
    /// Whether it is the same answer, whenever it was fetched.
    pub fn is_the_answer_of(&self, other: &Self) -> bool {
        (&self.uri, &self.text, &self.tag) == (&other.uri, &other.text, &other.tag)
    }
}
