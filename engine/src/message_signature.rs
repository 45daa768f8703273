//! Signatures of HTTP requests (RFC 9421) and digests of their bodies (RFC 9530): reading them, and building the text
//! that was signed. Who may sign, and when, is decided by the policy. Sections are those of RFC 9421.
//! This is written by hand because it must be strict, on bytes, and bounded in the filter; HMAC and SHA-2 are libraries'.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

use crate::text::{
    fields::{Bare, Dictionary, Item, MemberValue, Parameters, write_list},
    split_path,
};

/// The longest `Signature-Input`, `Signature` or `Content-Digest` that is read.
const MAX_SIZE: usize = 8 << 10;

/// A request that is signed: the values of a header or pseudo-header, by its name in lower case.
pub(crate) trait Message {
    fn values(&self, name: &str) -> Vec<&[u8]>;
}

/// One signature of a request.
#[derive(Debug)]
pub(crate) struct Signature {
    components: Vec<Item>,
    parameters: Parameters,
    pub(crate) code: Vec<u8>,
}

/// Why there is no signature that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    Missing,
    Malformed,
    Ambiguous,
    /// It covers a component that this implementation does not support.
    Unsupported,
    /// It covers a component that the request does not have.
    Absent,
}

impl Signature {
    /// Finds the signature with this label or, without a label, the only signature.
    pub(crate) fn find(message: &impl Message, label: Option<&str>) -> Result<Self, Problem> {
        let [inputs, codes] = [dictionary(message, "signature-input")?, dictionary(message, "signature")?];
        let label = match (label, inputs.0.as_slice()) {
            (_, []) => return Err(Problem::Missing),
            (Some(label), _) => label.to_owned(),
            (None, [(label, _)]) => label.clone(),
            (None, _) => return Err(Problem::Ambiguous),
        };
        let [input, code] = [inputs.take(&label).ok_or(Problem::Missing)?, codes.take(&label).ok_or(Problem::Missing)?];
        let (MemberValue::List(components), MemberValue::Item(Bare::Bytes(code))) = (input.value, code.value) else {
            return Err(Problem::Malformed);
        };
        let signature = Self { components, parameters: input.parameters, code };
        if signature.is_well_formed() { Ok(signature) } else { Err(Problem::Malformed) }
    }

