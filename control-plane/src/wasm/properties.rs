//! Properties: what Envoy knows about a stream and its surroundings, under paths, and what the filter adds.

use std::collections::BTreeMap;

use wasmtime::Caller;

use super::{
    abi::Status,
    host::Host,
    memory::{ENV, Fault, Guest, Imports, Place, Span, answer},
};

/// Values by path, as bytes: text as it is, numbers as eight little-endian bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<Vec<u8>, Vec<u8>>);

impl Properties {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// These and one more: `.with(&["xds", "route_name"], "api")`.
    #[must_use]
    pub fn with(mut self, path: &[&str], value: impl AsRef<[u8]>) -> Self {
        self.0.insert(path.join("\0").into_bytes(), value.as_ref().to_vec());
        self
    }

    fn get(&self, path: &[u8]) -> Option<&Vec<u8>> {
        self.0.get(path)
    }
}

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_get_property",
        |caller: Caller<'_, Host>, path: u32, path_size: u32, data: u32, size: u32| {
            answer(get_property(Guest::new(caller), Span(path, path_size), Place(data, size)))
        },
    )?;
    imports.func_wrap(
        ENV,
        "proxy_set_property",
        |caller: Caller<'_, Host>, path: u32, path_size: u32, value: u32, value_size: u32| {
            answer(set_property(Guest::new(caller), Span(path, path_size), Span(value, value_size)))
        },
    )?;
    Ok(())
}

fn get_property(mut guest: Guest<'_>, path: Span, place: Place) -> Result<(), Fault> {
    let path = guest.read(path)?;
    let value = guest.host().property(&path).ok_or(Status::NotFound)?;
    guest.give(&value, place)
}

/// Only a stream can keep one.
fn set_property(mut guest: Guest<'_>, path: Span, value: Span) -> Result<(), Fault> {
    let (path, value) = (guest.read(path)?, guest.read(value)?);
    let stream = guest.host().stream_mut().ok_or(Status::NotFound)?;
    stream.set.insert(path, value);
    Ok(())
}

impl Host {
    /// What the stream came with, then what the filter set itself, then what every context has.
    fn property(&self, path: &[u8]) -> Option<Vec<u8>> {
        // Some SDKs end the last part of a path like the others, and Envoy does not mind.
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        let of_stream = self.stream().and_then(|stream| stream.given.get(path).or_else(|| stream.set.get(path)));
        of_stream.or_else(|| self.setup.properties.get(path)).cloned()
    }
}
