//! Errors of the API as problem documents (RFC 9457).

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use postern_compile::pipeline::CompileError;
use postern_model::Diagnostics;
use postern_release::{
    releases::{ApplyError, NotPurged},
    store::StoreError,
};
use postern_tools::explain::ExplainError;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

/// The media type of a problem document.
pub(super) const TYPE: &str = "application/problem+json";

/// An error of an operation.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
    errors: Option<Diagnostics>,
}

/// What is shown of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
struct Document {
    /// What kind of problem it is.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// What is wrong, and with what.
    detail: String,
    /// Each error in the resources that were sent, by file and line.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Diagnostics>,
}

pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<Document>()
}

impl Problem {
    pub(crate) fn new(status: StatusCode, title: &'static str, detail: String) -> Self {
        Self { status, title, detail, errors: None }
    }

    pub(super) fn not_found(title: &'static str, detail: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, title, detail)
    }

    pub(super) fn internal(error: &impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error", error.to_string())
    }

    /// Replaces status, title and detail. The errors are kept.
    pub(super) fn because(self, status: StatusCode, title: &'static str, detail: String) -> Self {
        Self { status, title, detail, ..self }
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<ApplyError> for Problem {
    fn from(error: ApplyError) -> Self {
        let detail = error.to_string();
        let (status, title) = match &error {
            ApplyError::Compile(_) => (StatusCode::UNPROCESSABLE_ENTITY, "the resources are not valid"),
            ApplyError::Store(StoreError::Conflict { .. }) => {
                (StatusCode::PRECONDITION_FAILED, "somebody else was faster")
            }
            ApplyError::Store(StoreError::Full { .. }) => (StatusCode::INSUFFICIENT_STORAGE, "no space is left"),
            ApplyError::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the store failed"),
            ApplyError::TakenBack(_) => (StatusCode::CONFLICT, "it was taken back"),
            ApplyError::NotPurged(NotPurged::Unknown(_)) | ApplyError::NotInRevision { .. } => {
                (StatusCode::NOT_FOUND, "no such resource")
            }
            ApplyError::NotPurged(_) => (StatusCode::CONFLICT, "the resource is needed"),
            ApplyError::NotWhole { .. } | ApplyError::Incomplete(_) => {
                (StatusCode::CONFLICT, "the revision is not whole")
            }
            ApplyError::NoRevision(_) => (StatusCode::NOT_FOUND, "no such revision"),
            ApplyError::Unguarded(_) => (StatusCode::CONFLICT, "routes would lose their authentication"),
            ApplyError::Removes(_) => (StatusCode::CONFLICT, "resources would be removed"),
            ApplyError::NotHeld(_) => (StatusCode::CONFLICT, "nothing such is held"),
            ApplyError::NoResource => (StatusCode::BAD_REQUEST, "there is no resource"),
            ApplyError::Ended => (StatusCode::INTERNAL_SERVER_ERROR, "the change was not taken in"),
            ApplyError::NotNow(_) | ApplyError::NoRollout => (StatusCode::CONFLICT, "not now"),
        };
        let errors = match error {
            ApplyError::Compile(CompileError::Diagnostics(diagnostics)) => Some(diagnostics),
            _ => None,
        };
        Self { status, title, detail, errors }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        ApplyError::from(error).into()
    }
}

impl From<CompileError> for Problem {
    fn from(error: CompileError) -> Self {
        ApplyError::from(error).into()
    }
}

impl From<ExplainError> for Problem {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Compile(error) => error.into(),
            other => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "the question cannot be answered", other.to_string()),
        }
    }
}

impl From<Diagnostics> for Problem {
    fn from(diagnostics: Diagnostics) -> Self {
        ApplyError::from(diagnostics).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, title, detail, errors } = self;
        let document = Document { title, status: status.as_u16(), detail, errors };
        // Serialization of plain data cannot fail.
        let body = serde_json::to_string(&document).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, TYPE)], body).into_response()
    }
}
