//! Collects what is wrong with one document. A parameter that a step lacks is kept apart: the step may merge with another
//! one that has it.

use postern_base::{
    diagnostic::{Diagnostic, Path},
    yaml::Position,
};

/// Collects the errors of one document, or of a file outside its documents.
pub(super) struct Report<'a> {
    file: &'a str,
    resource: Option<String>,
    found: Vec<Diagnostic>,
    /// The step whose parameters are being checked.
    step: Option<StepKey>,
    lacking: Vec<Lacking>,
}

/// What steps merge by, and what must be equal for them to: their name and their policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StepKey {
    pub(super) name: String,
    pub(super) policy: String,
}

/// A parameter that a step lacks: an error, unless it merges with a step that has it.
#[derive(Clone)]
pub(super) struct Lacking {
    pub(super) step: StepKey,
    pub(super) error: Diagnostic,
}

impl Lacking {
    /// The same parameter, of a step in this file, behind so many lines.
    pub(super) fn placed(&self, file: &str, lines_before: usize) -> Self {
        let line = self.error.line.saturating_add(lines_before);
        Self { step: self.step.clone(), error: Diagnostic { file: file.to_owned(), line, ..self.error.clone() } }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(file: &'a str, resource: Option<String>) -> Self {
        Self { file, resource, found: Vec::new(), step: None, lacking: Vec::new() }
    }

    /// What is checked within is a part of this step's parameters, and may be completed by another's; with `None`, it
    /// must be complete by itself.
    pub(super) fn within_step(&mut self, step: Option<StepKey>, check: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.step, step);
        check(self);
        self.step = outer;
    }

    /// Something is not there that must be.
    pub(super) fn missing(&mut self, at: Position, path: &Path<'_>, message: impl Into<String>) {
        self.error(at, path, message);
        if let Some(step) = self.step.clone() {
            self.lacking.extend(self.found.pop().map(|error| Lacking { step, error }));
        }
    }

    /// What steps lack. If the resource is wrong otherwise, that is an error too: it merges with nothing.
    pub(super) fn take_lacking(&mut self) -> Vec<Lacking> {
        let lacking = std::mem::take(&mut self.lacking);
        if self.found.is_empty() {
            return lacking;
        }
        self.found.extend(lacking.into_iter().map(|lacking| lacking.error));
        Vec::new()
    }

    pub(super) fn error(&mut self, at: Position, path: &Path<'_>, message: impl Into<String>) {
        let field = path.to_string();
        self.error_in(at, (!field.is_empty()).then_some(field), message);
    }

    /// Like [`Self::error`], for a field that is rendered already.
    pub(super) fn error_in(&mut self, at: Position, field: Option<String>, message: impl Into<String>) {
        self.found.push(Diagnostic {
            file: self.file.to_owned(),
            line: at.line,
            column: at.column,
            resource: self.resource.clone(),
            field,
            message: message.into(),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn into_found(self) -> Vec<Diagnostic> {
        self.found
    }
}
