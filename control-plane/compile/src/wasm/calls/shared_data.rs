//! Host calls on shared data.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, ReturnSlot, Span, answer};
use crate::wasm::{abi::Status, host::Host};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_get_shared_data",
        |caller: Caller<'_, Host>, key: u32, key_size: u32, data: u32, size: u32, version: u32| {
            answer(get(Guest::new(caller), Span(key, key_size), ReturnSlot(data, size), version))
        },
    )?;
    imports.func_wrap(
        ENV,
        "proxy_set_shared_data",
        |caller: Caller<'_, Host>, key: u32, key_size: u32, value: u32, value_size: u32, version: u32| {
            answer(set(Guest::new(caller), Span(key, key_size), Span(value, value_size), version))
        },
    )?;
    Ok(())
}

fn get(mut guest: Guest<'_>, key: Span, place: ReturnSlot, version_place: u32) -> Result<(), Fault> {
    let key = guest.read(key)?;
    let (value, version) = guest.host().setup.shared_data.get(key).ok_or(Status::NotFound)?;
    guest.give(&value, place)?;
    guest.write_number(version_place, version)
}

fn set(mut guest: Guest<'_>, key: Span, value: Span, version: u32) -> Result<(), Fault> {
    let (key, value) = (guest.read(key)?, guest.read(value)?);
    let done = guest.host().setup.shared_data.set(key, value, version);
    if done { Ok(()) } else { Err(Status::CasMismatch.into()) }
}
