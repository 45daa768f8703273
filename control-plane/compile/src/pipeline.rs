//! The pipeline from files to a snapshot. Each step is a module of its own.

use std::{panic::resume_unwind, thread};

use postern_base::{digest::Digest, disposal::dispose, node::NodeIdentity};
use postern_engine::Plan;
use postern_model::{Bundle, Diagnostic, Diagnostics, File, directory::SourceError};

use crate::{
    attach::{Attachment, Scope, attach, faults},
    gate::{self, EncodedPlan},
    keys::KeySets,
    lower::{self, Lowered, Strictness, lower},
    revision::group_revision,
    snapshot::{FilterCode, Filters, Kept, NotAdmitted, PlanOf, Projection, Snapshot, check_raw},
};

/// Why files cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// They cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The resources have errors.
    #[error(transparent)]
    Diagnostics(#[from] Diagnostics),
    /// The gate refused the plan for a reason that is not in any resource.
    #[error("the plan does not pass the gate: {0}")]
    Gate(gate::Refusal),
}

/// Compiles files for a node without identity, with no published key sets known: YAML → model → attach → lower → gate →
/// revision → snapshot.
pub fn compile(files: &[File], code: &FilterCode) -> Result<Snapshot, CompileError> {
    compile_bundle(&postern_model::read(files)?, &KeySets::default(), code)
}

/// Like [`compile`], from a bundle, with the known published key sets.
pub fn compile_bundle(bundle: &Bundle, key_sets: &KeySets, code: &FilterCode) -> Result<Snapshot, CompileError> {
    let scope = Scope::of(bundle, &NodeIdentity::default());
    let revision = group_revision(&scope, key_sets, code.set());
    let compiled = compile_scope(&scope, revision, key_sets, code, &Kept::default(), Strictness::Strict);
    compiled.map(|(snapshot, _)| snapshot)
}

/// Compiles the resources of one group of nodes. If not strict, also returns the errors of chains that are served as a
/// refusal, and of what is attached to destinations, of which the first is served. `revision` becomes the snapshot's
/// revision, and `kept` has reusable resources of earlier ones.
pub fn compile_scope(
    scope: &Scope<'_>,
    revision: Digest,
    key_sets: &KeySets,
    code: &FilterCode,
    kept: &Kept,
    strictness: Strictness,
) -> Result<(Snapshot, Vec<Diagnostic>), CompileError> {
    if scope.refuses_all {
        let snapshot = compile_refusal(scope, key_sets, code);
        check_raw(scope, &snapshot)?;
        return Ok((snapshot, Vec::new()));
    }
    let faults = faults(scope);
    if strictness == Strictness::Strict {
        Diagnostics::reject(faults.clone())?;
    }
    let attachment = &attach(scope);
    // The two are independent, and each visits every route.
    let (projection, admitted) = thread::scope(|threads| {
        let projecting = threads.spawn(|| Projection::of(scope, attachment, kept));
        let admitted = lower_and_admit(scope, key_sets, code, attachment, strictness);
        (projecting.join().unwrap_or_else(|panic| resume_unwind(panic)), admitted)
    });
    let (plan, mut problems) = admitted?;
    problems.extend(faults);
    let snapshot = projection.with_plan(scope, attachment, plan, code, revision);
    check_raw(scope, &snapshot)?;
    Ok((snapshot, problems))
}

fn lower_and_admit(
    scope: &Scope<'_>,
    key_sets: &KeySets,
    code: &FilterCode,
    attachment: &Attachment<'_>,
    strictness: Strictness,
) -> Result<(PlanOf, Vec<Diagnostic>), CompileError> {
    let Lowered { plan, reads_source_tags, problems } = lower(scope, key_sets, attachment, strictness)?;
    let encoded = EncodedPlan::new(&plan);
    let ((filters, needs_verification), admitted) = thread::scope(|threads| {
        let making = threads.spawn(|| (Filters::new(&encoded, code), Plan::needs_verification(&plan)));
        let admitted = code.admit(&encoded);
        (making.join().unwrap_or_else(|panic| resume_unwind(panic)), admitted)
    });
    let admitted = admitted.map_err(|NotAdmitted { refusal, other }| {
        let refusal = match other {
            Some(build) => refusal.of_build(build.short()),
            None => refusal,
        };
        match gate::blame(&refusal, &plan, scope, attachment) {
            Some(diagnostics) => CompileError::Diagnostics(diagnostics),
            None => CompileError::Gate(refusal),
        }
    })?;
    dispose(plan);
    // A plan that the filter loads and the engine does not is another version's.
    let needs_verification = needs_verification.unwrap_or(false);
    Ok((PlanOf { plan: admitted, filters, reads_source_tags, needs_verification }, problems))
}

/// A snapshot in which every request is refused, for resources that cannot be served otherwise. The answer is the one
/// that the settings say, unless the filter refuses that too.
pub fn compile_refusal(scope: &Scope<'_>, key_sets: &KeySets, code: &FilterCode) -> Snapshot {
    let revision = group_revision(scope, key_sets, code.set());
    let attachment = Attachment::default();
    let plan = EncodedPlan::new(&lower::refusal(scope));
    let plan = code.admit(&plan).unwrap_or_else(|_| gate::refusal());
    Snapshot::build(scope, &attachment, plan, code, revision)
}
