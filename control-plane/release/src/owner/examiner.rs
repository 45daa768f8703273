//! Admission in a running control plane: with the fetched keys, the connected nodes and what is in force.

use std::sync::Arc;

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::{
    keys::{KeySets, LiveSources},
    pipeline::CompileError,
    revision::revision,
    snapshot::FilterCode,
};
use postern_model::{Bundle, Diagnostics, File, Reader};

use super::Population;
use crate::{
    publication::{Publication, Publications},
    releases::{Admission, ApplyError, Examined, examine, kept_code},
    store::Store,
};

/// Examines resources as the owner does, without changing anything. It is slow and must not run on an async worker.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Examiner(Arc<Knowledge>);

#[derive(Debug)]
struct Knowledge {
    /// Remembers documents that were read before.
    reader: Reader,
    code: FilterCode,
    keys: Arc<LiveSources>,
    population: Population,
    publications: Publications,
}

/// Admission with what is known at one moment.
#[derive(Debug, Clone)]
pub struct PreparedAdmission {
    knowledge: Arc<Knowledge>,
    /// The filter builds that it is for.
    code: FilterCode,
    key_sets: KeySets,
    /// The nodes for which the resources must be valid.
    nodes: Vec<NodeIdentity>,
    /// The publication in force: what a change does not touch is reused from it.
    previous: Option<Arc<Publication>>,
}

impl Examiner {
    pub(super) fn new(
        code: FilterCode,
        keys: Arc<LiveSources>,
        population: Population,
        publications: Publications,
    ) -> Self {
        Self(Arc::new(Knowledge { reader: Reader::default(), code, keys, population, publications }))
    }

    /// Takes what is known now.
    pub fn known(&self) -> PreparedAdmission {
        let knowledge = Arc::clone(&self.0);
        let (key_sets, nodes) = (knowledge.keys.sets(), knowledge.population.identities());
        let previous = knowledge.publications.latest();
        let code = knowledge.code.clone();
        PreparedAdmission { knowledge, code, key_sets, nodes, previous }
    }

    /// Reads and examines resources. Returns what would be put in force, or why it would be refused; whether routes
    /// would lose authentication is not checked.
    pub fn examine(&self, files: &[File]) -> Result<(Bundle, Examined), ApplyError> {
        let known = self.known();
        let bundle = known.read(files)?;
        let examined = examine(&bundle, &known)?;
        Ok((bundle, examined))
    }

    /// The filter builds that this process was started with.
    pub(super) fn code(&self) -> &FilterCode {
        &self.0.code
    }
}

impl PreparedAdmission {
    /// The same admission for the builds that something is served in.
    pub(super) fn like(&self, served: &Publication) -> Self {
        let code = served.code().unwrap_or(&self.code).clone();
        Self { code, ..self.clone() }
    }

    /// The same admission for these builds, or for the current ones if there are none, or if they are not kept.
    pub(super) fn in_builds(self, builds: Option<&[String]>, store: &dyn Store) -> Self {
        let code = builds.and_then(|builds| kept_code(builds, store, &self.code));
        Self { code: code.unwrap_or_else(|| self.code.clone()), ..self }
    }
}

impl Admission for PreparedAdmission {
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError> {
        let (keys, previous) = (self.key_sets.clone(), self.previous.as_deref());
        Publication::admit(bundle.clone(), keys, &self.code, &self.nodes, previous)
    }

    fn for_builds(&self, builds: &[String], store: &dyn Store) -> Option<Box<dyn Admission>> {
        let code = kept_code(builds, store, &self.code)?;
        Some(Box::new(Self { code, ..self.clone() }))
    }

    fn read(&self, files: &[File]) -> Result<Bundle, Diagnostics> {
        self.knowledge.reader.read(files)
    }

    fn nodes(&self) -> &[NodeIdentity] {
        &self.nodes
    }

    /// The digest of the resources alone: keys change without anybody proposing it.
    fn digest(&self, bundle: &Bundle) -> Digest {
        revision(bundle, &KeySets::default(), self.code.set())
    }
}
