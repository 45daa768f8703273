//! Writes lists of pairs in proxy-wasm's format, which [`Headers`](postern_engine::Headers) describes.

/// Writes pairs. `None` if one is too large for the format.
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
    use postern_engine::Headers;

    use super::*;

    #[test]
    fn writes_what_is_read() {
        let pairs = [("a", "1"), ("empty", ""), ("a", "2")];
        let headers = Headers::read(encode(&pairs).unwrap()).unwrap();
        let read: Vec<_> = headers.iter().collect();
        assert_eq!(read, pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    }
}
