//! The line that a policy takes, from files to a snapshot, in one place. Each step is a module of its own.

use crate::{
    attach::{Attachment, Scope, attach},
    gate,
    keys::KeySets,
    lower::{Strictness, lower},
    model::{self, Bundle, Diagnostic, Diagnostics, File},
    node::NodeIdentity,
    revision::group_revision,
    snapshot::{FilterCode, Snapshot, check_raw},
    source::SourceError,
};

/// Why files did not become a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// They could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What users wrote is wrong.
    #[error(transparent)]
    Diagnostics(#[from] Diagnostics),
    /// The filter would not load what we made of it, and did not say for which resource.
    #[error("the plan does not pass the gate: {0}")]
    Gate(gate::Refusal),
}

/// YAML → model → attach → lower → gate → revision → snapshot, for a node that says nothing of itself, with no published
/// key set known.
pub fn compile(files: &[File], code: &FilterCode) -> Result<Snapshot, CompileError> {
    compile_bundle(&model::read(files)?, &KeySets::default(), code)
}

/// The same from the model on, with the published key sets that are known.
pub fn compile_bundle(bundle: &Bundle, key_sets: &KeySets, code: &FilterCode) -> Result<Snapshot, CompileError> {
    let scope = Scope::of(bundle, &NodeIdentity::default());
    compile_scope(&scope, key_sets, code, Strictness::Strict).map(|(snapshot, _)| snapshot)
}

/// The same for what concerns one group of nodes. If it is not strict, it also says what is served as a refusal.
pub fn compile_scope(
    scope: &Scope<'_>,
    key_sets: &KeySets,
    code: &FilterCode,
    strictness: Strictness,
) -> Result<(Snapshot, Vec<Diagnostic>), CompileError> {
    let attachment = attach(scope);
    let (plan, errors) = lower(scope, key_sets, &attachment, strictness)?;
    let plan = code.gate().admit(&plan).map_err(|refusal| match gate::blame(&refusal, &plan, scope, &attachment) {
        Some(diagnostics) => CompileError::Diagnostics(diagnostics),
        None => CompileError::Gate(refusal),
    })?;
    let revision = group_revision(scope, key_sets, code.digest());
    let snapshot = Snapshot::build(scope, &attachment, plan, code, revision);
    check_raw(scope, &snapshot)?;
    Ok((snapshot, errors))
}

/// A snapshot in which every request is refused: for what cannot be served in any other way.
pub fn compile_refusal(scope: &Scope<'_>, key_sets: &KeySets, code: &FilterCode) -> Snapshot {
    let revision = group_revision(scope, key_sets, code.digest());
    let attachment = Attachment::default();
    let plan = gate::refusal();
    Snapshot::build(scope, &attachment, plan, code, revision)
}
