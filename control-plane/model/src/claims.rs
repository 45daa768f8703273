//! What only one resource may have: names, addresses, keys.

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    hash::Hash,
};

use postern_base::diagnostic::Diagnostic;

/// An error for each claim to a key except the first, by file and line. `message` is given the first claim. Positions
/// are looked up only if there is a collision.
pub(super) fn collisions<K: Ord + Hash>(
    claims: Vec<(K, impl Fn() -> Diagnostic)>,
    message: impl Fn(&K, &Diagnostic) -> String,
) -> Vec<Diagnostic> {
    let mut seen = HashSet::with_capacity(claims.len());
    if claims.iter().all(|(key, _)| seen.insert(key)) {
        return Vec::new();
    }
    drop(seen);
    let mut claims: Vec<_> = claims.into_iter().map(|(key, claim)| (key, claim())).collect();
    claims.sort_by(|(_, a), (_, b)| a.cmp(b));
    let mut firsts = BTreeMap::new();
    let mut found = Vec::new();
    for (key, claim) in claims {
        match firsts.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(claim)),
            Entry::Occupied(entry) => {
                found.push(Diagnostic { message: message(entry.key(), entry.get()), ..claim });
            }
        }
    }
    found
}

/// The resource of a claim, and where it is.
pub(super) fn owner(first: &Diagnostic) -> String {
    format!("{} ({})", first.resource.as_deref().unwrap_or_default(), place(first))
}

/// The file and the line of a claim.
pub(super) fn place(first: &Diagnostic) -> String {
    format!("{}:{}", first.file, first.line)
}
