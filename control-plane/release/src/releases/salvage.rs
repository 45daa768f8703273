//! What can be served of a directory with mistakes, for a start without a stored revision (docs/rules.md, 4.2). It is
//! stored like any other revision; its digest says that it never was valid, so that a restart takes it for no more.

use postern_model::{Diagnostic, Diagnostics};

use super::{
    Admission, ApplyError, Ground, Proposal, digest_of,
    permissive::{self, Served},
    trust::{INCOMPLETE, INVALID, Trust},
};
use crate::store::{Prepared, StoreError, split};

/// What can be served of invalid resources, and what is stored of it.
#[derive(Debug)]
pub struct Salvaged {
    pub(super) served: Served,
    /// Digest, author, message and documents.
    pub(super) proposal: (String, String, String, Result<Prepared, StoreError>),
    /// Whether the documents are all of the directory.
    is_whole: bool,
}

impl Salvaged {
    /// The errors.
    pub fn problems(&self) -> Option<&Diagnostics> {
        self.served.problems.as_ref()
    }

    /// Whether the documents are all that was proposed. If not, the same documents may be valid later.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}

/// Finds what can be served of a proposal that is not valid. `unread` are the files beside it that could not be read.
pub fn salvage(
    proposal: Proposal,
    unread: Vec<Diagnostic>,
    ground: &Ground,
    admission: &dyn Admission,
) -> Result<Salvaged, ApplyError> {
    let Proposal { files, author, message, .. } = proposal;
    let is_whole = unread.is_empty();
    let (trust, mark) = if is_whole { (Trust::Never, INVALID) } else { (Trust::Incomplete, INCOMPLETE) };
    let documents = split(&files);
    let prepared = ground.store.prepare(documents.clone());
    let mut served = permissive::serve(documents, admission, trust)?;
    let found = served.problems.into_iter().flatten().chain(unread).collect();
    served.problems = Diagnostics::reject(found).err();
    let digest = format!("{mark}{}", digest_of(&files));
    Ok(Salvaged { served, proposal: (digest, author, message, prepared), is_whole })
}
