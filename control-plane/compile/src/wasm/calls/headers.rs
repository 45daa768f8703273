//! Host calls on header maps.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, ReturnSlot, Span, answer};
use crate::wasm::{
    abi::{Map, Status},
    header_map::HeaderMap,
    host::Host,
    pairs,
};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    link_lists(imports)?;
    link_reads(imports)?;
    link_edits(imports)
}

fn link_lists(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_get_header_map_pairs",
        |caller: Caller<'_, Host>, map: u32, data: u32, size: u32| {
            answer(get_pairs(Guest::new(caller), map, ReturnSlot(data, size)))
        },
    )?;
    imports.func_wrap(
        ENV,
        "proxy_set_header_map_pairs",
        |caller: Caller<'_, Host>, map: u32, data: u32, size: u32| {
            answer(set_pairs(Guest::new(caller), map, Span(data, size)))
        },
    )?;
    Ok(())
}

fn link_reads(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(ENV, "proxy_get_header_map_size", |caller: Caller<'_, Host>, map: u32, size: u32| {
        answer(get_size(Guest::new(caller), map, size))
    })?;
    imports.func_wrap(
        ENV,
        "proxy_get_header_map_value",
        |caller: Caller<'_, Host>, map: u32, name: u32, name_size: u32, data: u32, size: u32| {
            answer(get_value(Guest::new(caller), map, Span(name, name_size), ReturnSlot(data, size)))
        },
    )?;
    Ok(())
}

fn link_edits(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_add_header_map_value",
        |caller: Caller<'_, Host>, map: u32, name: u32, name_size: u32, value: u32, value_size: u32| {
            let value = Span(value, value_size);
            answer(edit(Guest::new(caller), map, Span(name, name_size), value, |map, name, value| map.add(name, value)))
        },
    )?;
    imports.func_wrap(
        ENV,
        "proxy_replace_header_map_value",
        |caller: Caller<'_, Host>, map: u32, name: u32, name_size: u32, value: u32, value_size: u32| {
            let value = Span(value, value_size);
            answer(edit(Guest::new(caller), map, Span(name, name_size), value, |map, name, value| map.set(name, value)))
        },
    )?;
    imports.func_wrap(
        ENV,
        "proxy_remove_header_map_value",
        |caller: Caller<'_, Host>, map: u32, name: u32, name_size: u32| {
            answer(edit(Guest::new(caller), map, Span(name, name_size), Span(0, 0), |map, name, _| map.remove(name)))
        },
    )?;
    Ok(())
}

/// Returns all headers of a map. As in Envoy, a map that is not available now is empty.
fn get_pairs(mut guest: Guest<'_>, map: u32, place: ReturnSlot) -> Result<(), Fault> {
    let map = Map::from_number(map)?;
    let bytes = guest.host().map(map).map(pairs::encode).transpose()?.unwrap_or_default();
    guest.give(&bytes, place)
}

fn set_pairs(mut guest: Guest<'_>, map: u32, list: Span) -> Result<(), Fault> {
    let map = Map::from_number(map)?;
    let headers = pairs::decode(&guest.read(list)?);
    *guest.host().map_mut(map).ok_or(Status::BadArgument)? = headers;
    Ok(())
}

fn get_size(mut guest: Guest<'_>, map: u32, place: u32) -> Result<(), Fault> {
    let map = Map::from_number(map)?;
    let size = guest.host().map_mut(map).ok_or(Status::BadArgument)?.byte_size();
    guest.write_number(place, u32::try_from(size).unwrap_or(u32::MAX))
}

/// Returns a header's value; the first one if it is repeated.
fn get_value(mut guest: Guest<'_>, map: u32, name: Span, place: ReturnSlot) -> Result<(), Fault> {
    let map = Map::from_number(map)?;
    let name = guest.read(name)?;
    let value = guest.host().map(map).ok_or(Status::BadArgument)?.get(name).ok_or(Status::NotFound)?.to_vec();
    guest.give(&value, place)
}

fn edit(
    mut guest: Guest<'_>,
    map: u32,
    name: Span,
    value: Span,
    change: impl FnOnce(&mut HeaderMap, &[u8], &[u8]),
) -> Result<(), Fault> {
    let map = Map::from_number(map)?;
    let (name, value) = (guest.read(name)?, guest.read(value)?);
    change(guest.host().map_mut(map).ok_or(Status::BadArgument)?, &name, &value);
    Ok(())
}
