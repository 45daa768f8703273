//! Host calls of foreign functions, Envoy's native helpers. None is offered, so every name is unknown.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, Span, answer};
use crate::wasm::{abi::Status, host::Host};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_call_foreign_function",
        |caller: Caller<'_, Host>, name: u32, name_size: u32, data: u32, data_size: u32, _: u32, _: u32| {
            answer(call(Guest::new(caller), Span(name, name_size), Span(data, data_size)))
        },
    )?;
    Ok(())
}

fn call(mut guest: Guest<'_>, name: Span, arguments: Span) -> Result<(), Fault> {
    guest.read(name)?;
    guest.read(arguments)?;
    Err(Status::NotFound.into())
}
