//! The generation of each resource: how many times its content has changed. It belongs to the resource and not to the
//! revision, so that a change of another resource leaves it as it is. Only numbers are kept, and no digest of a resource
//! that could hold a credential.

use std::collections::{BTreeMap, HashMap, HashSet};

use postern_base::digest::Digest;
use postern_model::{Bundle, Declaration};
use serde::{Deserialize, Serialize};

use crate::catalogue::ResourceKey;

/// The revisions that changed a resource, in order, with its generation since; `None` since one that deleted it.
type Changes = Vec<(u64, Option<u64>)>;

/// The generations of all resources in the revisions that are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Noted", into = "Noted")]
pub(super) struct Generations {
    /// The last revision that was counted.
    counted: u64,
    changes: BTreeMap<ResourceKey, Changes>,
}

/// The form in which they are stored.
#[derive(Clone, Serialize, Deserialize)]
struct Noted {
    counted: u64,
    resources: Vec<(ResourceKey, Changes)>,
}

impl From<Noted> for Generations {
    fn from(Noted { counted, resources }: Noted) -> Self {
        Self { counted, changes: resources.into_iter().collect() }
    }
}

impl From<Generations> for Noted {
    fn from(Generations { counted, changes }: Generations) -> Self {
        Self { counted, resources: changes.into_iter().collect() }
    }
}

impl Generations {
    /// The last revision that was counted; 0 if there is none.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Counts a revision: what it changed compared with `before`, the revision that it followed. Without that, every
    /// resource that has no generation yet gets its first.
    pub(super) fn count(&mut self, revision: u64, before: Option<&Bundle>, after: &Bundle) {
        let known: Option<HashMap<_, &Digest>> =
            before.map(|before| before.iter().map(|resource| (named(&resource), resource.digest)).collect());
        let mut there = HashSet::new();
        for resource in after.iter() {
            let (kind, mesh, name) = named(&resource);
            there.insert((kind, mesh, name));
            let is_same = known.as_ref().is_some_and(|known| known.get(&(kind, mesh, name)) == Some(&resource.digest));
            let key = ResourceKey::from(resource);
            let changes = self.changes.entry(key).or_default();
            let present = changes.last().and_then(|(_, generation)| *generation);
            if present.is_none() || (known.is_some() && !is_same) {
                let latest = changes.iter().rev().find_map(|(_, generation)| *generation).unwrap_or_default();
                changes.push((revision, Some(latest.saturating_add(1))));
            }
        }
        for (key, changes) in &mut self.changes {
            let is_there = there.contains(&(key.kind.as_str(), key.mesh.as_str(), key.name.as_str()));
            if !is_there && changes.last().is_some_and(|(_, generation)| generation.is_some()) {
                changes.push((revision, None));
            }
        }
        self.counted = revision;
    }

    /// The generation of a resource in a revision; `None` if it is not known, or the revision does not have it.
    pub(super) fn of(&self, key: &ResourceKey, revision: u64) -> Option<u64> {
        let changes = self.changes.get(key)?;
        changes.iter().rev().find(|(since, _)| *since <= revision)?.1
    }

    /// Forgets what no revision from `oldest` on needs.
    pub(super) fn prune(&mut self, oldest: u64) {
        self.changes.retain(|_, changes| {
            let first = changes.iter().rposition(|(since, _)| *since <= oldest).unwrap_or_default();
            changes.drain(..first);
            changes.len() != 1 || changes.iter().any(|(_, generation)| generation.is_some())
        });
    }

    /// Forgets a resource.
    pub(super) fn forget(&mut self, key: &ResourceKey) {
        self.changes.remove(key);
    }
}

fn named<'a>(resource: &Declaration<'a>) -> (&'a str, &'a str, &'a str) {
    (resource.kind, resource.mesh, resource.name)
}

#[cfg(test)]
mod tests {
    use postern_model::File;

    use super::*;

    /// Consumers by name, each with a group that stands for its content.
    fn bundle(consumers: &[(&str, &str)]) -> Bundle {
        let document = |(name, group): &(&str, &str)| {
            format!(
                "apiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: {name} }}\nspec: {{ groups: [{group}] }}\n"
            )
        };
        let text = consumers.iter().map(document).collect::<Vec<_>>().join("---\n");
        postern_model::read(&[File { name: "c.yaml".to_owned(), bytes: text.into_bytes() }]).unwrap()
    }

    fn key(name: &str) -> ResourceKey {
        ResourceKey { kind: "Consumer".to_owned(), mesh: "default".to_owned(), name: name.to_owned() }
    }

    fn counted(revisions: &[&[(&str, &str)]]) -> Generations {
        let mut generations = Generations::default();
        let bundles: Vec<_> = revisions.iter().map(|revision| bundle(revision)).collect();
        for (index, after) in bundles.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &bundles[before]);
            generations.count(index as u64 + 1, before, after);
        }
        generations
    }

    #[track_caller]
    fn check(generations: &Generations, name: &str, expect: &[Option<u64>]) {
        let found: Vec<_> = (1..=expect.len()).map(|revision| generations.of(&key(name), revision as u64)).collect();
        assert_eq!(found, expect, "of {name}");
    }

    #[test]
    fn count_the_changes_of_each_resource_alone() {
        let all =
            counted(&[&[("a", "x"), ("b", "x")], &[("a", "y"), ("b", "x")], &[("a", "x"), ("b", "x"), ("c", "x")]]);
        check(&all, "a", &[Some(1), Some(2), Some(3)]);
        check(&all, "b", &[Some(1), Some(1), Some(1)]);
        check(&all, "c", &[None, None, Some(1)]);
        check(&all, "d", &[None, None, None]);
    }

    #[test]
    fn go_on_after_a_deletion() {
        let all = counted(&[&[("a", "x"), ("b", "x")], &[("b", "x")], &[("a", "x"), ("b", "x")]]);
        check(&all, "a", &[Some(1), None, Some(2)]);
    }

    #[test]
    fn forget_what_no_kept_revision_needs() {
        let mut all = counted(&[&[("a", "x"), ("b", "x")], &[("a", "y")], &[("a", "z")], &[("a", "z")]]);
        all.prune(2);
        check(&all, "a", &[None, Some(2), Some(3), Some(3)]);
        assert!(!all.changes.contains_key(&key("b")), "deleted, and in no kept revision");
        all.prune(4);
        assert_eq!(all.changes[&key("a")], [(3, Some(3))]);
    }

    #[test]
    fn begin_with_the_first_revision_that_is_known_and_are_stored() {
        let mut all = Generations::default();
        all.count(7, None, &bundle(&[("a", "x")]));
        assert_eq!((all.of(&key("a"), 7), all.of(&key("a"), 6), all.counted()), (Some(1), None, 7));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Generations>(&text).unwrap(), all);
    }
}
