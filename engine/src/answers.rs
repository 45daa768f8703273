//! The default answers to requests whose chain cannot run (docs/rules.md, 4.3).

use crate::verdict::Response;

fn error_answer(status: u16, error: &str, code: &str, kind: &str) -> Response {
    let body = format!(r#"{{"error": "{error}", "code": "{code}"}}"#).into_bytes();
    Response { status, headers: Vec::new(), body }
        .with_header("content-type", "application/json")
        .with_header("x-policy-error", kind)
}

/// The answer of a route whose chain names a policy that nobody supports, or is not valid.
pub fn policy_not_supported() -> Response {
    error_answer(500, "Policy configuration error", "POLICY_NOT_SUPPORTED", "configuration")
}

/// The answer of a route while an agent that its chain needs is not healthy.
pub fn agent_unavailable() -> Response {
    error_answer(503, "Policy service temporarily unavailable", "AGENT_UNAVAILABLE", "temporary")
        .with_header("retry-after", "30")
}
