//! `denyWith`: a user's own response for the refusals of a step.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use crate::{
    load_error::LoadError,
    strings::Strings,
    verdict::{HeaderPair, Response},
};

/// The parts of a refusal that replace the policy's own. Parts that are absent stay as the policy has them: clients
/// rely on headers such as a challenge or a time to wait.
#[derive(Debug)]
pub(crate) struct DenyWith {
    status: Option<u16>,
    headers: Vec<HeaderPair>,
    body: Option<Arc<str>>,
}

impl DenyWith {
    pub(crate) fn load(wire: &wire::DenyWith, strings: &Strings) -> Result<Self, LoadError> {
        Ok(Self {
            status: wire.status.map(|status| strings.status(status)).transpose()?,
            headers: strings.header_values(&wire.headers)?,
            body: wire.body.map(|body| strings.get(body)).transpose()?,
        })
    }

    pub(crate) fn apply(&self, mut response: Response) -> Response {
        response.status = self.status.unwrap_or(response.status);
        let mut replaced: Vec<&str> = self.headers.iter().map(|(name, _)| &**name).collect();
        if let Some(body) = &self.body {
            response.body = body.as_bytes().to_vec();
            replaced.push("content-type");
        }
        response.headers.retain(|(name, _)| !replaced.contains(&&**name));
        response.headers.extend(self.headers.iter().cloned());
        match &self.body {
            Some(body) if !body.is_empty() && !self.headers.iter().any(|(name, _)| &**name == "content-type") => {
                response.with_header("content-type", "text/plain; charset=utf-8")
            }
            _ => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(deny_with: &DenyWith, expect: (u16, &[(&str, &str)], &str)) {
        let own = Response::problem(401, "who?").with_header("www-authenticate", "Bearer");
        let answer = deny_with.apply(own);
        let headers: Vec<_> = answer.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!((answer.status, headers.as_slice(), str::from_utf8(&answer.body).unwrap()), expect);
    }

    #[test]
    fn replaces_what_is_said_and_keeps_the_rest() {
        let problem = r#"{"title":"Unauthorized","status":401,"detail":"who?"}"#;
        let kept = &[("content-type", "application/problem+json"), ("www-authenticate", "Bearer")];
        check(&DenyWith { status: None, headers: vec![], body: None }, (401, kept, problem));
        check(&DenyWith { status: Some(404), headers: vec![], body: None }, (404, kept, problem));
        let text = &[("www-authenticate", "Bearer"), ("content-type", "text/plain; charset=utf-8")];
        check(&DenyWith { status: None, headers: vec![], body: Some("no".into()) }, (401, text, "no"));
        let bare = &[("www-authenticate", "Bearer")];
        check(&DenyWith { status: None, headers: vec![], body: Some("".into()) }, (401, bare, ""));
        let headers = vec![("content-type".into(), "text/html".into()), ("www-authenticate".into(), "Custom".into())];
        let own = &[("content-type", "text/html"), ("www-authenticate", "Custom")];
        check(&DenyWith { status: None, headers, body: Some("<p>no".into()) }, (401, own, "<p>no"));
    }
}
