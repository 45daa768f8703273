//! The line that a policy takes, from files to a snapshot, in one place. Each step is a module of its own.

use crate::{
    attach::attach,
    gate,
    keys::KeySets,
    lower::lower,
    model::{self, Bundle, Diagnostics, File},
    revision::revision,
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
    /// The engine would not load what we made of it.
    #[error("the plan does not pass the gate: {0}")]
    Gate(postern_engine::LoadError),
    /// A resource could not be written down.
    #[error("the revision cannot be computed: {0}")]
    Revision(serde_json::Error),
}

/// YAML → model → attach → lower → gate → revision → snapshot, with no published key set known.
pub fn compile(files: &[File], code: &FilterCode) -> Result<Snapshot, CompileError> {
    compile_bundle(&model::read(files)?, &KeySets::default(), code)
}

/// The same from the model on, with the published key sets that are known.
pub fn compile_bundle(bundle: &Bundle, key_sets: &KeySets, code: &FilterCode) -> Result<Snapshot, CompileError> {
    let attached = attach(bundle);
    let revision = revision(bundle, key_sets, code.digest()).map_err(CompileError::Revision)?;
    let plan = gate::admit(&lower(bundle, key_sets, &attached, &revision)?).map_err(CompileError::Gate)?;
    let snapshot = Snapshot::build(bundle, plan, code, revision);
    check_raw(bundle, &snapshot)?;
    Ok(snapshot)
}
