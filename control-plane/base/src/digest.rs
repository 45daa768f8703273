//! SHA-256 digests, which versions, revisions and file names consist of.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest in hexadecimal: equal content has an equal digest on every stream, restart and replica.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
pub struct Digest(Arc<str>);

impl Digest {
    /// The digest of one byte string.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(bytes)).into())
    }

    /// The digest of several parts. The size of each part is included, so that moving bytes between parts changes the
    /// digest.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hex::encode(hash.finalize()).into())
    }

    /// The digest of the concatenated parts, for formats that define it so.
    pub fn of_joined<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        parts.into_iter().for_each(|part| hash.update(part));
        Self(hex::encode(hash.finalize()).into())
    }

    /// The digest that was written as 64 hexadecimal digits in lower case. `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 64 && text.bytes().all(is_digit)).then(|| Self(text.into()))
    }

    /// The digest in hexadecimal: 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first digits, which tell digests apart for readers. Not unique.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_sha256_of_the_bytes() {
        let expect = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").as_str(), expect);
        assert_eq!(Digest::from_hex(expect), Some(Digest::of(b"abc")));
        for other in ["", "abc", &expect.to_uppercase(), &format!("{expect}0")] {
            assert_eq!(Digest::from_hex(other), None, "{other}");
        }
    }

    #[test]
    fn tells_apart_how_bytes_are_divided_into_parts() {
        let digest = |parts: [&str; 2]| Digest::of_parts(parts.map(str::as_bytes));
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
    }
}
