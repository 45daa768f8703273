//! All that can be said of resources without a server.

use crate::{
    digest::Digest,
    keys::KeySets,
    lint::Finding,
    model::{self, Bundle},
    pipeline::CompileError,
    publication::Publication,
    releases::{Admission, examine},
    revision::revision,
    snapshot::FilterCode,
};

/// Puts files together as a control plane would that has neither nodes nor published key sets, and loads the plans in this
/// filter. Returns what is right but looks like a slip, or why they would be refused.
pub fn check(files: &[model::File], code: &FilterCode) -> Result<Vec<Finding>, CompileError> {
    let bundle = model::read(files)?;
    Ok(examine(&bundle, &Offline(code))?.findings.to_vec())
}

/// Admission without a server: no node and no published key set is known.
struct Offline<'a>(&'a FilterCode);

impl Admission for Offline<'_> {
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError> {
        Publication::admit(bundle.clone(), KeySets::default(), self.0, &[], None)
    }

    fn digest(&self, bundle: &Bundle) -> Digest {
        revision(bundle, &KeySets::default(), self.0.digest())
    }
}
