//! JSON Web Keys (RFC 7517, 7518 and 8037): a user's or an issuer's JSON becomes keys that signatures can be checked
//! with, or an account of what is wrong with it. No member of a key is ever repeated in an error, but for its `kid`.

mod der;
mod key;
mod set;
mod wire;

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

pub use self::{
    key::{Fault, read_key},
    set::{KeySet, MOST_KEYS, SetError, Skipped, mixes_secrets, repeated},
};

/// A signature algorithm that tokens may use, by its name in RFC 7518, section 3.1, or RFC 8037, section 3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "their names say it")]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
    #[serde(rename = "EdDSA")]
    EdDsa,
    Hs256,
}

impl Algorithm {
    /// The names of all of them.
    pub const NAMES: &'static [&'static str] =
        &["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA", "HS256"];

    /// Whether whoever can check a signature can make one too.
    pub fn is_symmetric(self) -> bool {
        self == Self::Hs256
    }
}

/// A key that signatures of tokens are checked with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Key {
    /// What tokens call it: `kid`.
    pub id: Option<String>,
    /// What it may check: at least one, all of the material's own family, each once and in order.
    pub algorithms: Vec<Algorithm>,
    /// The key itself.
    pub material: Material,
}

impl Key {
    /// The same key for some algorithms only, if one of its own is among them. None given are all.
    pub fn restricted_to(&self, algorithms: &[Algorithm]) -> Option<Self> {
        let kept = |algorithm: &Algorithm| algorithms.is_empty() || algorithms.contains(algorithm);
        let kept: Vec<_> = self.algorithms.iter().copied().filter(kept).collect();
        (!kept.is_empty()).then(|| Self { algorithms: kept, ..self.clone() })
    }

    /// Whether it is a shared secret.
    pub fn is_secret(&self) -> bool {
        matches!(self.material, Material::Secret(_))
    }
}

/// What a key consists of.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Material {
    /// A DER SubjectPublicKeyInfo: 2048 to 4096 bits.
    Rsa(Vec<u8>),
    /// A SEC1 point without compression.
    P256(Vec<u8>),
    /// The same on the larger curve.
    P384(Vec<u8>),
    /// 32 bytes.
    Ed25519(Vec<u8>),
    /// At least 32 bytes.
    Secret(Secret),
}

impl fmt::Debug for Material {
    /// Without its bytes: they are long, and can be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa(_) => "Rsa",
            Self::P256(_) => "P256",
            Self::P384(_) => "P384",
            Self::Ed25519(_) => "Ed25519",
            Self::Secret(_) => "Secret",
        })
    }
}

/// A shared secret. It shows and serializes as no more than its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The secret itself, for a plan.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(Sha256::digest(&self.0)))
    }
}
