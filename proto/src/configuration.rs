//! How a plan is carried in the configuration of the Wasm plugin: in an Envoy `GenericSecret`, whose contents no
//! `/config_dump` shows. Envoy hands the message to the plugin as it is, and the filter takes the plan out of it.
//!
//! Only `secret.inline_bytes` of the message is used: field 1 (a `DataSource`) with field 2. Both sides use that one
//! encoding, and a filter refuses any other.

/// The type of the configuration's message.
pub const TYPE_URL: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.GenericSecret";

/// `GenericSecret.secret`, and `DataSource.inline_bytes`, each with the wire type of bytes.
const SECRET: u8 = 1 << 3 | 2;
const INLINE_BYTES: u8 = 2 << 3 | 2;

/// The configuration with a plan in it. The plan is at its end.
pub fn wrap(plan: &[u8]) -> Vec<u8> {
    let mut inner = vec![INLINE_BYTES];
    prost::encoding::encode_varint(plan.len() as u64, &mut inner);
    let mut outer = Vec::with_capacity(plan.len().saturating_add(24));
    outer.push(SECRET);
    prost::encoding::encode_varint(inner.len().saturating_add(plan.len()) as u64, &mut outer);
    outer.extend(inner);
    outer.extend_from_slice(plan);
    outer
}

/// The plan in a configuration, without a copy of it; `None` if the configuration is anything else.
pub fn unwrap(configuration: &[u8]) -> Option<&[u8]> {
    field(field(configuration, SECRET)?, INLINE_BYTES)
}

/// The contents of a message that has this field and nothing else. `None` for any other message.
fn field(message: &[u8], tag: u8) -> Option<&[u8]> {
    let mut rest = message.strip_prefix(&[tag])?;
    let size = prost::encoding::decode_varint(&mut rest).ok()?;
    (u64::try_from(rest.len()).ok()? == size).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_out_what_was_put_in() {
        for size in [0, 1, 127, 128, 16_384, 3_000_000] {
            let plan = vec![7; size];
            assert_eq!(unwrap(&wrap(&plan)), Some(&*plan));
        }
    }

    #[test]
    fn takes_nothing_else() {
        let whole = wrap(b"plan");
        assert_eq!(whole, [0x0a, 6, 0x12, 4, b'p', b'l', b'a', b'n']);
        for end in 0..whole.len() {
            assert_eq!(unwrap(whole.get(..end).unwrap_or_default()), None, "of {end} bytes");
        }
        assert_eq!(unwrap(&[&whole[..], &[0]].concat()), None);
        assert_eq!(unwrap(b"\x08\x02"), None, "a bare plan");
    }
}
