//! Warnings in answers: a bounded list, and the number of those left out.

use postern_compile::lint::Finding;
use postern_model::Diagnostic;
use schemars::JsonSchema;
use serde::Serialize;

/// The maximum number of warnings in an answer.
const MOST: usize = 100;

/// What is worth a warning.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Warnings {
    /// The first of them, by file and line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
    /// How many are left out.
    #[serde(skip_serializing_if = "is_zero")]
    more_warnings: usize,
}

/// One of them.
#[derive(Debug, Serialize, JsonSchema)]
struct Warning {
    /// Where, and what.
    #[serde(flatten)]
    at: Diagnostic,
    /// What kind of finding it is, such as `unguarded-route`.
    code: &'static str,
}

impl From<Vec<Finding>> for Warnings {
    fn from(findings: Vec<Finding>) -> Self {
        let more_warnings = findings.len().saturating_sub(MOST);
        let warnings = findings.into_iter().take(MOST).map(|Finding { at, code }| Warning { at, code }).collect();
        Self { warnings, more_warnings }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
