//! Digests that distinguish issuers and rules.

use std::sync::Arc;

use sha2::{Digest, Sha256};

/// A digest over values. Each is preceded by its size, so that no two lists of values have the same digest.
#[derive(Default)]
pub(super) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(super) fn add(&mut self, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.number(value.len() as u64);
        self.0.update(value);
    }

    pub(super) fn add_all(&mut self, values: &[Arc<str>]) {
        self.number(values.len() as u64);
        values.iter().for_each(|value| self.add(value.as_bytes()));
    }

    pub(super) fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    pub(super) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}
