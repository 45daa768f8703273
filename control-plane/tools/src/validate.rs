//! Validates resources without a server.

use std::time::SystemTime;

use postern_base::digest::Digest;
use postern_compile::{
    keys::KeySets, lint::Finding, pipeline::CompileError, review::Expiring, revision::revision, snapshot::FilterCode,
};
use postern_model::Bundle;
use postern_release::{
    publication::Publication,
    releases::{Admission, examine},
};

/// Compiles files as a control plane without nodes and published key sets does, and loads the plans in this filter.
/// Returns the warnings, or all errors if the resources would be refused.
pub fn check(files: &[postern_model::File], code: &FilterCode) -> Result<Vec<Finding>, CompileError> {
    let bundle = postern_model::read(files)?;
    let mut findings = examine(&bundle, &Offline(code))?.findings.to_vec();
    findings.extend(Expiring::of(&bundle).findings(SystemTime::now()));
    findings.sort();
    Ok(findings)
}

/// Admission without a server: without nodes and published key sets.
struct Offline<'a>(&'a FilterCode);

impl Admission for Offline<'_> {
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError> {
        Publication::admit(bundle.clone(), KeySets::default(), self.0, &[], None)
    }

    fn digest(&self, bundle: &Bundle) -> Digest {
        revision(bundle, &KeySets::default(), self.0.digest())
    }
}
