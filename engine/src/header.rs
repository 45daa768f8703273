//! The headers that steps may edit and the values that they may set, as checked types: [`Edits`](crate::edits::Edits)
//! and answers take nothing else.
//!
//! Headers that frame a message or a connection belong to the host. A header with another length than the body has
//! would let a caller send a second request that nobody checks.

use std::sync::Arc;

/// Headers that frame a message (RFC 9112, section 6), belong to a connection (RFC 9110, section 7.6.1; RFC 9113,
/// section 8.2.2) or say how a body is sent (RFC 9110, sections 10.1.1, 10.1.4 and 6.6.2).
const FRAMING: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];

/// The prefix of headers that Envoy takes for instructions: time-outs, retries, paths, tracing, who is internal, which
/// host is unhealthy.
const ENVOY: &str = "x-envoy-";

/// What a step does to a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderUse {
    /// It sets the header, or adds a value.
    Set,
    /// It removes the header.
    Remove,
}

/// Why a step cannot do this to a header of this name, which is in lower case; `None` if it can.
///
/// `x-envoy-` headers may be removed: without them, Envoy goes by its own configuration.
pub fn refusal(name: &str, how: HeaderUse) -> Option<&'static str> {
    let token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.starts_with(':') {
        Some("a pseudo-header is part of the message itself")
    } else if name == "host" {
        Some("the host is part of the request's target: `rewrite` changes it")
    } else if name.is_empty() || !name.bytes().all(token) {
        Some("it is not the name of a header in lower case")
    } else if FRAMING.contains(&name) {
        Some("it frames a message or a connection, which only the proxy may do")
    } else if how == HeaderUse::Set && name.starts_with(ENVOY) {
        Some("Envoy takes it for an instruction: `Timeout` and `Gateway` say how requests are sent")
    } else {
        None
    }
}

/// Whether a header may have this value: no control characters but the tab, so that no value can begin another header
/// or message.
pub fn is_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control())
}

/// The name of a header that a step may set, add to and remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(Arc<str>);

/// The name of a header that a step may remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemovableName(Arc<str>);

/// What a header may be set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value(Arc<str>);

impl Name {
    /// Checks a name. `Err` says why it cannot be used.
    pub(crate) fn new(name: Arc<str>) -> Result<Self, &'static str> {
        refusal(&name, HeaderUse::Set).map_or(Ok(Self(name)), Err)
    }

    /// A name that is part of a policy's own code.
    pub(crate) fn built_in(name: &'static str) -> Self {
        debug_assert!(refusal(name, HeaderUse::Set).is_none(), "`{name}` is not to be edited");
        Self(name.into())
    }

    pub(crate) fn get(&self) -> &Arc<str> {
        &self.0
    }
}

impl RemovableName {
    /// Checks a name. `Err` says why it cannot be used.
    pub(crate) fn new(name: Arc<str>) -> Result<Self, &'static str> {
        refusal(&name, HeaderUse::Remove).map_or(Ok(Self(name)), Err)
    }

    pub(crate) fn get(&self) -> &Arc<str> {
        &self.0
    }
}

impl Value {
    /// Checks a value. `None` if no header may have it.
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Option<Self> {
        let text = text.into();
        is_value(&text).then_some(Self(text))
    }

    /// A value that says who the caller is. `None` if it is empty or has white space around it: such white space is not
    /// part of a value on the wire (RFC 9110, section 5.5), so the upstream would read another value than a condition
    /// did.
    pub(crate) fn of_caller(text: &str) -> Option<Self> {
        Self::new(text).filter(|_| !text.is_empty() && text.trim().len() == text.len())
    }

    /// A value that is part of a policy's own code.
    pub(crate) fn built_in(text: &'static str) -> Self {
        debug_assert!(is_value(text), "no value: {text:?}");
        Self(text.into())
    }

    /// Makes a value of a text by leaving out the characters that no header may have.
    pub(crate) fn lossy(text: String) -> Self {
        Self::new(text.as_str())
            .unwrap_or_else(|| Self(text.replace(|letter: char| letter.is_ascii_control(), "").into()))
    }

    pub(crate) fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    pub(crate) fn get(&self) -> &Arc<str> {
        &self.0
    }
}

/// The name of a header that can be removed.
pub(crate) trait Removable {
    fn name(&self) -> &Arc<str>;
}

impl Removable for Name {
    #[inline]
    fn name(&self) -> &Arc<str> {
        &self.0
    }
}

impl Removable for RemovableName {
    #[inline]
    fn name(&self) -> &Arc<str> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], set: bool, remove: bool) {
        for name in names {
            let fits = (Name::new((*name).into()).is_ok(), RemovableName::new((*name).into()).is_ok());
            assert_eq!(fits, (set, remove), "for `{name}`");
        }
    }

    #[test]
    fn leaves_what_frames_messages_and_connections_alone() {
        check(&FRAMING, false, false);
        check(&["host", ":path", ":authority", ":method", ":scheme", ":status", ":protocol", ":x", ":"], false, false);
        check(&["", "a b", "X-A", "a:b", "a\r", "a\0", "é", "content-length\n", "content-length "], false, false);
        check(&["x-envoy-upstream-rq-timeout-ms", "x-envoy-original-path", "x-envoy-internal"], false, true);
        check(
            &["x-a", "authorization", "cookie", "x-envoyish", "content-type", "x-request-id", "a!#$%&'*+.^_`|~1"],
            true,
            true,
        );
    }

    #[test]
    fn takes_no_value_that_starts_a_line() {
        for text in ["a\r", "a\nb: c", "\0", "\u{1}", "\u{7f}", "a\u{b}"] {
            assert_eq!(Value::new(text), None, "for {text:?}");
            assert!(is_value(Value::lossy(text.to_owned()).get()));
        }
        for text in ["", "a b\tc", "é", "\u{85}\u{2028}"] {
            assert!(Value::new(text).is_some(), "for {text:?}");
        }
    }

    #[test]
    fn says_nothing_about_a_caller_that_an_upstream_reads_otherwise() {
        for text in ["", " ", " a", "a ", "\ta", "a\t", "\u{a0}a", "a\n"] {
            assert_eq!(Value::of_caller(text), None, "for {text:?}");
        }
        for text in ["a", "a b", "é"] {
            assert!(Value::of_caller(text).is_some(), "for {text:?}");
        }
    }
}
