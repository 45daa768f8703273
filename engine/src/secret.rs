//! Secrets: how what a caller sends is compared with what it must be. Nothing here keeps one.

use std::hint::black_box;

/// Whether both are equal. The time that it takes depends on their lengths, and not on where they differ.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |found, (one, other)| found | (one ^ other));
    one.len() == other.len() && black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_all_of_both() {
        assert!(same(b"", b"") && same(b"token", b"token"));
        for other in [&b""[..], b"toke", b"token1", b"tokeN", b"Token"] {
            assert!(!same(b"token", other) && !same(other, b"token"), "{other:?}");
        }
    }
}
