//! How proxy-wasm writes a list of pairs: a count, the sizes of every name and value, then each of them with a NUL
//! behind it; all numbers are little-endian `u32`.

use postern_engine::{Headers, event::Field};

/// Reads headers out of a buffer, which they keep. `None` if the buffer is not such a list.
#[inline]
pub(crate) fn decode(buffer: Vec<u8>) -> Option<Headers> {
    if buffer.is_empty() {
        return Some(Headers::default());
    }
    let (count, rest) = buffer.split_first_chunk()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let (sizes, _) = rest.get(..count.checked_mul(8)?)?.as_chunks::<8>();
    let mut place = sizes.len().checked_mul(8)?.checked_add(4)?;
    let mut fields = Vec::with_capacity(sizes.len());
    for sizes in sizes {
        // Both sizes in one number: this runs for every header of every request.
        let sizes = u64::from_le_bytes(*sizes);
        let name = place..place.checked_add(usize::try_from(sizes & u64::from(u32::MAX)).ok()?)?;
        let start = name.end.checked_add(1)?;
        let value = start..start.checked_add(usize::try_from(sizes >> 32).ok()?)?;
        place = value.end.checked_add(1)?;
        fields.push(Field { name, value });
    }
    // Places only grow, so the last tells of all.
    (place <= buffer.len()).then(|| Headers::new(buffer, fields))
}

/// Writes pairs. `None` if one is larger than the format can say.
pub(crate) fn encode<T: AsRef<str>>(pairs: &[(T, T)]) -> Option<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.extend(u32::try_from(pairs.len()).ok()?.to_le_bytes());
    let pairs = || pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
    for (name, value) in pairs() {
        buffer.extend(u32::try_from(name.len()).ok()?.to_le_bytes());
        buffer.extend(u32::try_from(value.len()).ok()?.to_le_bytes());
    }
    for (name, value) in pairs() {
        buffer.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    Some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let pairs = [("a", "1"), ("empty", ""), ("a", "2")];
        let headers = decode(encode(&pairs).unwrap()).unwrap();
        let read: Vec<_> = headers.iter().collect();
        assert_eq!(read, pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    }

    #[test]
    fn reads_an_empty_buffer_as_no_headers() {
        assert_eq!(decode(Vec::new()).unwrap().iter().count(), 0);
    }

    #[test]
    fn refuses_every_cut_of_a_list() {
        let whole = encode(&[("name", "value"), ("other", "thing")]).unwrap();
        let read = (1..whole.len()).filter(|end| decode(whole[..*end].to_vec()).is_some());
        assert_eq!(read.count(), 0);
    }

    #[test]
    fn refuses_a_count_and_sizes_that_overflow() {
        assert!(decode(vec![0xff; 4]).is_none());
        assert!(decode(vec![0xff; 64]).is_none());
        let mut sizes = 1_u32.to_le_bytes().to_vec();
        sizes.extend([0xff; 8]);
        assert!(decode(sizes).is_none());
    }
}
