//! Starting with resources that are not all valid: a stored revision that a newer version of this program checks more
//! strictly, or a directory with mistakes and no stored revision. Everything valid is served, and what may be guarded
//! by something invalid answers 500 (docs/rules.md, 4.2). What takes the place of a document is decided in [`stead`].

mod stead;

use std::collections::{BTreeMap, BTreeSet};

use postern_base::{node::DEFAULT_MESH, resource_type::ResourceType};
use postern_compile::{
    lint::Finding,
    pipeline::CompileError,
    review::{names_nothing, review},
};
use postern_model::{Bundle, Diagnostic, Diagnostics, Refusal, TargetRef};

use self::stead::{REFUSAL, Stead, is_unserved_route, kind_of, stead, unreadable};
use super::{Admission, ApplyError, Opens, trust::Trust};
use crate::{
    publication::Publication,
    store::{Document, assemble},
};

/// The most times that documents are read, each time without what was found invalid the times before.
const MOST_ROUNDS: usize = 64;

/// What can be served of documents.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) bundle: Bundle,
    pub(super) publication: Publication,
    /// The warnings, and what only the review finds in resources that were admitted once.
    pub(super) findings: Vec<Finding>,
    /// All errors; what their resources may guard is refused.
    pub(super) problems: Option<Diagnostics>,
}

/// Serves what is valid, and refuses what anything invalid may guard. Fails only if not even refusals can be served.
pub(super) fn serve(documents: Vec<Document>, admission: &dyn Admission, trust: Trust) -> Result<Served, ApplyError> {
    let mut salvage = Salvage::new(documents, trust);
    let mut fault = match salvage.attempt(admission) {
        Ok(served) => return Ok(served),
        Err(fault) => fault,
    };
    // Only now, since most starts need none of it.
    let found_unreadable = salvage.leave_out_unreadable();
    for round in 0..MOST_ROUNDS {
        if round > 0 || !found_unreadable {
            let progress = salvage.heed(&fault);
            if !progress {
                break;
            }
        }
        fault = match salvage.attempt(admission) {
            Ok(served) => return Ok(served),
            Err(fault) => fault,
        };
    }
    salvage.give_up(&fault);
    salvage.attempt(admission).map_err(Fault::into_error)
}

/// Why an attempt failed.
enum Fault {
    /// Documents are invalid.
    Invalid(Diagnostics),
    /// References name nothing: whatever they were meant for lacks its guard.
    NamesNothing(Diagnostics),
    /// Routes lack a guard where none may.
    Unguarded(Diagnostics),
    /// There are no resources.
    Nothing,
    /// The reason is in no document.
    Other(CompileError),
}

impl From<CompileError> for Fault {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Diagnostics(found) => Self::Invalid(found),
            error => Self::Other(error),
        }
    }
}

impl Fault {
    fn into_error(self) -> ApplyError {
        match self {
            Self::Invalid(found) | Self::NamesNothing(found) | Self::Unguarded(found) => found.into(),
            Self::Other(error) => error.into(),
            Self::Nothing => Opens::Everything("all that is to come".to_owned()).into(),
        }
    }

    /// The problems to act on. A route is named once for itself, and once more for each step that nearly guards it.
    fn problems(&self) -> Vec<Diagnostic> {
        match self {
            Self::Invalid(found) | Self::NamesNothing(found) => found.iter().cloned().collect(),
            Self::Unguarded(found) => {
                let names = |problem: &&Diagnostic| {
                    let field = problem.field.as_deref().unwrap_or_default();
                    field.starts_with("spec.routes[") || field.starts_with("spec.targetRef")
                };
                let routes: Vec<_> = found.iter().filter(names).cloned().collect();
                if routes.is_empty() { found.iter().cloned().collect() } else { routes }
            }
            Self::Other(error) => vec![nowhere(error.to_string())],
            Self::Nothing => vec![nowhere("there are no resources".to_owned())],
        }
    }
}

/// A problem that is in no document.
fn nowhere(message: String) -> Diagnostic {
    Diagnostic { file: "resources".to_owned(), line: 1, column: 1, resource: None, field: None, message }
}

