//! Writes protobuf's wire format by hand, a few fields at a time. It keeps the generated code of these messages out of
//! the filter.

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const SIZED: u64 = 2;

/// Appends a field of text, bytes, or a message that is written already.
pub fn put_bytes(field: u8, bytes: &[u8], message: &mut Vec<u8>) {
    put_tag(field, SIZED, message);
    put_varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX), message);
    message.extend_from_slice(bytes);
}

/// Appends a field of an unsigned integer, a truth value or an enum.
pub fn put_number(field: u8, number: u64, message: &mut Vec<u8>) {
    put_tag(field, VARINT, message);
    put_varint(number, message);
}

/// Appends a field of a double.
pub fn put_double(field: u8, number: f64, message: &mut Vec<u8>) {
    put_tag(field, FIXED_64, message);
    message.extend_from_slice(&number.to_le_bytes());
}

fn put_tag(field: u8, kind: u64, message: &mut Vec<u8>) {
    put_varint((u64::from(field) << 3) | kind, message);
}

fn put_varint(mut number: u64, message: &mut Vec<u8>) {
    while number >= 0x80 {
        message.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    message.push(u8::try_from(number).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_tags_and_numbers_of_several_bytes() {
        let mut message = Vec::new();
        put_number(1, 300, &mut message);
        put_number(17, 1, &mut message);
        put_bytes(2, b"ab", &mut message);
        put_double(3, 0.5, &mut message);
        assert_eq!(message, b"\x08\xac\x02\x88\x01\x01\x12\x02ab\x19\x00\x00\x00\x00\x00\x00\xe0\x3f");
    }
}
