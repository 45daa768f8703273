//! Properties: values by path that Envoy provides about a stream and itself, and that the filter sets.

use std::collections::BTreeMap;

/// Values by path, as bytes: text unchanged, numbers as eight little-endian bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<Vec<u8>, Vec<u8>>);

impl Properties {
    /// No properties.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one property: `.with(&["xds", "route_name"], "api")`.
    #[must_use]
    pub fn with(mut self, path: &[&str], value: impl AsRef<[u8]>) -> Self {
        self.0.insert(path.join("\0").into_bytes(), value.as_ref().to_vec());
        self
    }

    pub(super) fn get(&self, path: &[u8]) -> Option<&Vec<u8>> {
        self.0.get(path)
    }
}
