//! The line that a policy takes, from files to a snapshot, in one place. Each step is a module of its own.

use crate::{
    attach::attach,
    gate,
    lower::lower,
    model::{self, Diagnostics, File},
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
    /// The engine would not load what we made of it.
    #[error("the plan does not pass the gate: {0}")]
    Gate(postern_engine::LoadError),
    /// A resource could not be written down.
    #[error("the revision cannot be computed: {0}")]
    Revision(serde_json::Error),
}

/// YAML → model → attach → lower → gate → revision → snapshot.
pub fn compile(files: &[File], code: &FilterCode) -> Result<Snapshot, CompileError> {
    let bundle = model::read(files)?;
    let attached = attach(&bundle);
    let revision = revision(&bundle, code.digest()).map_err(CompileError::Revision)?;
    let plan = gate::admit(&lower(&bundle, &attached, &revision)?).map_err(CompileError::Gate)?;
    Ok(Snapshot::build(&bundle, plan, code, revision))
}
