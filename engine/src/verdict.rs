//! What the engine answers: the verdict on a message, and who gave it and why.

use std::{fmt, sync::Arc};

use crate::edits::Edits;

/// What is to happen to a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, with these edits.
    Continue(Edits),
    /// It ends here: nothing that earlier steps changed is applied, and the caller gets this.
    Deny(Response),
}

/// A verdict with its account, for logs and traces.
#[derive(Debug)]
pub struct Decision {
    /// What is to happen.
    pub verdict: Verdict,
    /// The step that denied, if one did.
    pub step: Option<Arc<str>>,
    /// Why it denied, in one snake_case word.
    pub reason: Option<&'static str>,
    /// The consumer that the caller proved to be.
    pub consumer: Option<Arc<str>>,
}

impl Decision {
    /// The account in `key=value` pairs, as Envoy's access log shows it. Every value is of a closed alphabet
    /// (names as the control plane admits them), so nothing needs quoting and no caller can forge a pair.
    pub fn account(&self, revision: &str, route: &str) -> String {
        let verdict = match self.verdict {
            Verdict::Continue(_) => "allow",
            Verdict::Deny(_) => "deny",
        };
        let mut account = format!("verdict={verdict}");
        let mut pair = |key: &str, value: Option<&dyn fmt::Display>| {
            if let Some(value) = value {
                account.push_str(&format!(" {key}={value}"));
            }
        };
        pair("step", self.step.as_ref().map(|step| step as _));
        pair("reason", self.reason.as_ref().map(|reason| reason as _));
        pair("consumer", self.consumer.as_ref().map(|consumer| consumer as _));
        pair("route", Some(&route));
        pair("revision", Some(&revision));
        account
    }
}

/// A step's refusal.
#[derive(Debug)]
pub(crate) struct Denial {
    pub(crate) reason: &'static str,
    pub(crate) response: Response,
}

/// An answer to the caller that the proxy gives by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(&'static str, &'static str)>,
    /// The body.
    pub body: String,
}

impl Response {
    /// An RFC 9457 problem document. Neither `title` nor `detail` may need escaping in JSON.
    pub fn problem(status: u16, title: &'static str, detail: &'static str) -> Self {
        Self {
            status,
            headers: vec![("content-type", "application/problem+json")],
            body: format!(r#"{{"title":"{title}","status":{status},"detail":"{detail}"}}"#),
        }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}
