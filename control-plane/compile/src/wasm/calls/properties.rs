//! Host calls on properties.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, ReturnSlot, Span, answer};
use crate::wasm::{abi::Status, host::Host};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_get_property",
        |caller: Caller<'_, Host>, path: u32, path_size: u32, data: u32, size: u32| {
            answer(get_property(Guest::new(caller), Span(path, path_size), ReturnSlot(data, size)))
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

fn get_property(mut guest: Guest<'_>, path: Span, place: ReturnSlot) -> Result<(), Fault> {
    let path = guest.read(path)?;
    let value = guest.host().property(&path).ok_or(Status::NotFound)?;
    guest.give(&value, place)
}

/// Sets a property of the current stream. An error outside of a stream.
fn set_property(mut guest: Guest<'_>, path: Span, value: Span) -> Result<(), Fault> {
    let (path, value) = (guest.read(path)?, guest.read(value)?);
    let stream = guest.host().stream_mut().ok_or(Status::NotFound)?;
    stream.set.insert(path, value);
    Ok(())
}
