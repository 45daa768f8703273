//! Writes the wire format of protobuf. Nothing is decoded here.

use prost::encoding::{encode_key, encode_varint};
use prost_reflect::FieldDescriptor;

pub(super) use prost::encoding::WireType;

/// Writes a field. The payload must already have its length prefix, if its type needs one.
pub(super) fn field(number: u32, wire_type: WireType, payload: &[u8], out: &mut Vec<u8>) {
    encode_key(number, wire_type, out);
    out.extend_from_slice(payload);
}

/// Writes a field with the wire type of its descriptor.
pub(super) fn described(field: &FieldDescriptor, payload: &[u8], out: &mut Vec<u8>) {
    self::field(field.number(), field.kind().wire_type(), payload, out);
}

/// A payload with its length prefix.
pub(super) fn delimited(content: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(content.len() + 2);
    encode_varint(content.len() as u64, &mut payload);
    payload.extend_from_slice(content);
    payload
}

/// A payload that is a varint.
pub(super) fn varint(number: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    encode_varint(number, &mut payload);
    payload
}

/// Whether a payload is a default (zero, empty or `false`), which is omitted unless the field tracks presence.
pub(super) fn is_default(payload: &[u8]) -> bool {
    payload.iter().all(|byte| *byte == 0)
}
