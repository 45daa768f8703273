//! Percent-encoding of parts of URIs.

use std::fmt::Write as _;

/// A text as one part of a URI: all but letters, digits and a few marks are percent-encoded.
pub fn escaped(text: &str) -> String {
    escaped_bytes(text.as_bytes())
}

/// Like [`escaped`], for bytes that may be no text.
pub fn escaped_bytes(bytes: &[u8]) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for byte in bytes.iter().copied() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(byte.into()),
            // Writing to a string never fails.
            _ => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}
