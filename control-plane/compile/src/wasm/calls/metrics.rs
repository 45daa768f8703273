//! Host calls that define, change and read metrics.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, Span, answer};
use crate::wasm::{abi::Status, host::Host, metrics::MetricKind};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_define_metric",
        |caller: Caller<'_, Host>, kind: u32, name: u32, name_size: u32, number: u32| {
            answer(define(Guest::new(caller), kind, Span(name, name_size), number))
        },
    )?;
    imports.func_wrap(ENV, "proxy_increment_metric", |mut caller: Caller<'_, Host>, number: u32, by: i64| {
        answer(caller.data_mut().metrics.increment(number, by).map_err(Fault::from))
    })?;
    imports.func_wrap(ENV, "proxy_record_metric", |caller: Caller<'_, Host>, number: u32, value: u64| {
        answer(record(Guest::new(caller), number, value))
    })?;
    imports.func_wrap(ENV, "proxy_get_metric", |caller: Caller<'_, Host>, number: u32, value: u32| {
        answer(value_of(Guest::new(caller), number, value))
    })?;
    Ok(())
}

fn define(mut guest: Guest<'_>, kind: u32, name: Span, place: u32) -> Result<(), Fault> {
    let kinds = [MetricKind::Counter, MetricKind::Gauge, MetricKind::Histogram];
    let name = String::from_utf8_lossy(&guest.read(name)?).into_owned();
    let kind = kinds.into_iter().find(|known| *known as u32 == kind).ok_or(Status::BadArgument)?;
    let number = guest.host().metrics.define(kind, name)?;
    guest.write_number(place, number)
}

fn record(mut guest: Guest<'_>, number: u32, value: u64) -> Result<(), Fault> {
    guest.charge(0)?;
    Ok(guest.host().metrics.record(number, value)?)
}

fn value_of(mut guest: Guest<'_>, number: u32, place: u32) -> Result<(), Fault> {
    let value = guest.host().metrics.value(number)?;
    guest.write(place, &value.to_le_bytes())
}