/// Documents, without those that were found invalid so far, and what takes their place.
struct Salvage {
    documents: Vec<Document>,
    trust: Trust,
    refusals: BTreeSet<Refusal>,
    /// The refusals of documents with fields that nobody knows, which may have been meant to say more of the target.
    unclear: BTreeSet<Refusal>,
    /// The meshes in which a resource in Envoy's format is invalid, which may have guarded or replaced a listener.
    without_raw_listeners: BTreeSet<String>,
    /// The services that stand in for invalid ones, by file and line: mesh and name.
    withdrawn: BTreeMap<(String, usize), (String, String)>,
    /// The routes of gateways that are left out, with their mesh: nobody is served them.
    unserved: BTreeSet<(String, String)>,
    refuses_all: bool,
    problems: Vec<Diagnostic>,
}

impl Salvage {
    fn new(documents: Vec<Document>, trust: Trust) -> Self {
        let refuses_all = trust == Trust::Incomplete;
        let (refusals, unclear, without_raw_listeners) = Default::default();
        let (withdrawn, unserved, problems) = Default::default();
        Self { documents, trust, refusals, unclear, without_raw_listeners, withdrawn, unserved, refuses_all, problems }
    }

    fn attempt(&self, admission: &dyn Admission) -> Result<Served, Fault> {
        let mut bundle = admission.read(&assemble(&self.documents)).map_err(Fault::Invalid)?;
        bundle.refuses_all = self.refuses_all;
        bundle.envoy_resources.retain(|raw| {
            let is_doubtful = self.refuses_all || self.without_raw_listeners.contains(raw.mesh());
            !is_doubtful || raw.spec.resource.kind() != ResourceType::Listener
        });
        let refusals: Vec<_> = self.refusals.iter().map(|refusal| self.as_wide_as_needed(refusal, &bundle)).collect();
        for refusal in &refusals {
            // A name that is none is a reason for a refusal, too.
            let unnamed = || Refusal { name: REFUSAL.to_owned(), ..refusal.clone() };
            bundle.refuses_all |= !bundle.refuse(refusal) && !bundle.refuse(&unnamed());
        }
        self.withdrawn.values().for_each(|(mesh, name)| bundle.withdraw(mesh, name));
        if bundle.refuses_all {
            refuse_every_mesh(&mut bundle);
        }
        if self.trust != Trust::Admitted && !bundle.refuses_all {
            if bundle.is_empty() {
                return Err(Fault::Nothing);
            }
            Diagnostics::reject(names_nothing(&bundle)).map_err(Fault::NamesNothing)?;
            review(&bundle).map_err(Fault::Unguarded)?;
        }
        let publication = admission.admit(&bundle)?;
        let findings = findings(&bundle);
        Ok(Served { bundle, publication, findings, problems: Diagnostics::reject(self.problems.clone()).err() })
    }

    /// The refusal of a route, or of its whole mesh where the route is nowhere to be found: its name, or a `match` that
    /// finds its requests, may be the mistake. An Envoy with routes of its own is the only one to know their names, so
    /// that a name in a mesh without any other routes is believed.
    fn as_wide_as_needed(&self, refusal: &Refusal, bundle: &Bundle) -> Refusal {
        let Some(route) = refusal.target.route() else { return refusal.clone() };
        let declared = |mesh: &str| {
            let gateways = bundle.gateways.iter().filter(move |gateway| gateway.mesh() == mesh);
            let raw = bundle.envoy_resources.iter().filter(move |raw| raw.mesh() == mesh);
            let declared = gateways.flat_map(|gateway| gateway.spec.routes.iter().map(|route| route.name.clone()));
            let unserved = self.unserved.iter().filter(move |(its, _)| its == mesh).map(|(_, route)| route.clone());
            declared
                .chain(raw.flat_map(|raw| raw.spec.resource.routes().into_iter().map(|route| route.name)))
                .chain(unserved)
                .collect::<BTreeSet<_>>()
        };
        let mut outbound = bundle.outbound_routes(&refusal.mesh);
        let declared = declared(&refusal.mesh);
        let is_known = declared.contains(route)
            || outbound.any(|known| known == route)
            || is_unserved_route(route, &refusal.mesh, &self.unserved)
            || (declared.is_empty() && !self.unclear.contains(refusal));
        if is_known { refusal.clone() } else { Refusal { target: TargetRef::Mesh, ..refusal.clone() } }
    }

