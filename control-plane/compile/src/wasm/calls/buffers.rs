//! Host calls on buffers: bodies, configurations, and answers to callouts.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, ReturnSlot, Span, answer};
use crate::wasm::{
    abi::{Buffer, Status},
    host::Host,
    stream::Access,
};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_get_buffer_bytes",
        |caller: Caller<'_, Host>, buffer: u32, start: u32, most: u32, data: u32, size: u32| {
            answer(get_bytes(Guest::new(caller), buffer, Span(start, most), ReturnSlot(data, size)))
        },
    )?;
    imports.func_wrap(
        ENV,
        "proxy_get_buffer_status",
        |caller: Caller<'_, Host>, buffer: u32, size: u32, flags: u32| {
            answer(get_status(Guest::new(caller), buffer, size, flags))
        },
    )?;
    imports.func_wrap(
        ENV,
        "proxy_set_buffer_bytes",
        |caller: Caller<'_, Host>, buffer: u32, start: u32, size: u32, data: u32, data_size: u32| {
            answer(set_bytes(Guest::new(caller), buffer, Span(start, size), Span(data, data_size)))
        },
    )?;
    Ok(())
}

fn get_bytes(mut guest: Guest<'_>, buffer: u32, range: Span, place: ReturnSlot) -> Result<(), Fault> {
    let buffer = Buffer::from_number(buffer)?;
    let whole = guest.host().buffer(buffer).ok_or(Status::NotFound)?;
    range.0.checked_add(range.1).ok_or(Status::BadArgument)?;
    let rest = whole.get(length(range.0)..).unwrap_or_default();
    let bytes = rest.get(..length(range.1)).unwrap_or(rest).to_vec();
    guest.give(&bytes, place)
}

fn get_status(mut guest: Guest<'_>, buffer: u32, size: u32, flags: u32) -> Result<(), Fault> {
    let buffer = Buffer::from_number(buffer)?;
    let bytes = guest.host().buffer(buffer).ok_or(Status::NotFound)?.len();
    guest.write_number(size, u32::try_from(bytes).unwrap_or(u32::MAX))?;
    guest.write_number(flags, 0)
}

/// Changes a buffer as Envoy does: bytes are added at the start or end, or replace the whole body, and nothing else.
fn set_bytes(mut guest: Guest<'_>, buffer: u32, range: Span, data: Span) -> Result<(), Fault> {
    let buffer = Buffer::from_number(buffer)?;
    guest.host().buffer(buffer).ok_or(Status::NotFound)?;
    let data = guest.read(data)?;
    let body = guest.host().body_mut(buffer).ok_or(Status::BadArgument)?;
    match (length(range.0), length(range.1)) {
        (0, 0) => drop(body.splice(..0, data)),
        (0, size) if size >= body.len() => *body = data,
        (start, _) if start > 0 && start >= body.len() => body.extend(data),
        _ => return Err(Status::BadArgument.into()),
    }
    Ok(())
}

fn length(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Host {
    /// The content of a buffer. `None` if there is no such buffer now; a body that the filter cannot see now is empty.
    fn buffer(&self, buffer: Buffer) -> Option<&[u8]> {
        match buffer {
            Buffer::Body(direction) => {
                let message = self.stream().map(|stream| stream.message(direction));
                let open = message.filter(|message| message.body_access != Access::Closed);
                Some(open.map_or(&[], |message| &message.held))
            }
            Buffer::Empty | Buffer::VmConfiguration => Some(&[]),
            Buffer::HttpCallBody => self.offered.http_body.as_deref(),
            Buffer::GrpcMessage => Some(&self.offered.grpc_message),
            Buffer::PluginConfiguration => self.roots.get(&self.root_id())?.configuration.as_deref(),
        }
    }

    /// A body that the filter may change now.
    fn body_mut(&mut self, buffer: Buffer) -> Option<&mut Vec<u8>> {
        let Buffer::Body(direction) = buffer else { return None };
        let message = self.stream_mut()?.message_mut(direction);
        (message.body_access == Access::Editable).then_some(&mut message.held)
    }
}
