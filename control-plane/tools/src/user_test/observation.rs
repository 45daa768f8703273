//! The observed result of a request, and its comparison with the expected one.

use std::{collections::BTreeMap, fmt};

use postern_compile::wasm::{HeaderMap, Stream};

use super::Expect;
use crate::explain::EnvoyAnswer;

/// The observed result of a request.
pub(super) struct Observation {
    /// The filter's account of the decision: verdict, step, reason.
    account: BTreeMap<String, String>,
    status: Option<String>,
    answer: HeaderMap,
    upstream: Option<HeaderMap>,
    body: Option<String>,
    /// Why Envoy answered by itself.
    unrouted: Option<String>,
}

/// A field whose value is not the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The name of the field.
    pub what: String,
    /// The expected value; `None` if it must be absent.
    pub expected: Option<String>,
    /// The observed value; `None` if it is absent.
    pub found: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.as_ref().map_or("nothing".to_owned(), |value| format!("`{value}`"));
        write!(formatter, "{}: expected {}, got {}", self.what, shown(&self.expected), shown(&self.found))
    }
}

impl Observation {
    pub(super) fn of(stream: &Stream) -> Self {
        let account = String::from_utf8_lossy(stream.property("postern").unwrap_or_default()).into_owned();
        let account = account.split(' ').filter_map(|word| word.split_once('='));
        let account = account.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        match stream.local_response() {
            Some(answer) => Self {
                account,
                status: Some(answer.status.to_string()),
                answer: answer.headers.clone(),
                upstream: None,
                body: Some(String::from_utf8_lossy(&answer.body).into_owned()),
                unrouted: None,
            },
            None => Self {
                account,
                status: text(stream.response().headers(), ":status"),
                answer: stream.response().headers().clone(),
                upstream: Some(stream.request().headers().clone()),
                body: None,
                unrouted: None,
            },
        }
    }

    /// A request that Envoy answers before any step.
    pub(super) fn unrouted(answer: &EnvoyAnswer) -> Self {
        Self {
            account: BTreeMap::from([("verdict".to_owned(), "unrouted".to_owned())]),
            status: Some(answer.status.to_string()),
            answer: HeaderMap::default(),
            upstream: None,
            body: None,
            unrouted: Some(answer.reason.clone()),
        }
    }

    /// What became of the request: "deny by step `apiKeyAuth` (key_missing), status 401".
    pub(super) fn decided(&self) -> String {
        let account = |name: &str| self.account.get(name);
        let mut text = account("verdict").map_or("no policy on this route", String::as_str).to_owned();
        text.extend(account("step").map(|step| format!(" by step `{step}`")));
        text.extend(account("reason").or(self.unrouted.as_ref()).map(|reason| format!(" ({reason})")));
        text.extend(account("consumer").map(|consumer| format!(", consumer `{consumer}`")));
        text.extend(self.status.as_ref().map(|status| format!(", status {status}")));
        text
    }

    /// All fields that do not have the expected value.
    pub(super) fn compare(&self, expect: &Expect) -> Vec<Mismatch> {
        let account = |name: &str| self.account.get(name).cloned();
        let verdict = account("verdict").or_else(|| Some("none".to_owned()));
        let mut found = Vec::new();
        let mut check = |what: &str, expected: Option<&String>, value: Option<String>| {
            if expected.is_some() && expected != value.as_ref() {
                found.push(Mismatch { what: what.to_owned(), expected: expected.cloned(), found: value });
            }
        };
        check("verdict", expect.verdict.as_ref(), verdict);
        check("step", expect.step.as_ref(), account("step"));
        check("reason", expect.reason.as_ref(), account("reason"));
        check("status", expect.status.map(|status| status.to_string()).as_ref(), self.status.clone());
        check("body", expect.body.as_ref(), self.body.clone());
        found.extend(headers("header", &expect.headers, Some(&self.answer)));
        found.extend(headers("upstream header", &expect.upstream_headers, self.upstream.as_ref()));
        found
    }
}

fn headers(what: &str, expect: &BTreeMap<String, Option<String>>, headers: Option<&HeaderMap>) -> Vec<Mismatch> {
    let compare = |(name, expected): (&String, &Option<String>)| {
        let what = format!("{what} `{name}`");
        let Some(headers) = headers else {
            let found = Some("no request reached the upstream".to_owned());
            return Some(Mismatch { what, expected: expected.clone(), found });
        };
        let found = text(headers, &name.to_ascii_lowercase());
        (found != *expected).then(|| Mismatch { what, expected: expected.clone(), found })
    };
    expect.iter().filter_map(compare).collect()
}

/// All values of a header, joined.
fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let values: Vec<_> = headers.all(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}
