//! Envoy's native check of signatures (`verify_signature`). Its argument and result are small protobuf messages, which
//! are written and read here by hand.

use postern_engine::{jwt::SignatureCheck, protobuf::put_bytes};

use crate::host;

/// Whether a signature is good. `None` if the host cannot tell; then the engine checks it.
pub(crate) fn verify(check: &SignatureCheck) -> Option<bool> {
    let result = host::call_foreign_function("verify_signature", &argument(check)).ok()??;
    // `result`, a truth value, is field 1, and left out if it is false; `error`, a text, is field 2.
    match result.as_slice() {
        [0x08, 0x01, ..] => Some(true),
        [0x12, ..] => Some(false),
        _ => None,
    }
}

/// Writes the message `VerifySignatureArguments`.
fn argument(check: &SignatureCheck) -> Vec<u8> {
    let SignatureCheck { hash, key, signature, text } = check;
    let size = key.len().saturating_add(signature.len()).saturating_add(text.len());
    let mut message = Vec::with_capacity(size.saturating_add(32));
    for (field, bytes) in [(1, hash.name().as_bytes()), (2, key), (3, signature), (4, &**text)] {
        put_bytes(field, bytes, &mut message);
    }
    message
}

#[cfg(test)]
mod tests {
    use postern_engine::jwt::{Hash, SignedText};

    use super::*;

    #[test]
    fn writes_what_envoy_reads() {
        let text = SignedText::new(&[7; 400][..].into(), 300);
        let check = SignatureCheck { hash: Hash::Sha256, key: [1, 2][..].into(), signature: vec![3], text };
        let expect = [b"\x0a\x06sha256\x12\x02\x01\x02\x1a\x01\x03\x22\xac\x02".to_vec(), vec![7; 300]].concat();
        assert_eq!(argument(&check), expect);
    }
}
