//! Encodes the SubjectPublicKeyInfo of an RSA key in DER (RFC 8017, appendix A.1, in RFC 5280, section 4.1). Nothing
//! else of DER is here.

/// `rsaEncryption` with its NULL parameters.
const RSA_ENCRYPTION: &[u8] =
    &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// The encoded public key. Modulus and exponent are big-endian and positive.
pub(super) fn rsa_public_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let numbers = [integer(modulus), integer(exponent)].concat();
    // The 0 is the number of unused bits in the last byte.
    let key = [&[0], value(SEQUENCE, &numbers).as_slice()].concat();
    value(SEQUENCE, &[RSA_ENCRYPTION, &value(BIT_STRING, &key)].concat())
}

/// An INTEGER, without leading zeros except the one that keeps it positive.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let significant = bytes.iter().position(|byte| *byte != 0).and_then(|first| bytes.get(first..)).unwrap_or_default();
    match significant.first() {
        Some(first) if *first < 0x80 => value(INTEGER, significant),
        _ => value(INTEGER, &[&[0], significant].concat()),
    }
}

fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let size = content.len().to_be_bytes();
    let first = size.iter().position(|byte| *byte != 0).unwrap_or(size.len().saturating_sub(1));
    let size = size.get(first..).unwrap_or_default();
    let mut encoded = vec![tag];
    match size {
        [short] if *short < 0x80 => encoded.push(*short),
        // The high bit marks a size in that many bytes.
        _ => {
            encoded.push(u8::try_from(size.len()).map_or(0xff, |count| 0x80 | count));
            encoded.extend(size);
        }
    }
    encoded.extend(content);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_integers_positive_and_short() {
        assert_eq!(integer(&[1, 0, 1]), [2, 3, 1, 0, 1]);
        assert_eq!(integer(&[0, 0, 3]), [2, 1, 3]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[]), [2, 1, 0]);
    }

    #[test]
    fn writes_sizes_in_the_shortest_form() {
        assert_eq!(value(4, &[7; 127])[..2], [4, 127]);
        assert_eq!(value(4, &[7; 128])[..3], [4, 0x81, 128]);
        assert_eq!(value(4, &[7; 256])[..4], [4, 0x82, 1, 0]);
        assert_eq!(value(4, &[]), [4, 0]);
    }
}
