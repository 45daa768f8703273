//! A response in wire format: gRPC's header and the nonce, which belong to the stream, and the rest, which streams
//! share.

use prost::bytes::{BufMut, Bytes, BytesMut};

use crate::xds::session::Response;

/// Up to this size a response is copied, so that it is one frame; larger ones share their bytes.
const COPIED: usize = 4096;

/// The tag of the field `nonce`, number 5 in both variants of the protocol, as a string.
const NONCE_TAG: u8 = 5 << 3 | 2;

/// The frames of a response: the first and, if it is large, another.
pub(super) fn frames(response: &Response) -> (Bytes, Option<Bytes>) {
    let shared = response.content.encoded();
    let nonce = response.nonce.as_bytes();
    // A nonce is always shorter than 128 bytes, so that its length takes one byte.
    let length = u8::try_from(nonce.len()).unwrap_or(u8::MAX);
    let size = shared.len().saturating_add(nonce.len()).saturating_add(2);
    let is_copied = shared.len() <= COPIED;
    let mut head = BytesMut::with_capacity(nonce.len() + 7 + if is_copied { shared.len() } else { 0 });
    // The flag for "not compressed", and then the size of the message.
    head.put_u8(0);
    head.put_u32(u32::try_from(size).unwrap_or(u32::MAX));
    head.put_slice(&[NONCE_TAG, length]);
    head.put_slice(nonce);
    if is_copied {
        head.put_slice(&shared);
    }
    (head.freeze(), (!is_copied).then_some(shared))
}
