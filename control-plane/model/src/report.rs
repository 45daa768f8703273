//! Collects the errors of one document. Parameters that a step lacks are collected apart, since the step may merge with
//! another that has them.

use postern_base::{
    diagnostic::{Diagnostic, Path},
    yaml::Position,
};

/// The errors of one document, or of a file outside of its documents.
pub(super) struct Report<'a> {
    file: &'a str,
    resource: Option<String>,
    found: Vec<Diagnostic>,
    /// The step whose parameters are being checked, if any.
    step: Option<StepKey>,
    lacking: Vec<Lacking>,
}

/// The key by which steps merge: name and policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StepKey {
    pub(super) name: String,
    pub(super) policy: String,
}

/// A parameter that a step lacks: an error, unless the step merges with one that has it.
#[derive(Clone)]
pub(super) struct Lacking {
    pub(super) step: StepKey,
    pub(super) error: Diagnostic,
}

impl Lacking {
    /// The same fault in `file`, moved down by `lines_before` lines.
    pub(super) fn placed(&self, file: &str, lines_before: usize) -> Self {
        let line = self.error.line.saturating_add(lines_before);
        Self { step: self.step.clone(), error: Diagnostic { file: file.to_owned(), line, ..self.error.clone() } }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(file: &'a str, resource: Option<String>) -> Self {
        Self { file, resource, found: Vec::new(), step: None, lacking: Vec::new() }
    }

    /// Runs `check` on parameters of a step, which another step may complete. With `None`, what is checked must be
    /// complete by itself.
    pub(super) fn within_step(&mut self, step: Option<StepKey>, check: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.step, step);
        check(self);
        self.step = outer;
    }

    /// Reports something that is required and absent.
    pub(super) fn missing(&mut self, at: Position, path: &Path<'_>, message: impl Into<String>) {
        self.error(at, path, message);
        if let Some(step) = self.step.clone() {
            self.lacking.extend(self.found.pop().map(|error| Lacking { step, error }));
        }
    }

    /// Takes the parameters that steps lack. If there are other errors, these are errors too, and nothing is returned,
    /// since an invalid resource does not merge.
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

    /// Like [`Self::error`], for a rendered path.
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
