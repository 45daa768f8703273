//! A token as it is written: three parts in base64url without padding, the first two of them JSON objects.

use std::sync::{Arc, Mutex, PoisonError};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use memchr::memchr;

use super::{algorithm::Algorithm, cache::is_equal, claims};
use crate::json::{self, Limits, Object, Value};

const HEADER_LIMITS: Limits = Limits { depth: 4, values: 256 };

/// A well-formed token. Nothing in it is proven.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) algorithm: Algorithm,
    /// The header's `kid`.
    pub(super) key_id: Option<Arc<str>>,
    /// The header's `typ`, in lower case and without `application/`; empty if absent.
    pub(super) media_type: Arc<str>,
    /// The claims, as JSON.
    payload: Vec<u8>,
    /// How many bytes of the token are signed.
    pub(super) signed: usize,
    pub(super) signature: Vec<u8>,
}

/// The header of a token.
#[derive(Debug, Clone)]
struct Header {
    algorithm: Algorithm,
    key_id: Option<Arc<str>>,
    media_type: Arc<str>,
}

/// The header that was read last, with its contents. The tokens of an issuer all have the same header as long as it
/// uses the same key.
#[derive(Debug, Default)]
pub(super) struct LastHeader(Mutex<Option<(Box<[u8]>, Header)>>);

impl LastHeader {
    fn read(&self, header: &[u8]) -> Result<Header, Unreadable> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, read)) = last.as_ref().filter(|(text, _)| is_equal(text, header)) {
            return Ok(read.clone());
        }
        let text = decode(header)?;
        let read = read_header(&object(&text, HEADER_LIMITS)?)?;
        *last = Some((header.into(), read.clone()));
        Ok(read)
    }
}

/// Why a text is refused as a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    Malformed,
    Algorithm,
}

impl Token {
    pub(super) fn read(token: &[u8], last: &LastHeader) -> Result<Self, Unreadable> {
        let (header, payload, signature) = split(token).ok_or(Unreadable::Malformed)?;
        let Header { algorithm, key_id, media_type } = last.read(header)?;
        let signed = header.len().saturating_add(1).saturating_add(payload.len());
        Ok(Self { algorithm, key_id, media_type, payload: decode(payload)?, signed, signature: decode(signature)? })
    }

    /// Reads the claims.
    pub(super) fn claims(&self) -> Result<Object<'_>, Unreadable> {
        object(&self.payload, claims::LIMITS)
    }
}

/// The three parts of a token; `None` for any other number. A token of five parts is encrypted (RFC 7516).
fn split(token: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (header, rest) = split_at_dot(token)?;
    let (payload, signature) = split_at_dot(rest)?;
    memchr(b'.', signature).is_none().then_some((header, payload, signature))
}

fn split_at_dot(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (before, dot_and_rest) = text.split_at_checked(memchr(b'.', text)?)?;
    Some((before, dot_and_rest.get(1..)?))
}

/// Reads the header. `cty` does not matter here. A key inside a token (`jwk`, `jku`, `x5c`, `x5u`) is the sender's own
/// choice, so it is ignored.
fn read_header(header: &Object<'_>) -> Result<Header, Unreadable> {
    let key_id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) => Some(id.as_ref().into()),
        Some(_) => return Err(Unreadable::Malformed),
    };
    // RFC 7515, section 4.1.11: who does not know what is critical must refuse. We know none.
    if header.get("crit").is_some() {
        return Err(Unreadable::Malformed);
    }
    let algorithm = header.get("alg").and_then(Value::as_str).ok_or(Unreadable::Malformed)?;
    let algorithm = Algorithm::named(algorithm).ok_or(Unreadable::Algorithm)?;
    Ok(Header { algorithm, key_id, media_type: media_type(header)? })
}

/// The `typ` of a header: a media type in any case, usually without `application/` (RFC 7515, section 4.1.9).
fn media_type(header: &Object<'_>) -> Result<Arc<str>, Unreadable> {
    match header.get("typ") {
        None => Ok("".into()),
        Some(Value::String(text)) => {
            let lower = text.to_ascii_lowercase();
            let short = lower.strip_prefix("application/").unwrap_or(&lower);
            if short.is_empty() { Err(Unreadable::Malformed) } else { Ok(short.into()) }
        }
        Some(_) => Err(Unreadable::Malformed),
    }
}

/// Decodes base64url. Padding, white space and unused bits that are set are errors, so that each text has one spelling.
fn decode(part: &[u8]) -> Result<Vec<u8>, Unreadable> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Unreadable::Malformed)
}

fn object(text: &[u8], limits: Limits) -> Result<Object<'_>, Unreadable> {
    match json::parse(text, limits) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(Unreadable::Malformed),
    }
}
