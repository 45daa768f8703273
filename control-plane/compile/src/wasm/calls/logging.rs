//! Host calls on the log.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, Span, answer};
use crate::wasm::{
    abi::{LogLevel, Status},
    host::Host,
};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(ENV, "proxy_log", |caller: Caller<'_, Host>, level: u32, text: u32, size: u32| {
        answer(log(Guest::new(caller), level, Span(text, size)))
    })?;
    imports.func_wrap(ENV, "proxy_get_log_level", |caller: Caller<'_, Host>, level: u32| {
        answer(log_level(Guest::new(caller), level))
    })?;
    Ok(())
}

fn log(mut guest: Guest<'_>, level: u32, text: Span) -> Result<(), Fault> {
    let level = LogLevel::from_number(level).ok_or(Status::BadArgument)?;
    let text = guest.read(text)?;
    guest.host().add_line(level, &text);
    Ok(())
}

fn log_level(mut guest: Guest<'_>, place: u32) -> Result<(), Fault> {
    let level = guest.host().setup.log_level as u32;
    guest.write_number(place, level)
}