    /// Whether every component is a string and occurs once, and parameters have their types.
    fn is_well_formed(&self) -> bool {
        let strings = self.components.iter().all(|item| matches!(item.bare, Bare::String(_)));
        let mut places = self.components.iter().enumerate();
        let once =
            places.all(|(place, item)| self.components.iter().skip(place.saturating_add(1)).all(|other| other != item));
        let typed = self.parameters.0.iter().all(|(name, value)| match name.as_str() {
            "created" | "expires" => matches!(value, Bare::Integer(_)),
            "keyid" | "alg" | "nonce" | "tag" => matches!(value, Bare::String(_)),
            _ => !matches!(value, Bare::Decimal(_)),
        });
        strings && once && typed
    }

    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        match self.parameters.get(name) {
            Some(Bare::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.parameters.get(name) {
            Some(Bare::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether the signature covers a component, perhaps as part of another one.
    pub(crate) fn covers(&self, component: &str) -> bool {
        let whole = |name: &str| {
            self.components
                .iter()
                .any(|item| matches!(&item.bare, Bare::String(text) if text == name) && item.parameters.0.is_empty())
        };
        whole(component)
            || match component {
                "@path" | "@query" => whole("@target-uri") || whole("@request-target"),
                "@authority" | "@scheme" | "@request-target" => whole("@target-uri"),
                _ => false,
            }
    }

    /// The signature base: the text that was signed (section 2.5).
    pub(crate) fn base(&self, message: &impl Message) -> Result<Vec<u8>, Problem> {
        let mut base = Vec::with_capacity(512);
        for item in &self.components {
            let Bare::String(name) = &item.bare else { return Err(Problem::Malformed) };
            if !item.parameters.0.is_empty() {
                return Err(Problem::Unsupported);
            }
            let mut line = String::new();
            item.write(&mut line);
            base.extend_from_slice(line.as_bytes());
            base.extend_from_slice(b": ");
            base.extend(component(message, name)?);
            base.push(b'\n');
        }
        let parameters = write_list(&self.components, &self.parameters);
        base.extend_from_slice(b"\"@signature-params\": ");
        base.extend_from_slice(parameters.as_bytes());
        Ok(base)
    }

    /// Whether the signature was made with this secret. Takes the same time whatever part of it is right.
    pub(crate) fn is_made_with(&self, secret: &[u8], base: &[u8]) -> bool {
        let code = Hmac::<Sha256>::new_from_slice(secret).map(|code| code.chain_update(base));
        code.is_ok_and(|code| code.verify_slice(&self.code).is_ok())
    }
}

fn dictionary(message: &impl Message, name: &str) -> Result<Dictionary, Problem> {
    let lines = message.values(name);
    match lines.iter().map(|line| line.len()).sum::<usize>() {
        0 => Err(Problem::Missing),
        size if size > MAX_SIZE => Err(Problem::Malformed),
        _ => Dictionary::read(&lines).ok_or(Problem::Malformed),
    }
}

/// The value of a component (section 2).
fn component(message: &impl Message, name: &str) -> Result<Vec<u8>, Problem> {
    let one = |name: &str| match message.values(name).as_slice() {
        [value] => Ok(value.to_vec()),
        _ => Err(Problem::Absent),
    };
    match name {
        "@method" => one(":method"),
        "@scheme" => one(":scheme").map(|scheme| scheme.to_ascii_lowercase()),
        "@authority" => Ok(authority(&one(":authority")?, &one(":scheme")?)),
        "@request-target" => one(":path"),
        "@target-uri" => Ok([one(":scheme")?, b"://".to_vec(), one(":authority")?, one(":path")?].concat()),
        "@path" => one(":path").map(|path| match split_path(&path).0 {
            [] => b"/".to_vec(),
            path => path.to_vec(),
        }),
        "@query" => one(":path").map(|path| [b"?", split_path(&path).1.unwrap_or_default()].concat()),
        _ if !name.bytes().all(is_name_byte) => Err(Problem::Unsupported),
        _ => match message.values(name).as_slice() {
            [] => Err(Problem::Absent),
            values => Ok(values.iter().map(|value| value.trim_ascii()).collect::<Vec<_>>().join(&b", "[..])),
        },
    }
}

/// Whether a byte may be in a header's name. Those of pseudo-headers and upper case are not allowed.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The normal form of an authority: in lower case and without the default port of its scheme (section 2.2.3).
fn authority(authority: &[u8], scheme: &[u8]) -> Vec<u8> {
    let port: &[u8] = if scheme.eq_ignore_ascii_case(b"https") { b":443" } else { b":80" };
    authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase()
}

/// Whether `Content-Digest` fits a body: it has at least one algorithm that we support, and the digests of all of these
/// are right.
pub(crate) fn is_digest_of(lines: &[&[u8]], body: &[u8]) -> bool {
    if lines.iter().map(|line| line.len()).sum::<usize>() > MAX_SIZE {
        return false;
    }
    let Some(digests) = Dictionary::read(lines) else { return false };
    let mut known = 0_usize;
    let right = digests.0.iter().all(|(algorithm, member)| {
        let expect = match algorithm.as_str() {
            "sha-256" => Sha256::digest(body).to_vec(),
            "sha-512" => Sha512::digest(body).to_vec(),
            _ => return true,
        };
        known = known.saturating_add(1);
        matches!(&member.value, MemberValue::Item(Bare::Bytes(found)) if *found == expect)
    });
    right && known > 0
}

/// A key that nobody has. It is used for an unknown `keyid`, which then takes as long as a known one.
pub(crate) const NOBODY: &[u8] = b"this key belongs to nobody at all";

/// Decodes a secret from base64. `None` if it is of another form.
pub fn decode_secret(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
