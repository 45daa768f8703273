//! The part of DER that public keys need: reading RSA's SubjectPublicKeyInfo, and writing that of points on curves.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
/// rsaEncryption, and the NULL that belongs to it.
const RSA_ENCRYPTION: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
/// What precedes the point of a key on P-256, which has 65 bytes.
const P256_PREFIX: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
/// What precedes the point of a key on P-384, which has 97 bytes.
const P384_PREFIX: &[u8] =
    b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00";

/// The modulus and the exponent of an RSA key, without leading zeros.
pub(super) fn rsa_key(info: &[u8]) -> Option<(&[u8], &[u8])> {
    let info = only(info, SEQUENCE)?;
    let (algorithm, rest) = element(info, SEQUENCE)?;
    let [0, key @ ..] = only(rest, BIT_STRING)? else { return None };
    let (modulus, rest) = element(only(key, SEQUENCE)?, INTEGER)?;
    let exponent = only(rest, INTEGER)?;
    (algorithm == RSA_ENCRYPTION).then_some(())?;
    Some((positive(modulus)?, positive(exponent)?))
}

/// The SubjectPublicKeyInfo of an uncompressed point on P-256.
pub(super) fn p256_info(point: &[u8]) -> Vec<u8> {
    [P256_PREFIX, point].concat()
}

/// The SubjectPublicKeyInfo of an uncompressed point on P-384.
pub(super) fn p384_info(point: &[u8]) -> Vec<u8> {
    [P384_PREFIX, point].concat()
}

/// The content of an element. `None` if anything follows it.
fn only(der: &[u8], tag: u8) -> Option<&[u8]> {
    element(der, tag).filter(|(_, rest)| rest.is_empty()).map(|(content, _)| content)
}

/// The content of the first element, and what follows it. `None` if its length is not written in the fewest bytes.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = der.split_first()?;
    (*found == tag).then_some(())?;
    let (length, rest) = match rest {
        [length @ 0..=0x7f, rest @ ..] => (usize::from(*length), rest),
        [0x81, length @ 0x80..=0xff, rest @ ..] => (usize::from(*length), rest),
        [0x82, high @ 1..=0xff, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// The bytes of an integer above zero, without a leading zero. `None` if it has more bytes than it needs.
fn positive(integer: &[u8]) -> Option<&[u8]> {
    match integer {
        [0, rest @ ..] if rest.first().is_some_and(|first| *first >= 0x80) => Some(rest),
        [1..=0x7f, ..] => Some(integer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()], content].concat();
        let key = wrap(SEQUENCE, &[wrap(INTEGER, modulus), wrap(INTEGER, exponent)].concat());
        let bits = wrap(BIT_STRING, &[&[0], key.as_slice()].concat());
        wrap(SEQUENCE, &[wrap(SEQUENCE, RSA_ENCRYPTION), bits].concat())
    }

    #[test]
    fn reads_modulus_and_exponent() {
        assert_eq!(rsa_key(&info(&[0, 0x81, 2], &[1, 0, 1])), Some((&[0x81, 2][..], &[1, 0, 1][..])));
        assert_eq!(rsa_key(&info(&[0x71, 2], &[3])), Some((&[0x71, 2][..], &[3][..])));
    }

    #[test]
    fn refuses_what_is_not_der() {
        let good = info(&[0, 0x81, 2], &[3]);
        for end in 0..good.len() {
            assert_eq!(rsa_key(&good[..end]), None, "{end}");
        }
        assert_eq!(rsa_key(&[good.as_slice(), &[0]].concat()), None);
        for (modulus, exponent) in
            [(&[0x81_u8, 2][..], &[3_u8][..]), (&[0, 1], &[3]), (&[], &[3]), (&[1], &[0]), (&[1], &[])]
        {
            assert_eq!(rsa_key(&info(modulus, exponent)), None, "{modulus:?} {exponent:?}");
        }
        assert_eq!(element(b"\x30\x81\x01a", SEQUENCE), None);
        assert_eq!(element(b"\x30\x82\x00\x01a", SEQUENCE), None);
        assert_eq!(element(b"\x30\x80a\0\0", SEQUENCE), None);
    }
}
