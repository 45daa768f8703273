//! The generation of each resource: how many times its content has changed. It belongs to the resource and not to the
//! revision, so that a change of another resource leaves it as it is. Only numbers are kept, and no digest of a resource
//! that could hold a credential.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use postern_base::digest::Digest;
use postern_model::{Bundle, Declaration};
use serde::{Deserialize, Serialize};

use super::{Admission, Releases};
use crate::{catalogue::ResourceKey, store::StoreError};

/// The revisions that changed a resource, in order, with its generation since; `None` since one that deleted it.
type Changes = Vec<(u64, Option<u64>)>;

/// The generations of all resources in the revisions that are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Noted", into = "Noted")]
pub(super) struct Generations {
    /// The last revision that was counted.
    counted: u64,
    /// Shared parts, so that a copy for a reader is cheap.
    changes: BTreeMap<Arc<ResourceKey>, Arc<Changes>>,
}

/// The form in which they are stored.
#[derive(Clone, Serialize, Deserialize)]
struct Noted {
    counted: u64,
    resources: Vec<(ResourceKey, Changes)>,
}

impl From<Noted> for Generations {
    fn from(Noted { counted, resources }: Noted) -> Self {
        let shared = |(key, changes): (ResourceKey, Changes)| (Arc::new(key), Arc::new(changes));
        Self { counted, changes: resources.into_iter().map(shared).collect() }
    }
}

impl From<Generations> for Noted {
    fn from(Generations { counted, changes }: Generations) -> Self {
        let owned = |(key, changes)| (Arc::unwrap_or_clone(key), Arc::unwrap_or_clone(changes));
        Self { counted, resources: changes.into_iter().map(owned).collect() }
    }
}

impl Generations {
    /// The last revision that was counted; 0 if there is none.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Counts a revision: what it changed compared with the revision that it followed, given with its number. Without
    /// that, every resource that has no generation yet gets its first.
    pub(super) fn count(&mut self, revision: u64, before: Option<(u64, &Bundle)>, after: &Bundle) {
        let mut now: Vec<_> = after.iter().collect();
        let mut then: Vec<_> = before.iter().flat_map(|(_, before)| before.iter()).collect();
        // What the last counted revision had and still has needs no look.
        let is_next = before.is_some_and(|(number, _)| number == self.counted);
        if is_next {
            let same = then.iter().zip(&now).take_while(|(then, now)| is_same(then, now)).count();
            then.drain(..same);
            now.drain(..same);
            let same = then.iter().rev().zip(now.iter().rev()).take_while(|(then, now)| is_same(then, now)).count();
            then.truncate(then.len().saturating_sub(same));
            now.truncate(now.len().saturating_sub(same));
        }
        let known: HashMap<_, &Digest> = then.iter().map(|resource| (named(resource), resource.digest)).collect();
        let there: HashSet<_> = now.iter().map(named).collect();
        for resource in now.iter().copied() {
            let is_kept = known.get(&named(&resource)) == Some(&resource.digest);
            let changes = Arc::make_mut(self.changes.entry(ResourceKey::from(resource).into()).or_default());
            let present = changes.last().and_then(|(_, generation)| *generation);
            if present.is_none() || (before.is_some() && !is_kept) {
                let latest = changes.iter().rev().find_map(|(_, generation)| *generation).unwrap_or_default();
                changes.push((revision, Some(latest.saturating_add(1))));
            }
        }
        if is_next {
            for resource in then.into_iter().filter(|resource| !there.contains(&named(resource))) {
                if let Some(changes) = self.changes.get_mut(&ResourceKey::from(resource)) {
                    gone(changes, revision);
                }
            }
        } else {
            let is_there =
                |key: &ResourceKey| there.contains(&(key.kind.as_str(), key.mesh.as_str(), key.name.as_str()));
            self.changes.iter_mut().filter(|(key, _)| !is_there(key)).for_each(|(_, changes)| gone(changes, revision));
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
            if first > 0 {
                Arc::make_mut(changes).drain(..first);
            }
            changes.len() != 1 || changes.iter().any(|(_, generation)| generation.is_some())
        });
    }

    /// Forgets a resource.
    pub(super) fn forget(&mut self, key: &ResourceKey) {
        self.changes.remove(key);
    }
}

impl Releases {
    /// Counts the latest revision if an earlier process ended before it did, or counted none at all.
    pub(super) fn count_missing(&mut self, latest: u64, admission: &dyn Admission) -> Result<(), StoreError> {
        let counted = self.generations.counted();
        if counted < latest {
            let before = self.written(counted, admission)?;
            if let Some(after) = self.written(latest, admission)? {
                let before = before.as_ref().map(|before| (counted, before));
                Arc::make_mut(&mut self.generations).count(latest, before, &after);
                self.has_counted = true;
            }
        }
        Ok(())
    }

    /// Counts the changes of a revision, compared with the one before it or, if that cannot be served, with the last good
    /// one.
    pub(super) fn count(&mut self, number: u64, bundle: &Bundle) {
        let earlier = self.rollout.iter().flat_map(|rollout| [Some(rollout.candidate()), rollout.last_good()]);
        let before = earlier.flatten().find_map(|number| Some((number, &*self.live.get(&number)?.bundle)));
        Arc::make_mut(&mut self.generations).count(number, before, bundle);
        self.has_counted = true;
    }
}

/// Records that a revision does not have a resource.
fn gone(changes: &mut Arc<Changes>, revision: u64) {
    if changes.last().is_some_and(|(_, generation)| generation.is_some()) {
        Arc::make_mut(changes).push((revision, None));
    }
}

/// Whether both are the same resource with the same content.
fn is_same(then: &Declaration<'_>, now: &Declaration<'_>) -> bool {
    then.digest == now.digest && named(then) == named(now)
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
            let before = index.checked_sub(1).map(|before| (index as u64, &bundles[before]));
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
    fn count_what_a_revision_that_was_taken_back_had() {
        let (first, second) = (bundle(&[("a", "x"), ("b", "x")]), bundle(&[("b", "y"), ("c", "x")]));
        let mut all = Generations::default();
        all.count(1, None, &first);
        all.count(2, Some((1, &first)), &second);
        // The second was refused: the third is compared with the first.
        all.count(3, Some((1, &first)), &first);
        check(&all, "a", &[Some(1), None, Some(2)]);
        check(&all, "b", &[Some(1), Some(2), Some(2)]);
        check(&all, "c", &[None, Some(1), None]);
    }

    #[test]
    fn forget_what_no_kept_revision_needs() {
        let mut all = counted(&[&[("a", "x"), ("b", "x")], &[("a", "y")], &[("a", "z")], &[("a", "z")]]);
        all.prune(2);
        check(&all, "a", &[None, Some(2), Some(3), Some(3)]);
        assert!(!all.changes.contains_key(&key("b")), "deleted, and in no kept revision");
        all.prune(4);
        assert_eq!(*all.changes[&key("a")], [(3, Some(3))]);
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
