//! Compiled modules on disk: sealed with a key, and run only if the seal is valid.
//!
//! This is the only unsafe code of the crate. `Module::deserialize` runs any machine code, so bytes from a disk must be
//! proved to be ours. A [`Genuine`] is that proof as a type: only [`SealKey::open`] makes one, and only of bytes whose
//! HMAC-SHA256, under a key that others cannot read, covers them, the digest of the filter that they were compiled
//! from, and everything of wasmtime that they depend on.

#![expect(
    unsafe_code,
    reason = "wasmtime cannot check machine code; its origin is checked here instead, by a keyed MAC"
)]

use hmac::{Hmac, KeyInit, Mac};
use postern_base::digest::Digest;
use sha2::Sha256;
use wasmtime::{Engine, Module};

/// The size of the seal at the start of a file, in bytes.
const SEAL: usize = 32;
/// The purpose in the MAC, so that seals for other purposes with the same key differ.
const PURPOSE: &[u8] = b"postern compiled module 1";

/// The key for seals. Whoever knows it can make us run any code.
pub(crate) struct SealKey([u8; 32]);

impl SealKey {
    pub(crate) const SIZE: usize = 32;

    pub(crate) fn new(key: [u8; Self::SIZE]) -> Self {
        Self(key)
    }

    /// The module, preceded by its seal.
    pub(crate) fn seal(&self, filter: &Digest, environment: &Digest, module: &[u8]) -> Vec<u8> {
        let seal = self.mac(filter, environment, module).map(|mac| mac.finalize().into_bytes());
        [seal.unwrap_or_default().as_slice(), module].concat()
    }

    /// The module behind a seal. `None` unless the seal is ours, for this filter and environment.
    pub(crate) fn open<'a>(&self, filter: &Digest, environment: &Digest, sealed: &'a [u8]) -> Option<Genuine<'a>> {
        let (seal, module) = sealed.split_at_checked(SEAL)?;
        // The comparison takes constant time.
        self.mac(filter, environment, module)?.verify_slice(seal).ok()?;
        Some(Genuine(module))
    }

    /// The MAC over all parts. The size of each is included, so that bytes cannot move between parts.
    fn mac(&self, filter: &Digest, environment: &Digest, module: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in [PURPOSE, filter.as_str().as_bytes(), environment.as_str().as_bytes(), module] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        Some(mac)
    }
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SealKey")
    }
}

/// A compiled module whose seal was valid.
#[derive(Debug)]
pub(crate) struct Genuine<'a>(&'a [u8]);

impl Genuine<'_> {
    pub(super) fn module(&self, engine: &Engine) -> wasmtime::Result<Module> {
        // SAFETY: `deserialize` asks for bytes that `Module::serialize` of this wasmtime made, unchanged. The seal was
        // made in `SealKey::seal`, whose only caller hands it what `serialize` returned, and it is over these bytes as
        // they are in memory now: no file is read again or mapped. Wasmtime itself refuses, safely, what another
        // version, target or configuration of it made.
        unsafe { Module::deserialize(engine, self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SealKey = SealKey([7; SealKey::SIZE]);

    fn digests() -> (Digest, Digest) {
        (Digest::of(b"filter"), Digest::of(b"environment"))
    }

    #[test]
    fn opens_what_it_sealed() {
        let (filter, environment) = digests();
        let sealed = KEY.seal(&filter, &environment, b"module");
        assert_eq!(KEY.open(&filter, &environment, &sealed).unwrap().0, b"module");
    }

    #[test]
    fn opens_nothing_that_was_changed_anywhere() {
        let (filter, environment) = digests();
        let sealed = KEY.seal(&filter, &environment, b"module");
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert!(KEY.open(&filter, &environment, &changed).is_none(), "byte {index}");
        }
        for size in 0..sealed.len() {
            assert!(KEY.open(&filter, &environment, &sealed[..size]).is_none(), "{size} bytes");
        }
        assert!(KEY.open(&filter, &environment, &[sealed.as_slice(), b"x"].concat()).is_none());
    }

    #[test]
    fn opens_nothing_of_another_filter_environment_or_key() {
        let (filter, environment) = digests();
        let sealed = KEY.seal(&filter, &environment, b"module");
        assert!(KEY.open(&environment, &environment, &sealed).is_none());
        assert!(KEY.open(&filter, &filter, &sealed).is_none());
        assert!(SealKey([8; SealKey::SIZE]).open(&filter, &environment, &sealed).is_none());
    }
}
