//! What a host tells the engine about a message. Bytes as they came: nothing here assumes UTF-8.

use std::ops::Range;

/// The headers of one message, in order, names in lower case as Envoy has them.
///
/// They live in the one buffer that the host handed over, so that taking them costs no copy a header.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    buffer: Vec<u8>,
    fields: Vec<Field>,
}

/// Where a header lies in a buffer.
#[derive(Debug, Clone)]
pub struct Field {
    /// The name's place.
    pub name: Range<usize>,
    /// The value's place.
    pub value: Range<usize>,
}

impl Headers {
    /// Headers whose names and values lie in `buffer`. A place outside of it reads as empty.
    pub fn new(buffer: Vec<u8>, fields: Vec<Field>) -> Self {
        Self { buffer, fields }
    }

    /// Every header, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (self.slice(&field.name), self.slice(&field.value)))
    }

    /// The values of one header, in order. `name` is in lower case.
    pub fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(candidate, _)| *candidate == name.as_bytes()).map(|(_, value)| value)
    }

    fn slice(&self, place: &Range<usize>) -> &[u8] {
        self.buffer.get(place.clone()).unwrap_or_default()
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut headers = Self::default();
        for (name, value) in pairs {
            let name = append(&mut headers.buffer, name.as_ref());
            let value = append(&mut headers.buffer, value.as_ref());
            headers.fields.push(Field { name, value });
        }
        headers
    }
}

fn append(buffer: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = buffer.len();
    buffer.extend_from_slice(bytes);
    start..buffer.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_repeated_headers_in_order() {
        let headers: Headers = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!(headers.values("a").collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(headers.values("c").count(), 0);
    }

    #[test]
    fn reads_a_place_outside_the_buffer_as_empty() {
        let headers = Headers::new(b"name".to_vec(), vec![Field { name: 0..4, value: 4..9 }]);
        assert_eq!(headers.values("name").collect::<Vec<_>>(), [b""]);
    }
}
