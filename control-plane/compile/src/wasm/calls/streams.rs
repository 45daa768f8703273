//! Host calls that control a stream. They take effect once the running callback has returned.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, Span, answer};
use crate::wasm::{
    LocalResponse, StreamId,
    abi::{Direction, Status},
    host::{After, Host},
    pairs,
};

/// The ABI's value for "no gRPC status".
const NO_GRPC_STATUS: u32 = u32::MAX;

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(ENV, "proxy_continue_stream", |caller: Caller<'_, Host>, kind: u32| {
        answer(continue_stream(Guest::new(caller), kind))
    })?;
    imports.func_wrap(ENV, "proxy_close_stream", |caller: Caller<'_, Host>, kind: u32| {
        answer(close_stream(Guest::new(caller), kind))
    })?;
    imports.func_wrap(
        ENV,
        "proxy_send_local_response",
        |caller: Caller<'_, Host>,
         status: u32,
         details: u32,
         details_size: u32,
         body: u32,
         body_size: u32,
         headers: u32,
         headers_size: u32,
         grpc_status: u32| {
            let [details, body, headers] =
                [Span(details, details_size), Span(body, body_size), Span(headers, headers_size)];
            answer(send_local_response(Guest::new(caller), status, details, body, headers, grpc_status))
        },
    )?;
    Ok(())
}

fn continue_stream(mut guest: Guest<'_>, kind: u32) -> Result<(), Fault> {
    let direction = match kind {
        0 => Direction::Request,
        1 => Direction::Response,
        _ => return Err(Status::BadArgument.into()),
    };
    schedule(&mut guest, |stream| After::GoOn(stream, direction))
}

/// Resets the stream, for either direction. The kinds of TCP are accepted and ignored.
fn close_stream(mut guest: Guest<'_>, kind: u32) -> Result<(), Fault> {
    match kind {
        0 | 1 => schedule(&mut guest, After::Reset),
        2 | 3 => Ok(()),
        _ => Err(Status::BadArgument.into()),
    }
}

fn send_local_response(
    mut guest: Guest<'_>,
    status: u32,
    details: Span,
    body: Span,
    headers: Span,
    grpc_status: u32,
) -> Result<(), Fault> {
    let response = LocalResponse {
        status,
        details: guest.read(details)?,
        body: guest.read(body)?,
        headers: pairs::decode(&guest.read(headers)?),
        grpc_status: Some(grpc_status).filter(|status| *status != NO_GRPC_STATUS),
    };
    schedule(&mut guest, |stream| After::Answer(stream, response))
}

/// Schedules an action for the current stream. Outside of a stream, does nothing and succeeds.
fn schedule(guest: &mut Guest<'_>, action: impl FnOnce(StreamId) -> After) -> Result<(), Fault> {
    guest.charge(0)?;
    let host = guest.host();
    if let Some(stream) = host.stream_id() {
        host.after.push_back(action(stream));
    }
    Ok(())
}
