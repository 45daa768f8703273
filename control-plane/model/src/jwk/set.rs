//! Key sets as issuers publish them. Keys that cannot be used are skipped and reported, since a set may hold keys for
//! other purposes (RFC 7517, section 5).

use std::collections::BTreeMap;

use postern_base::diagnostic::quote;
use serde::Serialize;
use serde_json::Value as Json;

use super::{Algorithm, Key, read_key};

/// The largest number of keys that are used of a set.
pub const MOST_KEYS: usize = 64;

/// The usable keys of a published set: at least one, and no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeySet {
    keys: Vec<Key>,
}

/// A skipped key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its index in the set.
    pub index: usize,
    /// Why it is skipped.
    pub message: String,
}

/// Why a published set cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// It is not JSON.
    #[error("the key set is not JSON: line {line}, column {column}")]
    Json {
        /// The line of the error, from 1.
        line: usize,
        /// The column of the error, from 1.
        column: usize,
    },
    /// It is JSON without a list `keys`.
    #[error("the key set has no list `keys`")]
    NoKeys,
    /// None of its keys can be used.
    #[error("the key set has no usable key{}", .0.iter().map(|skipped| format!("; {skipped}")).collect::<String>())]
    Unusable(Vec<Skipped>),
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keys[{}]: {}", self.index, self.message)
    }
}

impl KeySet {
    /// Reads a published set. Returns the usable keys and the skipped ones, or an error if no key is usable.
    pub fn read(bytes: &[u8]) -> Result<(Self, Vec<Skipped>), SetError> {
        let json: Json = serde_json::from_slice(bytes)
            .map_err(|error| SetError::Json { line: error.line(), column: error.column() })?;
        let Some(Json::Array(items)) = json.get("keys") else { return Err(SetError::NoKeys) };
        let (mut keys, mut skipped) = (Vec::new(), Vec::new());
        for (index, item) in items.iter().enumerate() {
            match published(item, &keys) {
                Ok(key) => keys.push(key),
                Err(message) => skipped.push(Skipped { index, message }),
            }
        }
        if keys.is_empty() { Err(SetError::Unusable(skipped)) } else { Ok((Self { keys }, skipped)) }
    }

    /// The usable keys, in the order of the set.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }
}

/// Reads one key of a set. An error if it cannot be used, or not together with `others`.
fn published(item: &Json, others: &[Key]) -> Result<Key, String> {
    if others.len() >= MOST_KEYS {
        return Err(format!("only the first {MOST_KEYS} usable keys are used"));
    }
    let key = read_key(item).map_err(|faults| {
        let shown = faults.iter().map(|fault| match fault.member {
            Some(member) => format!("{member}: {}", fault.message),
            None => fault.message.clone(),
        });
        shown.collect::<Vec<_>>().join(", ")
    })?;
    if key.is_secret() {
        return Err("a shared secret that is published is none".to_owned());
    }
    match others.iter().any(|other| claim_same(other, &key)) {
        true => Err(format!("another key has the same `kid` {}", quote(key.id.as_deref().unwrap_or_default()))),
        false => Ok(key),
    }
}

fn claim_same(one: &Key, other: &Key) -> bool {
    one.id.is_some() && one.id == other.id && one.algorithms.iter().any(|claim| other.algorithms.contains(claim))
}

/// Keys that share a `kid` and an algorithm with an earlier key: pairs of the key's index and that of the earliest.
pub fn repeated(keys: &[Option<Key>]) -> Vec<(usize, usize)> {
    let mut firsts: BTreeMap<(&str, Algorithm), usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let Some((key, id)) = key.as_ref().and_then(|key| Some((key, key.id.as_deref()?))) else { continue };
        let claims = key.algorithms.iter().map(|algorithm| *firsts.entry((id, *algorithm)).or_insert(index));
        found.extend(claims.min().filter(|first| *first != index).map(|first| (index, first)));
    }
    found
}

/// Whether there are both secrets and public keys. Such a set could let one be taken for the other.
pub fn mixes_secrets<'k>(keys: impl IntoIterator<Item = &'k Key>) -> bool {
    let (mut secret, mut public) = (false, false);
    for key in keys {
        secret |= key.is_secret();
        public |= !key.is_secret();
    }
    secret && public
}
