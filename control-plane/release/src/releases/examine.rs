//! Admission as a whole: all errors of a bundle at once, and its warnings. It changes nothing, so it can run on any
//! thread, in parallel with everything else.

use std::{panic::resume_unwind, sync::Arc, thread};

use postern_base::node::NodeIdentity;
use postern_compile::{
    lint::Finding,
    pipeline::CompileError,
    review::{lost_guards, review},
};
use postern_model::Bundle;

use super::{Admission, ApplyError, Extent, Opens, Pace, Proposal, complete};
use crate::{
    publication::Publication,
    store::{Parent, Prepared, Store, StoreError, split},
};

/// A bundle that passed admission.
#[derive(Debug)]
pub struct Examined {
    /// What nodes get.
    pub publication: Publication,
    /// The warnings, sorted by file and line.
    pub findings: Arc<[Finding]>,
}

/// What a proposal is compared with: what is in force when it is examined.
#[derive(Debug, Clone)]
pub struct Ground {
    pub(super) in_force: Option<(u64, Arc<Bundle>)>,
    pub(super) store: Arc<dyn Store>,
}

/// A proposal that passed admission and the gate. Whether it opens routes is known too; it is refused for that only
/// when it is stored.
#[derive(Debug)]
pub struct Proved {
    pub(super) bundle: Bundle,
    pub(super) publication: Publication,
    pub(super) findings: Arc<[Finding]>,
    pub(super) digest: String,
    pub(super) documents: Result<Prepared, StoreError>,
    pub(super) author: String,
    pub(super) message: String,
    pub(super) parent: Parent,
    pub(super) again: bool,
    pub(super) extent: Extent,
    pub(super) pace: Pace,
    allow_unguarded: bool,
    /// The routes that it would open, compared with the revision in force at its examination.
    opens: Result<(), Opens>,
    compared_with: Option<u64>,
    nodes: Vec<NodeIdentity>,
}

/// Reviews and admits a bundle, or returns all errors.
pub fn examine(bundle: &Bundle, admission: &dyn Admission) -> Result<Examined, CompileError> {
    examine_beside(bundle, admission, || ()).0
}

/// Reads, reviews and admits a proposal, or returns all errors.
pub fn prove(proposal: &Proposal, ground: &Ground, admission: &dyn Admission) -> Result<Proved, ApplyError> {
    let Proposal { author, message, parent, again, allow_unguarded, extent, pace, .. } = proposal;
    let (parent, again, allow_unguarded) = (*parent, *again, *allow_unguarded);
    let (author, message, extent, pace) = (author.clone(), message.clone(), extent.clone(), pace.clone());
    let files = complete(proposal, (ground.revision(), &*ground.store))?;
    let bundle = admission.read(&files)?;
    let beside = || {
        let opens = ground.stays_guarded(&bundle, allow_unguarded, admission.nodes());
        (opens, admission.digest(&bundle).to_string(), ground.store.prepare(split(&files)))
    };
    let (examined, (opens, digest, documents)) = examine_beside(&bundle, admission, beside);
    let Examined { publication, findings } = examined?;
    let (compared_with, nodes) = (ground.revision(), admission.nodes().to_vec());
    Ok(Proved {
        bundle,
        publication,
        findings,
        digest,
        documents,
        author,
        message,
        parent,
        again,
        extent,
        pace,
        allow_unguarded,
        opens,
        compared_with,
        nodes,
    })
}

impl Ground {
    /// The revision in force.
    pub(super) fn revision(&self) -> Option<u64> {
        self.in_force.as_ref().map(|(number, _)| *number)
    }

    fn stays_guarded(&self, after: &Bundle, allowed: bool, nodes: &[NodeIdentity]) -> Result<(), Opens> {
        let before = self.in_force.as_ref().map(|(_, bundle)| &**bundle);
        if allowed { Ok(()) } else { stays_guarded(before, after, nodes) }
    }
}

/// Refuses a change that removes the last authentication step of a route, or all resources.
pub(super) fn stays_guarded(before: Option<&Bundle>, after: &Bundle, nodes: &[NodeIdentity]) -> Result<(), Opens> {
    if after.is_empty() {
        return Err(Opens::Everything(match before.map_or(0, Bundle::len) {
            0 => "all that is to come".to_owned(),
            resources => format!("all {resources} resources in force"),
        }));
    }
    let lost = before.map(|before| lost_guards(before, after, nodes)).unwrap_or_default();
    if lost.is_empty() { Ok(()) } else { Err(Opens::Routes(lost)) }
}

impl Proved {
    /// Checks that what it was completed with is in force still.
    pub(super) fn stays_complete(&self, ground: &Ground) -> Result<(), StoreError> {
        if self.extent == Extent::Whole || ground.revision() == self.compared_with {
            return Ok(());
        }
        Err(StoreError::Conflict { expected: self.compared_with, latest: ground.revision() })
    }

    /// What it would open, compared with what is in force now.
    pub(super) fn opens(&mut self, ground: &Ground) -> Option<&Opens> {
        if ground.revision() != self.compared_with {
            self.opens = ground.stays_guarded(&self.bundle, self.allow_unguarded, &self.nodes);
            self.compared_with = ground.revision();
        }
        self.opens.as_ref().err()
    }

    /// Lets it open routes, because somebody said the word for it.
    pub(crate) fn allow_unguarded(&mut self) {
        (self.allow_unguarded, self.opens) = (true, Ok(()));
    }

    /// Replaces the author's message.
    pub(crate) fn say(&mut self, message: String) {
        self.message = message;
    }

    /// Checks that no route is opened, compared with what is in force now. That differs from what was in force at the
    /// examination only if a rollout was rolled back meanwhile.
    pub(super) fn stays_guarded(&mut self, ground: &Ground) -> Result<(), Opens> {
        self.opens(ground);
        std::mem::replace(&mut self.opens, Ok(()))
    }
}

/// Like [`examine`], running another check on the bundle in parallel.
fn examine_beside<T: Send>(
    bundle: &Bundle,
    admission: &dyn Admission,
    beside: impl FnOnce() -> T + Send,
) -> (Result<Examined, CompileError>, T) {
    // None depends on another, and each looks at the whole bundle.
    let (reviewed, found, admitted) = thread::scope(|scope| {
        let reviewing = scope.spawn(|| (review(bundle), beside()));
        let admitted = admission.admit(bundle);
        let (reviewed, found) = reviewing.join().unwrap_or_else(|panic| resume_unwind(panic));
        (reviewed, found, admitted)
    });
    let examined = match (reviewed, admitted) {
        (Ok(findings), Ok(publication)) => Ok(Examined { publication, findings: findings.into() }),
        (Ok(_), Err(error)) => Err(error),
        (Err(errors), Ok(_)) => Err(errors.into()),
        (Err(errors), Err(CompileError::Diagnostics(others))) => Err(CompileError::Diagnostics(errors.and(others))),
        (Err(errors), Err(_)) => Err(errors.into()),
    };
    (examined, found)
}
