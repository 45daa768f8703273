//! Encryption of documents at rest: encrypted and authenticated, under names that reveal nothing about them.
//!
//! Resources can hold credentials that cannot be stored as digests, such as the keys of HMAC signatures and
//! certificates. Who has the file alone, such as a backup, can read none of them, and cannot test guesses: a document's
//! name is a keyed digest. Where documents are kept is the matter of others.

use std::fmt;

use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac::{self, HMAC_SHA256, Tag},
    rand::{SecureRandom as _, SystemRandom},
};

use crate::secret_file::Key;

/// The size of a document's name, in bytes.
pub const NAME: usize = 32;

/// The purposes of the key; a separate key is derived for each, and for each owner of documents.
const ENCRYPT: &str = "encrypt documents";
const CALL: &str = "name documents";
const TELL: &str = "tell keys apart";

/// The derived keys of an owner of documents.
pub struct Seal {
    encryption: Tag,
    naming: hmac::Key,
    mark: Tag,
}

impl fmt::Debug for Seal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Seal")
    }
}

impl Seal {
    /// The keys for the documents of this owner, such as `postern store`. Another owner with the same key can neither
    /// read nor forge them.
    pub fn new(key: &Key, owner: &str) -> Self {
        let key = hmac::Key::new(HMAC_SHA256, key);
        let own = |purpose| hmac::sign(&key, format!("{owner}: {purpose}").as_bytes());
        Self { encryption: own(ENCRYPT), naming: hmac::Key::new(HMAC_SHA256, own(CALL).as_ref()), mark: own(TELL) }
    }

    /// A value that identifies the key without revealing it.
    pub fn mark(&self) -> &[u8] {
        self.mark.as_ref()
    }

    /// The name of a document, a function of its content and the key.
    pub fn name(&self, document: &[u8]) -> [u8; NAME] {
        // A tag of HMAC-SHA-256 has exactly this size.
        hmac::sign(&self.naming, document).as_ref().try_into().unwrap_or_default()
    }

    /// The encryption key. `None` never happens: the key has the right size.
    fn encryption(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, self.encryption.as_ref()).ok().map(LessSafeKey::new)
    }

    /// Encrypts a document. `None` if the system has no randomness.
    pub fn close(&self, name: &[u8], document: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = document.to_vec();
        let encryption = self.encryption()?;
        let tag =
            encryption.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(name), &mut sealed);
        let tag = tag.ok()?;
        Some([&nonce, sealed.as_slice(), tag.as_ref()].concat())
    }

    /// Decrypts the document with this name. `None` if it is not authentic.
    pub fn open(&self, name: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut document = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let size = self.encryption()?.open_in_place(nonce, Aad::from(name), &mut document).ok()?.len();
        document.truncate(size);
        Some(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &[u8] = b"key: secret";

    #[test]
    fn opens_what_it_closed() {
        let seal = Seal::new(&[7; 32], "postern store");
        let name = seal.name(DOCUMENT);
        let name = name.as_ref();
        let (once, again) = (seal.close(name, DOCUMENT).unwrap(), seal.close(name, DOCUMENT).unwrap());
        assert_ne!(once, again, "no two look alike");
        assert!(!once.windows(6).any(|part| part == b"secret"));
        assert_eq!(seal.open(name, &once).as_deref(), Some(DOCUMENT));
        assert_eq!(seal.open(name, &again).as_deref(), Some(DOCUMENT));
        let sealed = seal.close(b"empty", b"").unwrap();
        assert_eq!(seal.open(b"empty", &sealed).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn opens_nothing_else() {
        let seal = Seal::new(&[7; 32], "postern store");
        let name = seal.name(DOCUMENT);
        let name = name.as_ref();
        let sealed = seal.close(name, DOCUMENT).unwrap();
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(seal.open(name, &changed), None, "byte {place}");
            assert_eq!(seal.open(name, &sealed[..place]), None, "the first {place} bytes");
        }
        assert_eq!(seal.open(b"another", &sealed), None, "under another name");
        for other in [Seal::new(&[8; 32], "postern store"), Seal::new(&[7; 32], "another owner")] {
            assert_eq!(other.open(name, &sealed), None, "with another key, or of another owner");
            assert_ne!(other.mark(), seal.mark());
            assert_ne!(other.name(DOCUMENT).as_ref(), name);
        }
    }
}
