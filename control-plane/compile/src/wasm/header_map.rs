//! Header maps as in Envoy: ordered pairs of names in lower case and values, both of bytes.

use std::fmt;

/// An ordered list of headers. Names may repeat.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HeaderMap(Vec<(Vec<u8>, Vec<u8>)>);

impl HeaderMap {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first value of a header. `None` if there is none.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// All values of a header, in order.
    pub fn all(&self, name: impl AsRef<[u8]>) -> impl Iterator<Item = &[u8]> {
        let name = name.as_ref().to_ascii_lowercase();
        self.iter().filter(move |(other, _)| *other == name).map(|(_, value)| value)
    }

    /// All headers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// The number of headers, counting repeated ones.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a value, and keeps the existing ones.
    pub fn add(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.0.push((name.as_ref().to_ascii_lowercase(), value.as_ref().to_vec()));
    }

    /// Sets a value, and removes the existing ones.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let name = name.as_ref().to_ascii_lowercase();
        match self.0.iter().position(|(other, _)| *other == name) {
            None => self.add(name, value),
            Some(first) => {
                let mut place = 0..;
                self.0.retain(|(other, _)| place.next() == Some(first) || *other != name);
                if let Some((_, old)) = self.0.get_mut(first) {
                    *old = value.as_ref().to_vec();
                }
            }
        }
    }

    /// Removes all values of a header.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) {
        let name = name.as_ref().to_ascii_lowercase();
        self.0.retain(|(other, _)| *other != name);
    }

    /// The size of all names and values, in bytes.
    pub(super) fn byte_size(&self) -> usize {
        self.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum()
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for HeaderMap {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut map = Self::new();
        pairs.into_iter().for_each(|(name, value)| map.add(name, value));
        map
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>, const COUNT: usize> From<[(N, V); COUNT]> for HeaderMap {
    fn from(pairs: [(N, V); COUNT]) -> Self {
        pairs.into_iter().collect()
    }
}

impl fmt::Debug for HeaderMap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        formatter.debug_list().entries(self.iter().map(|(name, value)| (text(name), text(value)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_one_value_in_the_place_of_the_first() {
        let mut map = HeaderMap::from([("a", "1"), ("B", "2"), ("c", "3"), ("b", "4")]);
        map.set("B", "5");
        assert_eq!(map, HeaderMap::from([("a", "1"), ("b", "5"), ("c", "3")]));
    }

    #[test]
    fn finds_and_removes_names_in_any_case() {
        let mut map = HeaderMap::from([("X-Key", "1"), ("x-key", "2")]);
        assert_eq!(map.get("X-KEY"), Some(b"1".as_slice()));
        assert_eq!(map.all("x-key").count(), 2);
        map.remove("x-Key");
        assert!(map.is_empty());
    }
}
