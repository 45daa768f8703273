//! The WASI functions of the ABI, which modules of other languages import mostly without using them.

use wasmtime::Caller;

use super::memory::{Fault, Guest, Imports, Span};
use crate::wasm::{abi::LogLevel, host::Host};

const SUCCESS: u32 = 0;
const BAD_FILE: u32 = 8;
const FAULT: u32 = 21;
const INVALID: u32 = 28;
const UNSUPPORTED: u32 = 58;

const MOST_RANDOM_BYTES: u32 = 64 * 1024;

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    for module in ["wasi_snapshot_preview1", "wasi_unstable"] {
        link_output(imports, module)?;
        link_nothing(imports, module)?;
    }
    Ok(())
}

fn link_output(imports: &mut Imports, module: &str) -> wasmtime::Result<()> {
    imports.func_wrap(
        module,
        "fd_write",
        |caller: Caller<'_, Host>, file: u32, vectors: u32, count: u32, written: u32| {
            errno(write_lines(Guest::new(caller), file, vectors, count, written))
        },
    )?;
    imports.func_wrap(module, "clock_time_get", |caller: Caller<'_, Host>, clock: u32, _: u64, time: u32| {
        errno(clock_time(Guest::new(caller), clock, time))
    })?;
    imports.func_wrap(module, "random_get", |caller: Caller<'_, Host>, buffer: u32, size: u32| {
        errno(random(Guest::new(caller), buffer, size))
    })?;
    Ok(())
}

/// Links functions without effect: no arguments, no environment, no exit.
fn link_nothing(imports: &mut Imports, module: &str) -> wasmtime::Result<()> {
    for name in ["environ_sizes_get", "args_sizes_get"] {
        imports.func_wrap(module, name, |caller: Caller<'_, Host>, count: u32, size: u32| {
            errno(no_values(Guest::new(caller), count, size))
        })?;
    }
    for name in ["environ_get", "args_get"] {
        imports.func_wrap(module, name, |_: Caller<'_, Host>, _: u32, _: u32| SUCCESS)?;
    }
    imports.func_wrap(module, "proc_exit", |_: Caller<'_, Host>, code: u32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::msg(format!("the module called `proc_exit` with code {code}")))
    })?;
    Ok(())
}

/// The result of a WASI call: an errno, 21 (`EFAULT`) for an invalid address.
fn errno(outcome: Result<u32, Fault>) -> wasmtime::Result<u32> {
    match outcome {
        Ok(number) => Ok(number),
        Err(Fault::Status(_)) => Ok(FAULT),
        Err(Fault::Trap(error)) => Err(error),
    }
}

/// Writes to standard output and error as log lines.
fn write_lines(mut guest: Guest<'_>, file: u32, vectors: u32, count: u32, place: u32) -> Result<u32, Fault> {
    let level = match file {
        1 => LogLevel::Info,
        2 => LogLevel::Error,
        _ => return Ok(BAD_FILE),
    };
    let mut text = Vec::new();
    let list = guest.read(Span(vectors, count.saturating_mul(8)))?;
    for vector in list.as_chunks::<8>().0 {
        let [a, b, c, d, e, f, g, h] = *vector;
        let span = Span(u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        text.append(&mut guest.read(span)?);
    }
    guest.write_number(place, u32::try_from(text.len()).unwrap_or(u32::MAX))?;
    if !text.is_empty() {
        guest.host().add_line(level, text.strip_suffix(b"\n").unwrap_or(&text));
    }
    Ok(SUCCESS)
}

fn clock_time(mut guest: Guest<'_>, clock: u32, place: u32) -> Result<u32, Fault> {
    if clock > 1 {
        return Ok(UNSUPPORTED);
    }
    let now = guest.host().nanoseconds();
    guest.write(place, &now.to_le_bytes())?;
    Ok(SUCCESS)
}

/// Pseudo-random bytes (xorshift64), the same on every run, so that runs can be compared.
fn random(mut guest: Guest<'_>, buffer: u32, size: u32) -> Result<u32, Fault> {
    if size > MOST_RANDOM_BYTES {
        return Ok(INVALID);
    }
    let state = &mut guest.host().random;
    let bytes: Vec<u8> = (0..size)
        .map(|_| {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            let [byte, ..] = state.to_le_bytes();
            byte
        })
        .collect();
    guest.write(buffer, &bytes)?;
    Ok(SUCCESS)
}

fn no_values(mut guest: Guest<'_>, count: u32, size: u32) -> Result<u32, Fault> {
    guest.write_number(count, 0)?;
    guest.write_number(size, 0)?;
    Ok(SUCCESS)
}
