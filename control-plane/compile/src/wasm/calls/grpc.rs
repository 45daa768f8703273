//! Host calls that start, feed and end gRPC callouts.

use std::time::Duration;

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, Span, answer};
use crate::wasm::{
    HeaderMap, RootId,
    abi::Status,
    callouts::{CallId, Callout, GrpcCall, GrpcMessage, GrpcStream},
    host::Host,
    pairs,
};

/// Links a host call whose parameters are a target and these further numbers.
macro_rules! link_to_target {
    ($imports:ident, $name:literal, $start:ident($($further:ident),*)) => {
        $imports.func_wrap(
            ENV,
            $name,
            |caller: Caller<'_, Host>,
             upstream: u32,
             upstream_size: u32,
             service: u32,
             service_size: u32,
             method: u32,
             method_size: u32,
             metadata: u32,
             metadata_size: u32,
             $($further: u32),*| {
                let target = TargetSpans {
                    upstream: Span(upstream, upstream_size),
                    service: Span(service, service_size),
                    method: Span(method, method_size),
                    metadata: Span(metadata, metadata_size),
                };
                answer($start(Guest::new(caller), target, $($further),*))
            },
        )?;
    };
}

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    link_to_target!(imports, "proxy_grpc_call", start_call(message, message_size, timeout, number));
    link_to_target!(imports, "proxy_grpc_stream", start_stream(number));
    imports.func_wrap(
        ENV,
        "proxy_grpc_send",
        |caller: Caller<'_, Host>, number: u32, message: u32, message_size: u32, last: u32| {
            answer(send(Guest::new(caller), number, Span(message, message_size), last))
        },
    )?;
    imports.func_wrap(ENV, "proxy_grpc_cancel", |mut caller: Caller<'_, Host>, number: u32| {
        let callouts = &mut caller.data_mut().callouts;
        let gone = callouts.under_way.remove(&CallId::Grpc(number));
        answer(gone.map(|_| ()).ok_or(Fault::Status(Status::NotFound)))
    })?;
    imports.func_wrap(ENV, "proxy_grpc_close", |mut caller: Caller<'_, Host>, number: u32| {
        answer(close(caller.data_mut(), number))
    })?;
    Ok(())
}

/// The upstream, service and method of a callout, as spans of the module's memory.
#[derive(Clone, Copy)]
struct TargetSpans {
    upstream: Span,
    service: Span,
    method: Span,
    metadata: Span,
}

struct Target {
    root: RootId,
    upstream: Vec<u8>,
    service: Vec<u8>,
    method: Vec<u8>,
    metadata: HeaderMap,
}

fn read_target(guest: &mut Guest<'_>, spans: TargetSpans) -> Result<Target, Fault> {
    Ok(Target {
        root: guest.host().root_id(),
        upstream: guest.read(spans.upstream)?,
        service: guest.read(spans.service)?,
        method: guest.read(spans.method)?,
        metadata: pairs::decode(&guest.read(spans.metadata)?),
    })
}

fn start_call(
    mut guest: Guest<'_>,
    target: TargetSpans,
    message: u32,
    message_size: u32,
    timeout: u32,
    place: u32,
) -> Result<(), Fault> {
    let Target { root, upstream, service, method, metadata } = read_target(&mut guest, target)?;
    let message = guest.read(Span(message, message_size))?;
    let timeout = Duration::from_millis(timeout.into());
    start(guest, Callout::Grpc(GrpcCall { root, upstream, service, method, metadata, message, timeout }), place)
}

fn start_stream(mut guest: Guest<'_>, target: TargetSpans, place: u32) -> Result<(), Fault> {
    let Target { root, upstream, service, method, metadata } = read_target(&mut guest, target)?;
    let sent = Vec::new();
    let stream = GrpcStream { root, upstream, service, method, metadata, sent, closed: false };
    start(guest, Callout::GrpcStream(stream), place)
}

fn start(mut guest: Guest<'_>, callout: Callout, place: u32) -> Result<(), Fault> {
    guest.write_number(place, 0)?;
    let number = guest.host().callouts.add(callout)?;
    guest.write_number(place, number)
}

fn send(mut guest: Guest<'_>, number: u32, message: Span, last: u32) -> Result<(), Fault> {
    let bytes = guest.read(message)?;
    match guest.host().callouts.under_way.get_mut(&CallId::Grpc(number)) {
        Some(Callout::GrpcStream(stream)) => stream.sent.push(GrpcMessage { bytes, last: last != 0 }),
        Some(_) => return Err(Status::BadArgument.into()),
        None => return Err(Status::NotFound.into()),
    }
    Ok(())
}

/// Ends a call, or closes the filter's side of a stream.
fn close(host: &mut Host, number: u32) -> Result<(), Fault> {
    let id = CallId::Grpc(number);
    match host.callouts.under_way.get_mut(&id) {
        Some(Callout::GrpcStream(stream)) => stream.closed = true,
        Some(_) => drop(host.callouts.under_way.remove(&id)),
        None => return Err(Status::NotFound.into()),
    }
    Ok(())
}
