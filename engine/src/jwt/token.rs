//! A token as it is written: three parts in base64url without padding, the first two of them JSON objects.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{algorithm::Algorithm, claims};
use crate::{
    cel::Map,
    json::{self, Limits, Object, Value},
};

const HEADER_LIMITS: Limits = Limits { depth: 4, values: 256 };

/// A token that is well-formed; nothing in it is proven.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) algorithm: Algorithm,
    /// `kid`.
    pub(super) key_id: Option<String>,
    pub(super) claims: Map,
    /// How many bytes of the token are signed.
    pub(super) signed: usize,
    pub(super) signature: Vec<u8>,
}

/// Why a text is not taken as a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    Malformed,
    Algorithm,
}

impl Token {
    pub(super) fn read(token: &[u8]) -> Result<Self, Unreadable> {
        let (header, payload, signature) = split(token).ok_or(Unreadable::Malformed)?;
        let header_text = decode(header)?;
        let (algorithm, key_id) = read_header(&object(&header_text, HEADER_LIMITS)?)?;
        let payload_text = decode(payload)?;
        let claims = claims::convert(object(&payload_text, claims::LIMITS)?);
        let signed = header.len().saturating_add(1).saturating_add(payload.len());
        Ok(Self { algorithm, key_id, claims, signed, signature: decode(signature)? })
    }
}

/// The three parts. As text: the search for a character is a fast one there, and what is not ASCII is no base64url.
fn split(token: &[u8]) -> Option<(&str, &str, &str)> {
    let (header, rest) = str::from_utf8(token).ok()?.split_once('.')?;
    let (payload, signature) = rest.split_once('.')?;
    (!signature.contains('.')).then_some((header, payload, signature))
}

/// `typ` and `cty` say nothing that matters here. A key inside a token (`jwk`, `jku`, `x5c`, `x5u`) is its sender's own,
/// so none of them is looked at.
fn read_header(header: &Object<'_>) -> Result<(Algorithm, Option<String>), Unreadable> {
    let key_id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) => Some(id.as_ref().to_owned()),
        Some(_) => return Err(Unreadable::Malformed),
    };
    // RFC 7515, section 4.1.11: who does not know what is critical must refuse. We know none.
    if header.get("crit").is_some() {
        return Err(Unreadable::Malformed);
    }
    let algorithm = header.get("alg").and_then(Value::as_str).ok_or(Unreadable::Malformed)?;
    Ok((Algorithm::named(algorithm).ok_or(Unreadable::Algorithm)?, key_id))
}

/// The alphabet without padding, no white space, and no bits that nothing stands in: one text has one spelling.
fn decode(part: &str) -> Result<Vec<u8>, Unreadable> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Unreadable::Malformed)
}

fn object(text: &[u8], limits: Limits) -> Result<Object<'_>, Unreadable> {
    match json::parse(text, limits) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(Unreadable::Malformed),
    }
}
