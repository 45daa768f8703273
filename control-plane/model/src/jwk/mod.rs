//! JSON Web Keys (RFC 7517, 7518 and 8037): reads keys and key sets from JSON, written by users or published by
//! issuers, and encodes them for plans. Fetching is not here. Errors repeat no member of a key except its `kid`.

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

/// A signature algorithm of tokens, by its name in RFC 7518, section 3.1, or RFC 8037, section 3.1.
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
    /// All names, in the order of the variants.
    pub const NAMES: &'static [&'static str] =
        &["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA", "HS256"];

    /// Whether the key that verifies a signature can also make one.
    pub fn is_symmetric(self) -> bool {
        self == Self::Hs256
    }
}

/// A key that verifies signatures of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Key {
    /// `kid`, the key's name in tokens.
    pub id: Option<String>,
    /// The algorithms that it may verify: at least one, all of the material's family, in order, each once.
    pub algorithms: Vec<Algorithm>,
    /// The key material.
    pub material: Material,
}

impl Key {
    /// This key with only those of its algorithms that are in the list. An empty list restricts nothing. `None` if none
    /// remains.
    pub fn restricted_to(&self, algorithms: &[Algorithm]) -> Option<Self> {
        let kept = |algorithm: &Algorithm| algorithms.is_empty() || algorithms.contains(algorithm);
        let kept: Vec<_> = self.algorithms.iter().copied().filter(kept).collect();
        (!kept.is_empty()).then(|| Self { algorithms: kept, ..self.clone() })
    }

    /// Whether this is a shared secret.
    pub fn is_secret(&self) -> bool {
        matches!(self.material, Material::Secret(_))
    }
}

/// The material of a key.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Material {
    /// An RSA key of 2048 to 4096 bits, as DER SubjectPublicKeyInfo.
    Rsa(Vec<u8>),
    /// A point on P-256, uncompressed as in SEC 1.
    P256(Vec<u8>),
    /// A point on P-384, uncompressed as in SEC 1.
    P384(Vec<u8>),
    /// An Ed25519 public key: 32 bytes.
    Ed25519(Vec<u8>),
    /// A shared secret of at least 32 bytes.
    Secret(Secret),
}

impl fmt::Debug for Material {
    /// Omits the bytes: they are long, and can be a secret.
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

/// A shared secret. `Debug` and serialization show only its digest.
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
