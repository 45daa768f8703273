//! The encoding of header maps in proxy-wasm: a count, the sizes of all names and values, then each of them followed by
//! a NUL. All numbers are little-endian `u32`.

use super::{abi::Status, header_map::HeaderMap};

/// The limits of Envoy on maps from a module (`PROXY_WASM_HOST_PAIRS_MAX_*`).
const MOST_PAIRS: usize = 1024;
const MOST_BYTES: usize = 1024 * 1024;

/// Encodes headers for a module. As in Envoy, no headers are no bytes.
pub(super) fn encode(headers: &HeaderMap) -> Result<Vec<u8>, Status> {
    if headers.is_empty() {
        return Ok(Vec::new());
    }
    let mut buffer = number(headers.len())?.to_vec();
    for (name, value) in headers.iter() {
        buffer.extend(number(name.len())?);
        buffer.extend(number(value.len())?);
    }
    for (name, value) in headers.iter() {
        buffer.extend([name, b"\0", value, b"\0"].concat());
    }
    Ok(buffer)
}

/// Decodes headers from a module. As in Envoy, an invalid or too large encoding gives an empty map.
pub(super) fn decode(buffer: &[u8]) -> HeaderMap {
    if buffer.len() > MOST_BYTES {
        return HeaderMap::new();
    }
    read(buffer).unwrap_or_default()
}

fn read(buffer: &[u8]) -> Option<HeaderMap> {
    let (count, rest) = take_number(buffer)?;
    if count > MOST_PAIRS {
        return None;
    }
    let (mut sizes, mut rest) = rest.split_at_checked(count.checked_mul(8)?)?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let (name_size, after_name) = take_number(sizes)?;
        let (value_size, after_value) = take_number(after_name)?;
        let (name, after) = take_text(rest, name_size)?;
        let (value, after) = take_text(after, value_size)?;
        headers.add(name, value);
        (sizes, rest) = (after_value, after);
    }
    rest.is_empty().then_some(headers)
}

fn number(size: usize) -> Result<[u8; 4], Status> {
    u32::try_from(size).map(u32::to_le_bytes).map_err(|_| Status::InternalFailure)
}

fn take_number(buffer: &[u8]) -> Option<(usize, &[u8])> {
    let (bytes, rest) = buffer.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*bytes)).ok()?, rest))
}

/// Splits off a text and the NUL that must follow it.
fn take_text(buffer: &[u8], size: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = buffer.split_at_checked(size)?;
    Some((text, rest.strip_prefix(b"\0")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let headers = HeaderMap::from([("a", "1"), ("empty", ""), ("a", "2")]);
        assert_eq!(decode(&encode(&headers).unwrap()), headers);
        assert_eq!(decode(&encode(&HeaderMap::new()).unwrap()), HeaderMap::new());
    }

    #[test]
    fn reads_every_cut_or_wild_list_as_none() {
        let whole = encode(&HeaderMap::from([("name", "value"), ("other", "thing")])).unwrap();
        for end in 0..whole.len() {
            assert!(decode(&whole[..end]).is_empty(), "cut at {end}");
        }
        assert!(decode(&[0xff; 64]).is_empty());
        let mut sizes = 1_u32.to_le_bytes().to_vec();
        sizes.extend([0xff; 8]);
        assert!(decode(&sizes).is_empty());
    }
}
