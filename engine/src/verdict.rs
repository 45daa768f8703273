//! The engine's answer: the verdict on a message, the step that gave it, and why.

use std::{borrow::Cow, fmt, sync::Arc};

use crate::{
    edits::{Allowance, Edits},
    event::Phase,
    header::{self, HeaderUse},
    record::Record,
    text::json,
};

/// What is to happen to a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message goes on, with these edits.
    Continue(Edits),
    /// The message is refused, and the caller gets this response. No edits of earlier steps are applied.
    Deny(Response),
    /// The message is answered here, without being refused.
    Respond(Response),
}

impl Verdict {
    /// Its name in logs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Continue(_) => "allow",
            Self::Deny(_) => "deny",
            Self::Respond(_) => "respond",
        }
    }
}

/// A verdict with its account, for logs and traces.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is to happen to the message.
    pub verdict: Verdict,
    /// The step that ended the message, if one did.
    pub step: Option<Arc<str>>,
    /// Why that step did so, in one snake_case word.
    pub reason: Option<&'static str>,
    /// The consumer that the caller proved to be.
    pub consumer: Option<Arc<str>>,
    /// What happened without ending the message.
    pub notes: Vec<Note>,
    /// The records for auditors.
    pub records: Vec<Record>,
}

/// Something that happened without ending the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What happened.
    pub kind: NoteKind,
    /// The step.
    pub step: Arc<str>,
    /// Why, in one snake_case word.
    pub reason: &'static str,
    /// The phase and the place of the first step that was left out because of it, if any was.
    pub left_out: Option<(Phase, usize)>,
}

impl Note {
    /// The `onFailure` that it went by. `None` if no step failed.
    pub(crate) const fn action(&self) -> Option<&'static str> {
        match self.kind {
            NoteKind::Failed => Some("continue"),
            NoteKind::Skipped => Some("skipRemaining"),
            NoteKind::Shadow => None,
        }
    }

    /// Its `key=value` pair in the account.
    pub(crate) fn pair(&self) -> String {
        format!("{}={self}", self.kind.key())
    }
}

/// The kinds of [`Note`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    /// A step failed, and the chain went on.
    Failed,
    /// A step failed, and the rest of the chain was left out.
    Skipped,
    /// A step in shadow mode would have ended the message.
    Shadow,
}

impl NoteKind {
    const fn key(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Shadow => "shadow",
        }
    }
}

impl Decision {
    /// The account in `key=value` pairs, for Envoy's access log. All values use a restricted alphabet (that of names),
    /// so nothing needs quoting and no caller can forge a pair.
    #[inline]
    pub fn account(&self, plan: &str, route: &str) -> String {
        let mut account = String::with_capacity(128);
        let mut pair = |key: &str, value: &str| {
            account.push_str(key);
            account.push_str(value);
        };
        pair("verdict=", self.verdict.word());
        for (key, value) in
            [(" step=", self.step.as_deref()), (" reason=", self.reason), (" consumer=", self.consumer.as_deref())]
        {
            if let Some(value) = value {
                pair(key, value);
            }
        }
        for note in &self.notes {
            pair(" ", &note.pair());
        }
        if let Verdict::Continue(edits) = &self.verdict
            && edits.conflicts() > 0
        {
            pair(" conflicts=", &edits.conflicts().to_string());
        }
        pair(" route=", &plain(route));
        pair(" plan=", plan);
        account
    }
}

/// A route's name without characters that could look like another pair. A route of Envoy's own may have any name.
#[inline]
fn plain(name: &str) -> Cow<'_, str> {
    let fits = |letter: char| letter.is_ascii_graphic() && letter != '=';
    if name.bytes().all(|byte| fits(char::from(byte))) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().map(|letter| if fits(letter) { letter } else { '_' }).collect())
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.step, self.reason)
    }
}

/// A step's refusal: the reason and the response.
#[derive(Debug)]
pub(crate) struct Denial {
    pub(crate) reason: &'static str,
    pub(crate) response: Response,
}

impl Denial {
    /// The denial of a body that is too large.
    pub(crate) fn body_too_large() -> Self {
        let response = Response::problem(413, "the request body is larger than this route takes");
        Self { reason: "body_too_large", response }
    }
}

impl Allowance {
    /// The decision on a request whose body turns out to be larger.
    pub fn exceeded(&self) -> Decision {
        let denial = Denial::body_too_large();
        Decision {
            verdict: Verdict::Deny(denial.response),
            step: Some(Arc::clone(&self.step)),
            reason: Some(denial.reason),
            consumer: self.consumer.clone(),
            notes: Vec::new(),
            records: Vec::new(),
        }
    }
}

/// A header's name, in lower case, and its value.
pub type HeaderPair = (Arc<str>, Arc<str>);

/// A response that the proxy itself gives to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<HeaderPair>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// A response with a problem document (RFC 9457).
    pub fn problem(status: u16, detail: &str) -> Self {
        Self::problem_with(status, detail, "")
    }

    /// Like [`Self::problem`], with further members, each written as JSON with a comma before it.
    pub(crate) fn problem_with(status: u16, detail: &str, members: &str) -> Self {
        let (title, detail) = (title(status), json::quote(detail));
        let body = format!(r#"{{"title":"{title}","status":{status},"detail":{detail}{members}}}"#);
        let headers = vec![("content-type".into(), "application/problem+json".into())];
        Self { status, headers, body: body.into_bytes() }
    }

    /// Checks a response, and writes its header names in lower case. `None` unless it has a final status and only
    /// headers that an answer may have.
    pub(crate) fn checked(mut self) -> Option<Self> {
        for (name, _) in &mut self.headers {
            if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                *name = name.to_ascii_lowercase().into();
            }
        }
        self.is_fit().then_some(self)
    }

    fn is_fit(&self) -> bool {
        let header =
            |(name, value): &HeaderPair| header::refusal(name, HeaderUse::Set).is_none() && header::is_value(value);
        (200..=599).contains(&self.status) && self.headers.iter().all(header)
    }

    /// Returns this response, or a 500 if it cannot be given. That should never happen: it is the last check of what
    /// goes to a caller.
    #[must_use]
    pub(crate) fn or_failure(self) -> Self {
        if self.is_fit() { self } else { Self::problem(500, "a policy gave an answer that cannot be sent") }
    }

    /// Adds those of these headers that it does not have yet.
    #[must_use]
    pub(crate) fn with_missing(mut self, headers: &[(Arc<str>, Arc<str>)]) -> Self {
        for (name, value) in headers {
            if !self.headers.iter().any(|(known, _)| known == name) {
                self.headers.push((Arc::clone(name), Arc::clone(value)));
            }
        }
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

const fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Refused",
    }
}
