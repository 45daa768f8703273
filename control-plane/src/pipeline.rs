//! The line that a policy takes, from files to a snapshot, in one place. Each step is a module of its own.

use crate::{
    attach::attach,
    gate,
    keys::KeySets,
    lower::lower,
    model::{self, Bundle, Diagnostics, File},
    revision::revision,
    snapshot::{FilterCode, Snapshot},
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
    let plan = lower(bundle, key_sets, &attached, &revision)?;
    let plan = code.gate().admit(&plan).map_err(|refusal| match gate::blame(&refusal, &plan, bundle) {
        Some(diagnostics) => CompileError::Diagnostics(diagnostics),
        None => CompileError::Gate(refusal),
    })?;
    Ok(Snapshot::build(bundle, plan, code, revision))
}
