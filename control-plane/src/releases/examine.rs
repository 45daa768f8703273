//! Admission as a whole: all errors of a bundle at once, whoever finds them, and what is worth a warning about it.

use std::{panic::resume_unwind, sync::Arc, thread};

use super::Admission;
use crate::{lint::Finding, model::Bundle, pipeline::CompileError, publication::Publication, review::review};

/// A bundle that may be put in force.
#[derive(Debug)]
pub struct Examined {
    /// What nodes get.
    pub publication: Publication,
    /// What is worth a warning about it, by file and line.
    pub findings: Arc<[Finding]>,
}

/// Reviews and admits a bundle, or says everything that is wrong with it.
pub fn examine(bundle: &Bundle, admission: &dyn Admission) -> Result<Examined, CompileError> {
    examine_beside(bundle, admission, || ()).0
}

/// Like [`examine`], with something else to find out about the bundle meanwhile.
pub(super) fn examine_beside<T: Send>(
    bundle: &Bundle,
    admission: &dyn Admission,
    beside: impl FnOnce() -> T + Send,
) -> (Result<Examined, CompileError>, T) {
    // None needs another, and all look at everything.
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
