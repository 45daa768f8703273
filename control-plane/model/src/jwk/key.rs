//! Reads one JSON Web Key.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_base::diagnostic::quote;
use serde_json::{Map, Value as Json};

use super::{Algorithm, Key, Material, Secret, der};

/// The smallest accepted RSA key (RFC 7518, section 3.3).
const FEWEST_RSA_BITS: usize = 2048;
/// The largest accepted RSA key, since larger ones cost too much for each request.
const MOST_RSA_BITS: usize = 4096;
/// The shortest key for HMAC with SHA-256: the size of the digest (RFC 7518, section 3.2).
const SHORTEST_SECRET: usize = 32;
const LONGEST_SECRET: usize = 1024;
const LONGEST_ID: usize = 256;
/// The members of private keys (RFC 7518, sections 6.2.2 and 6.3.2; RFC 8037, section 2).
const PRIVATE: &[&str] = &["d", "p", "q", "dp", "dq", "qi", "oth"];
const KEY_TYPES: &[&str] = &["RSA", "EC", "OKP", "oct"];

/// A fault of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The member in question. `None` for the key as a whole.
    pub member: Option<&'static str>,
    /// What is wrong. It repeats no member except `kty`, `crv`, `alg` and `use`.
    pub message: String,
}

/// Reads a key from a JSON object, or returns all faults.
pub fn read_key(json: &Json) -> Result<Key, Vec<Fault>> {
    let Json::Object(members) = json else {
        return Err(vec![Fault { member: None, message: "expected a mapping".to_owned() }]);
    };
    let mut reading = Reading { members, faults: Vec::new() };
    reading.purpose();
    reading.no_private_members();
    let id = reading.id();
    let material = reading.material();
    let algorithms = material.as_ref().and_then(|material| reading.algorithms(material));
    match (material, algorithms) {
        (Some(material), Some(algorithms)) if reading.faults.is_empty() => {
            let key = Key { id, algorithms, material };
            let message = "its numbers make no key of this type".to_owned();
            if key.is_loadable() { Ok(key) } else { Err(vec![Fault { member: None, message }]) }
        }
        _ => Err(reading.faults),
    }
}

struct Reading<'a> {
    members: &'a Map<String, Json>,
    faults: Vec<Fault>,
}

impl<'a> Reading<'a> {
    /// Checks that the key is for signatures (RFC 7517, sections 4.2 and 4.3).
    fn purpose(&mut self) {
        if let Some(purpose) = self.text("use").filter(|purpose| *purpose != "sig") {
            self.fault("use", format!("expected `sig`, found {}: this key checks no signatures", quote(purpose)));
        }
        match self.members.get("key_ops") {
            None => {}
            Some(Json::Array(operations)) if operations.iter().any(|operation| operation == "verify") => {}
            Some(Json::Array(_)) => self.fault("key_ops", "`verify` is not among them: this key checks no signatures"),
            Some(_) => self.fault("key_ops", "expected a list"),
        }
    }

    fn no_private_members(&mut self) {
        if self.members.get("kty").and_then(Json::as_str) == Some("oct") {
            return;
        }
        for member in PRIVATE {
            if self.members.contains_key(*member) {
                self.fault(member, "a private key: whoever reads it can sign, so only its public part belongs here");
            }
        }
    }

    fn id(&mut self) -> Option<String> {
        let id = self.text("kid")?;
        if id.is_empty() || id.len() > LONGEST_ID {
            self.fault("kid", format!("expected 1 to {LONGEST_ID} bytes"));
        }
        Some(id.to_owned())
    }

    fn material(&mut self) -> Option<Material> {
        match self.required_text("kty")? {
            "RSA" => self.rsa(),
            "EC" => self.elliptic_curve(),
            "OKP" => self.edwards(),
            "oct" => self.secret(),
            other => self.unknown("kty", other, KEY_TYPES),
        }
    }

    fn rsa(&mut self) -> Option<Material> {
        // A leading zero violates RFC 7518, section 6.3.1.1, but occurs in practice.
        let (modulus, exponent) = (self.bytes("n"), self.bytes("e"));
        let (modulus, exponent) = (significant(modulus.as_deref()?), significant(exponent.as_deref()?));
        let bits = bit_size(modulus);
        if !(FEWEST_RSA_BITS..=MOST_RSA_BITS).contains(&bits) {
            self.fault("n", format!("expected {FEWEST_RSA_BITS} to {MOST_RSA_BITS} bits, found {bits}"));
        } else if modulus.last().is_none_or(|last| last % 2 == 0) {
            self.fault("n", "an even number is no modulus");
        }
        let value = exponent.iter().fold(0_u64, |value, byte| (value << 8) | u64::from(*byte));
        if exponent.len() > 4 || value < 3 || value % 2 == 0 {
            self.fault("e", "expected an odd number of 3 to 4294967295");
        }
        Some(Material::Rsa(der::rsa_public_key(modulus, exponent)))
    }

