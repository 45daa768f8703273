//! Secrets that are kept in plain, not as digests. They are never shown, and serialized as a digest.

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Headers that always carry credentials, in lower case.
pub const CREDENTIAL_HEADERS: [&str; 7] =
    ["authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "x-auth-token", "x-csrf-token"];

/// A secret that is needed in plain. `Debug` does not show it, and serialization writes only its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) Vec<u8>);

impl Secret {
    /// The secret itself, for a plan that needs it.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(Sha256::digest(&self.0)))
    }
}
