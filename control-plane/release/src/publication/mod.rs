//! Publications: for every node, the snapshot of its group. Streams follow publications; only this module decides which
//! node is in which group.
//!
//! All nodes that the same resources select are one group. A group is compiled when a change is admitted, or when its
//! first node connects. A group that a change does not touch keeps its snapshot.

mod compiled;
mod policies;
mod policy_set;
mod published;

use std::{
    collections::{HashMap, HashSet},
    mem,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use postern_base::{digest::Digest, disposal::dispose, node::NodeIdentity};
use postern_compile::{
    attach::{Kinship, MOST_IMAGINED, Scope, imagined_nodes},
    keys::KeySets,
    lower::Strictness,
    pipeline::{CompileError, compile_refusal, compile_scope},
    revision::{group_revision, revision},
    snapshot::{FilterCode, Kept, Snapshot},
    support::{Support, unsupported},
};
use postern_model::{Bundle, Diagnostics};

use self::{
    compiled::{Compiled, MOST_GROUPS},
    policies::PolicySets,
    published::Turns,
};
pub use self::{policies::Audience, policy_set::PolicySet, published::Publications};
use crate::rollout::Rollout;

/// The label of the group of all nodes.
const EVERY_NODE: &str = "every node";

/// One revision, or two during a rollout, as served to nodes. Its content is immutable; streams share it.
#[derive(Debug)]
pub struct Publication {
    revision: Digest,
    content: Content,
    turns: Turns,
}

#[derive(Debug)]
enum Content {
    /// One snapshot for every node.
    #[cfg_attr(not(any(test, feature = "test-hooks")), expect(dead_code, reason = "only tests make one"))]
    Uniform(Arc<Snapshot>),
    /// One snapshot for each group.
    Grouped(Box<Groups>),
    /// Each node gets the revision that the rollout decides.
    Split(Box<Split>),
}

#[derive(Debug)]
struct Split {
    rollout: Rollout,
    last_good: Arc<Publication>,
    candidate: Arc<Publication>,
}

#[derive(Debug)]
struct Groups {
    bundle: Bundle,
    key_sets: KeySets,
    code: FilterCode,
    kinship: Kinship,
    /// Compiled groups, by the targets that select their nodes and by what the bootstraps of these allow.
    compiled: Mutex<Compiled>,
    /// Snapshots by their own revision, for reuse by the next publication.
    known: Mutex<HashMap<Digest, Arc<Snapshot>>>,
    /// Parts that several revisions share.
    kept: Arc<Kept>,
    /// The policies for clients of policy discovery.
    policies: PolicySets,
}

impl Publication {
    /// A publication with one snapshot for every node. For tests of how it is delivered.
    #[cfg(any(test, feature = "test-hooks"))]
    pub fn uniform(snapshot: Snapshot) -> Self {
        let (revision, content) = (snapshot.revision().clone(), Content::Uniform(Arc::new(snapshot)));
        Self { revision, content, turns: Turns::default() }
    }

    /// Compiles resources for all nodes, or refuses them whole. The groups of `nodes` are checked, and one for every
    /// target that could select nodes. Snapshots of `previous` that the change does not touch are reused.
    pub fn admit(
        bundle: Bundle,
        key_sets: KeySets,
        code: &FilterCode,
        nodes: &[NodeIdentity],
        previous: Option<&Self>,
    ) -> Result<Self, CompileError> {
        let groups = Groups::new(bundle, key_sets, code.clone(), previous);
        let revision = thread::scope(|threads| {
            let named = threads.spawn(|| revision(&groups.bundle, &groups.key_sets, code.set()));
            groups.check(nodes)?;
            Ok::<_, CompileError>(named.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        Ok(Self { revision, content: Content::Grouped(Box::new(groups)), turns: Turns::default() })
    }

    /// The candidate of a rollout for the nodes that the rollout names, and the last good revision for all others.
    pub fn split(rollout: Rollout, last_good: Arc<Self>, candidate: Arc<Self>) -> Self {
        let revision = if rollout.is_back() { last_good.revision() } else { candidate.revision() }.clone();
        let content = Content::Split(Box::new(Split { rollout, last_good, candidate }));
        Self { revision, content, turns: Turns::default() }
    }

    /// The revision that is in force, or is spreading.
    pub fn revision(&self) -> &Digest {
        &self.revision
    }

    /// The publication that a node is to run: one of two during a rollout.
    pub fn release_for(&self, node: &NodeIdentity) -> &Self {
        match &self.content {
            Content::Uniform(_) | Content::Grouped(_) => self,
            Content::Split(split) if split.rollout.revision_for(node) == split.rollout.candidate() => &split.candidate,
            Content::Split(split) => &split.last_good,
        }
    }

    /// Like [`Self::release_for`], as an owned reference.
    pub fn shared_release_for(self: &Arc<Self>, node: &NodeIdentity) -> Arc<Self> {
        match &self.content {
            Content::Uniform(_) | Content::Grouped(_) => Arc::clone(self),
            Content::Split(split) if split.rollout.revision_for(node) == split.rollout.candidate() => {
                Arc::clone(&split.candidate)
            }
            Content::Split(split) => Arc::clone(&split.last_good),
        }
    }

    /// The filter builds that it is for. `None` for one snapshot for every node, and for two revisions.
    pub fn code(&self) -> Option<&FilterCode> {
        match &self.content {
            Content::Grouped(groups) => Some(&groups.code),
            Content::Uniform(_) | Content::Split(_) => None,
        }
    }

    /// The number of compiled groups. It is bounded, although any client can invent nodes.
    pub fn groups(&self) -> usize {
        match &self.content {
            Content::Uniform(_) => 1,
            Content::Grouped(groups) => groups.count(),
            Content::Split(split) => split.last_good.groups().saturating_add(split.candidate.groups()),
        }
    }

    /// Whether a target other than the mesh selects this node.
    pub fn selects(&self, node: &NodeIdentity) -> bool {
        match &self.content {
            Content::Uniform(_) => false,
            Content::Grouped(groups) => !groups.kinship.signature(node).1.is_empty(),
            Content::Split(split) => split.last_good.selects(node) || split.candidate.selects(node),
        }
    }

    /// Whether every node is served the same by another publication. A rollout in its last step and a completed one do
    /// not differ for any node.
    pub fn serves_the_same_as(&self, other: &Self) -> bool {
        let (Content::Split(own), Content::Split(others)) = (&self.content, &other.content) else { return false };
        let everywhere = own.rollout.is_everywhere() && others.rollout.is_everywhere();
        everywhere && Arc::ptr_eq(&own.candidate, &others.candidate)
    }

    /// The snapshot of a node, or `None` if it is not compiled yet.
    pub fn compiled_for(&self, node: &NodeIdentity) -> Option<Arc<Snapshot>> {
        match &self.content {
            Content::Uniform(snapshot) => Some(Arc::clone(snapshot)),
            Content::Grouped(groups) => groups.compiled_for(node),
            Content::Split(_) => self.release_for(node).compiled_for(node),
        }
    }

    /// The snapshot of a node. Nodes of one group get the same `Arc`, so that derived values can be shared too. This
    /// may compile a group, and must not run on an async worker: see [`Self::prepare`].
    pub fn snapshot_for(&self, node: &NodeIdentity) -> Arc<Snapshot> {
        match &self.content {
            Content::Uniform(snapshot) => Arc::clone(snapshot),
            Content::Grouped(groups) => groups.snapshot_for(node),
            Content::Split(_) => self.release_for(node).snapshot_for(node),
        }
    }

    /// For each compiled group, what selects its nodes, and the label of its plan.
    pub(crate) fn plans(&self) -> Vec<(String, String)> {
        match &self.content {
            Content::Uniform(snapshot) => vec![(EVERY_NODE.to_owned(), snapshot.plan().label().to_owned())],
            Content::Grouped(groups) => groups.plans(),
            Content::Split(split) => split.last_good.plans().into_iter().chain(split.candidate.plans()).collect(),
        }
    }

    /// What selects the group of one node, and the label of its plan.
    pub(crate) fn plan_for(&self, node: &NodeIdentity) -> (String, String) {
        let release = self.release_for(node);
        let group = match &release.content {
            Content::Grouped(groups) => groups.kinship.describe(&groups.kinship.signature(node)),
            Content::Uniform(_) | Content::Split(_) => EVERY_NODE.to_owned(),
        };
        (group, release.snapshot_for(node).plan().label().to_owned())
    }

    /// The snapshots that are compiled for this filter, by the revisions of their groups.
    fn known(&self, filter: &Digest) -> HashMap<Digest, Arc<Snapshot>> {
        match &self.content {
            Content::Grouped(groups) if groups.code.set() == filter => lock(&groups.known).clone(),
            Content::Uniform(_) | Content::Grouped(_) => HashMap::new(),
            Content::Split(split) => {
                let mut known = split.last_good.known(filter);
                known.extend(split.candidate.known(filter));
                known
            }
        }
    }

    /// The parts of this publication that others may share.
    fn kept(&self) -> Option<Arc<Kept>> {
        match &self.content {
            Content::Uniform(_) => None,
            Content::Grouped(groups) => Some(Arc::clone(&groups.kept)),
            Content::Split(split) => split.candidate.kept(),
        }
    }
}

impl Groups {
    fn new(bundle: Bundle, key_sets: KeySets, code: FilterCode, previous: Option<&Publication>) -> Self {
        let known = previous.map(|previous| previous.known(code.set())).unwrap_or_default();
        let kept = previous.and_then(Publication::kept).unwrap_or_default();
        let kinship = Kinship::of([&bundle]);
        Self {
            bundle,
            key_sets,
            code,
            kinship,
            compiled: Mutex::default(),
            known: Mutex::new(known),
            kept,
            policies: PolicySets::default(),
        }
    }

    /// Compiles the groups that exist or could exist, and drops snapshots that are no longer used.
    fn check(&self, nodes: &[NodeIdentity]) -> Result<(), CompileError> {
        let (mut checked, mut real) = (HashSet::new(), HashSet::new());
        let (mut errors, mut used) = (Vec::new(), HashMap::new());
        let all = nodes.iter().cloned().map(|node| (node, true));
        for (node, is_real) in all.chain(imagined_nodes(&self.bundle).map(|node| (node, false))) {
            if unsupported(&node).is_some() {
                continue;
            }
            let group = (self.kinship.signature(&node), Support::of(&node));
            // Real nodes stand for imagined ones, whatever their bootstraps allow: plans do not depend on that.
            if is_real {
                real.insert(group.0.clone());
            } else if real.contains(&group.0) {
                continue;
            }
            if checked.len() >= MOST_IMAGINED || !checked.insert(group.clone()) {
                continue;
            }
            match self.compile(&node, Strictness::Strict) {
                Ok(snapshot) => {
                    used.insert(snapshot.revision().clone(), Arc::clone(&snapshot));
                    lock(&self.compiled).foresee(group, snapshot);
                }
                Err(CompileError::Diagnostics(found)) => errors.extend(found),
                Err(error) => return Err(error),
            }
        }
        Diagnostics::reject(errors)?;
        *lock(&self.known) = used;
        Ok(())
    }

    fn compiled_for(&self, node: &NodeIdentity) -> Option<Arc<Snapshot>> {
        let group = (self.kinship.signature(node), Support::of(node));
        lock(&self.compiled).compiled(&group)
    }

    fn snapshot_for(&self, node: &NodeIdentity) -> Arc<Snapshot> {
        let group = (self.kinship.signature(node), Support::of(node));
        let group = lock(&self.compiled).group(group);
        Arc::clone(group.get_or_init(|| self.serve(node)))
    }

    fn plans(&self) -> Vec<(String, String)> {
        let name = |(signature, label)| (self.kinship.describe(&signature), label);
        lock(&self.compiled).plans().into_iter().map(name).collect()
    }

    /// The number of compiled groups.
    fn count(&self) -> usize {
        lock(&self.compiled).len().max(lock(&self.known).len())
    }

    /// Compiles a group that was not foreseen. If that fails, its requests are refused, and the errors are logged.
    fn serve(&self, node: &NodeIdentity) -> Arc<Snapshot> {
        match self.compile(node, Strictness::Permissive) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::error!(node = node.id, "every request is refused at this node: {error}");
                let scope = Scope::of(&self.bundle, node);
                Arc::new(compile_refusal(&scope, &self.key_sets, &self.code))
            }
        }
    }

    fn compile(&self, node: &NodeIdentity, strictness: Strictness) -> Result<Arc<Snapshot>, CompileError> {
        let scope = Scope::of(&self.bundle, node);
        let revision = group_revision(&scope, &self.key_sets, self.code.set());
        if let Some(snapshot) = lock(&self.known).get(&revision) {
            return Ok(Arc::clone(snapshot));
        }
        let (snapshot, problems) =
            compile_scope(&scope, revision.clone(), &self.key_sets, &self.code, &self.kept, strictness)?;
        for problem in &problems {
            tracing::error!(envoy = node.envoy, "not served as it is written: {problem}");
        }
        let snapshot = Arc::new(snapshot);
        let mut known = lock(&self.known);
        if known.len() >= MOST_GROUPS {
            // Drops those that no group and no stream uses.
            known.retain(|_, snapshot| Arc::strong_count(snapshot) > 1);
        }
        known.insert(revision, Arc::clone(&snapshot));
        Ok(snapshot)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // Milliseconds for thousands of resources, and the last reference may be that of a stream.
        dispose((mem::take(&mut self.bundle), mem::take(&mut self.compiled), mem::take(&mut self.known)));
    }
}

/// Locks a mutex. A poisoned lock is ignored: every statement leaves the value consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