    fn elliptic_curve(&mut self) -> Option<Material> {
        let (curve, x, y) = (self.required_text("crv"), self.bytes("x"), self.bytes("y"));
        let (make, size): (fn(Vec<u8>) -> Material, _) = match curve? {
            "P-256" => (Material::P256, 32),
            "P-384" => (Material::P384, 48),
            other => return self.unknown("crv", other, &["P-256", "P-384"]),
        };
        let (x, y) = (self.sized("x", x?, size), self.sized("y", y?, size));
        // The prefix 4 means an uncompressed point (SEC 1, section 2.3.3).
        Some(make([vec![4], x?, y?].concat()))
    }

    fn edwards(&mut self) -> Option<Material> {
        let (curve, x) = (self.required_text("crv"), self.bytes("x"));
        match curve? {
            "Ed25519" => self.sized("x", x?, 32).map(Material::Ed25519),
            other => self.unknown("crv", other, &["Ed25519"]),
        }
    }

    fn secret(&mut self) -> Option<Material> {
        let secret = self.bytes("k")?;
        if !(SHORTEST_SECRET..=LONGEST_SECRET).contains(&secret.len()) {
            let size = secret.len();
            self.fault("k", format!("expected {SHORTEST_SECRET} to {LONGEST_SECRET} bytes, found {size}"));
        }
        Some(Material::Secret(Secret(secret)))
    }

    /// The algorithms of the material's family, or only the one in `alg`.
    fn algorithms(&mut self, material: &Material) -> Option<Vec<Algorithm>> {
        let family: &[(&str, Algorithm)] = match material {
            Material::Rsa(_) => &[
                ("RS256", Algorithm::Rs256),
                ("RS384", Algorithm::Rs384),
                ("RS512", Algorithm::Rs512),
                ("PS256", Algorithm::Ps256),
            ],
            Material::P256(_) => &[("ES256", Algorithm::Es256)],
            Material::P384(_) => &[("ES384", Algorithm::Es384)],
            // RFC 9864 adds a second name.
            Material::Ed25519(_) => &[("EdDSA", Algorithm::EdDsa), ("Ed25519", Algorithm::EdDsa)],
            Material::Secret(_) => &[("HS256", Algorithm::Hs256)],
        };
        let chosen = self.text("alg");
        let fits = |(name, _): &&(&str, Algorithm)| chosen.is_none_or(|chosen| chosen == *name);
        let mut algorithms: Vec<_> = family.iter().filter(fits).map(|(_, algorithm)| *algorithm).collect();
        algorithms.dedup();
        match chosen {
            Some(chosen) if algorithms.is_empty() => {
                let names: Vec<_> = family.iter().map(|(name, _)| *name).collect();
                self.unknown("alg", chosen, &names)
            }
            _ => Some(algorithms),
        }
    }

    fn sized(&mut self, member: &'static str, bytes: Vec<u8>, size: usize) -> Option<Vec<u8>> {
        if bytes.len() != size {
            self.fault(member, format!("expected {size} bytes, found {}", bytes.len()));
            return None;
        }
        Some(bytes)
    }

    /// Decodes a member in base64url without padding (RFC 7515, section 2).
    fn bytes(&mut self, member: &'static str) -> Option<Vec<u8>> {
        let text = self.required_text(member)?;
        let decoded = URL_SAFE_NO_PAD.decode(text).ok();
        if decoded.is_none() {
            self.fault(member, "expected base64url without padding");
        }
        decoded
    }

    fn required_text(&mut self, member: &'static str) -> Option<&'a str> {
        if !self.members.contains_key(member) {
            self.fault(member, format!("missing required member {}", quote(member)));
        }
        self.text(member)
    }

    fn text(&mut self, member: &'static str) -> Option<&'a str> {
        let json = self.members.get(member)?;
        if !json.is_string() {
            self.fault(member, "expected a string");
        }
        json.as_str()
    }

    fn unknown<T>(&mut self, member: &'static str, found: &str, known: &[&str]) -> Option<T> {
        let quoted: Vec<_> = known.iter().map(|name| quote(name)).collect();
        self.fault(member, format!("{} is not supported here: expected {}", quote(found), quoted.join(" or ")));
        None
    }

    fn fault(&mut self, member: &'static str, message: impl Into<String>) {
        self.faults.push(Fault { member: Some(member), message: message.into() });
    }
}

fn significant(bytes: &[u8]) -> &[u8] {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    bytes.get(first..).unwrap_or_default()
}

fn bit_size(number: &[u8]) -> usize {
    let unused = number.first().map_or(0, |first| first.leading_zeros());
    (number.len() * 8).saturating_sub(unused as usize)
}
