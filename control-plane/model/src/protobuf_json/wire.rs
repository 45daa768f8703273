//! The wire format, as far as writing it needs.

use prost::encoding::{encode_key, encode_varint};
use prost_reflect::FieldDescriptor;

pub(super) use prost::encoding::WireType;

/// A field with a payload that has its length in front of it already, where it needs one.
pub(super) fn field(number: u32, wire_type: WireType, payload: &[u8], out: &mut Vec<u8>) {
    encode_key(number, wire_type, out);
    out.extend_from_slice(payload);
}

/// A field of the type that its descriptor says.
pub(super) fn described(field: &FieldDescriptor, payload: &[u8], out: &mut Vec<u8>) {
    self::field(field.number(), field.kind().wire_type(), payload, out);
}

/// A payload of any length, with its length in front.
pub(super) fn delimited(content: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(content.len() + 2);
    encode_varint(content.len() as u64, &mut payload);
    payload.extend_from_slice(content);
    payload
}

/// A payload that is a number of variable length.
pub(super) fn varint(number: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    encode_varint(number, &mut payload);
    payload
}

/// Whether a payload stands for zero, nothing or `false`: such a field is left out unless its presence means something.
pub(super) fn is_default(payload: &[u8]) -> bool {
    payload.iter().all(|byte| *byte == 0)
}