    /// Leaves out the documents that are not YAML. What they would guard is unknown, so that everything is refused.
    fn leave_out_unreadable(&mut self) -> bool {
        let (before, mut problems) = (self.documents.len(), Vec::new());
        self.documents.retain(|document| match unreadable(document) {
            Some(found) => {
                problems.extend(found);
                false
            }
            None => true,
        });
        self.problems.append(&mut problems);
        let found = self.documents.len() < before;
        self.refuses_all |= found;
        found
    }

    /// Puts something else in the place of documents with problems. Returns false if that changes nothing.
    fn heed(&mut self, fault: &Fault) -> bool {
        let mut changes = false;
        let mut by_document: BTreeMap<usize, Vec<Diagnostic>> = BTreeMap::new();
        for problem in fault.problems() {
            match self.documents.iter().position(|document| covers(document, &problem)) {
                Some(place) => by_document.entry(place).or_default().push(problem.clone()),
                None => changes |= self.refuse_all(),
            }
            self.problems.push(problem);
        }
        // From the last, so that the places of the others stay.
        for (place, problems) in by_document.into_iter().rev() {
            changes |= self.replace(place, fault, &problems);
        }
        changes
    }

    fn replace(&mut self, place: usize, fault: &Fault, problems: &[Diagnostic]) -> bool {
        let Some(document) = self.documents.get(place) else { return false };
        let was_withdrawn = self.withdrawn.remove(&document.key()).is_some();
        match stead(document, fault, problems, &self.unserved) {
            Stead::Route(refusals) => {
                let before = self.refusals.len();
                self.refusals.extend(refusals);
                return self.refusals.len() > before || self.refuse_all();
            }
            Stead::Withdrawn { placeholder, service } if !was_withdrawn => {
                self.withdrawn.insert(placeholder.key(), service);
                self.documents.splice(place..=place, [placeholder]).for_each(drop);
                return true;
            }
            Stead::Nothing | Stead::Withdrawn { .. } => {}
            Stead::Unserved(routes) => self.unserved.extend(routes),
            Stead::Refusal(refusal) => {
                if kind_of(document).as_deref() == Some("EnvoyResource") {
                    self.without_raw_listeners.insert(refusal.mesh.clone());
                }
                if problems.iter().any(|problem| problem.message.starts_with("unknown field")) {
                    self.unclear.insert(refusal.clone());
                }
                self.refusals.insert(refusal);
            }
            Stead::Everything => drop(self.refuse_all()),
        }
        self.documents.remove(place);
        true
    }

    fn refuse_all(&mut self) -> bool {
        !std::mem::replace(&mut self.refuses_all, true)
    }

    /// Leaves out everything, and refuses every request.
    fn give_up(&mut self, fault: &Fault) {
        self.problems.extend(fault.problems());
        self.problems.push(nowhere("no part of the resources can be served: every request is refused".to_owned()));
        self.refuses_all = true;
        (self.documents, self.refusals, self.unclear, self.withdrawn) = Default::default();
    }
}

/// Adds a policy to every mesh that refuses everything in it, for those who are sent policies and no plan.
fn refuse_every_mesh(bundle: &mut Bundle) {
    let meshes: BTreeSet<_> = bundle.iter().map(|resource| resource.mesh.to_owned()).collect();
    for mesh in meshes.into_iter().chain([DEFAULT_MESH.to_owned()]).collect::<BTreeSet<_>>() {
        let (name, file) = (REFUSAL.to_owned(), "resources".to_owned());
        bundle.refuses_all |= !bundle.refuse(&Refusal { mesh, target: TargetRef::Mesh, name, file, line: 1 });
    }
}

/// The warnings. Errors of the review count as warnings: what they are about was admitted, or is refused.
fn findings(bundle: &Bundle) -> Vec<Finding> {
    review(bundle).unwrap_or_else(|errors| {
        let errors = errors.into_iter().map(|at| Finding { at, code: "stored-error" });
        errors.inspect(|error| tracing::error!("stored, but no longer valid: {}", error.at)).collect()
    })
}

fn covers(document: &Document, problem: &Diagnostic) -> bool {
    let lines = document.text.split_inclusive(|byte| *byte == b'\n').count();
    document.file == problem.file && (document.line..document.line + lines).contains(&problem.line)
}
