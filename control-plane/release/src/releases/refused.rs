//! A change that was refused whole, with its errors by resource, so that the author of a resource sees at the resource
//! why the change did not come into force.

use std::{collections::BTreeMap, time::SystemTime};

use postern_base::bounded;
use postern_compile::pipeline::CompileError;
use postern_model::{Diagnostic, File};

use super::ApplyError;
use crate::{
    catalogue::{ResourceKey, key_of, line_of},
    condition::{ConditionType, Conditions, Truth},
    store::{Document, milliseconds, split},
};

/// The maximum number of resources whose errors are remembered, and of errors of each.
const MOST_RESOURCES: usize = 1_000;
const MOST_ERRORS: usize = 50;

/// A change that was refused whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusedChange {
    /// The author.
    pub author: String,
    /// The author's message.
    pub message: String,
    /// When it was refused, in milliseconds since 1970.
    pub at: u64,
    /// All errors, one a line.
    pub reasons: Vec<String>,
    /// The resources that have errors of their own.
    pub resources: BTreeMap<ResourceKey, RefusedResource>,
}

/// A resource of a refused change, and its errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedResource {
    /// The file that it is in.
    pub file: String,
    /// The line at which it starts.
    pub line: usize,
    errors: Vec<String>,
}

/// The errors of files by resource. Errors of a document that names no resource are left out.
pub fn errors_by_resource(files: &[File], error: &ApplyError) -> BTreeMap<ResourceKey, RefusedResource> {
    let ApplyError::Compile(CompileError::Diagnostics(errors)) = error else { return BTreeMap::new() };
    let documents = split(files);
    let mut of_documents: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for error in errors {
        // Documents are sorted by file and line: the last one that starts before the error has it, if any does.
        let is_before = |document: &Document| (&document.file, document.line) <= (&error.file, error.line);
        let Some(place) = documents.partition_point(is_before).checked_sub(1) else { continue };
        if documents.get(place).is_some_and(|document| covers(document, error)) {
            let known = of_documents.entry(place).or_default();
            if known.len() < MOST_ERRORS {
                known.push(bounded::message(error.to_string()));
            }
        }
    }
    let resource = |(place, errors): (usize, Vec<String>)| {
        let document = documents.get(place)?;
        let (file, line) = (document.file.clone(), line_of(document));
        Some((key_of(document)?, RefusedResource { file, line, errors }))
    };
    of_documents.into_iter().take(MOST_RESOURCES).filter_map(resource).collect()
}

impl RefusedChange {
    /// A change that was refused for these reasons, one a line.
    pub fn new((author, message): (String, String), reasons: &str, now: SystemTime) -> Self {
        let reasons = reasons.lines().map(|line| bounded::message(line.to_owned())).collect();
        Self { author, message, at: milliseconds(now), reasons, resources: BTreeMap::new() }
    }

    /// The conditions of one of its resources; `None` if the resource has no error in it. It was taken in and did not
    /// compile, so that `Initialized` is false.
    pub fn conditions_of(&self, key: &ResourceKey) -> Option<Conditions> {
        let resource = self.resources.get(key)?;
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(self.at);
        let mut conditions = Conditions::default();
        let words = ("Invalid", resource.errors.join("\n"));
        conditions.set((ConditionType::Initialized, None), Truth::False, words, now);
        Some(conditions)
    }
}

/// Whether an error is about the change itself, and not about the moment or the store.
pub fn is_refusal(error: &ApplyError) -> bool {
    matches!(error, ApplyError::Compile(_) | ApplyError::Unguarded(_) | ApplyError::TakenBack(_))
}

/// Whether an error is at a line of a document.
fn covers(document: &Document, error: &Diagnostic) -> bool {
    let ended = document.text.iter().filter(|byte| **byte == b'\n').count();
    let lines = ended + usize::from(!document.text.ends_with(b"\n"));
    document.file == error.file && (document.line..document.line.saturating_add(lines)).contains(&error.line)
}
