//! The host call that starts an HTTP callout.

use std::time::Duration;

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, Span, answer};
use crate::wasm::{
    abi::Status,
    callouts::{Callout, HttpCall},
    host::Host,
    pairs,
};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(
        ENV,
        "proxy_http_call",
        |caller: Caller<'_, Host>,
         cluster: u32,
         cluster_size: u32,
         headers: u32,
         headers_size: u32,
         body: u32,
         body_size: u32,
         trailers: u32,
         trailers_size: u32,
         timeout: u32,
         number: u32| {
            let spans = HttpSpans {
                cluster: Span(cluster, cluster_size),
                headers: Span(headers, headers_size),
                body: Span(body, body_size),
                trailers: Span(trailers, trailers_size),
            };
            answer(http_call(Guest::new(caller), spans, timeout, number))
        },
    )?;
    Ok(())
}

#[derive(Clone, Copy)]
struct HttpSpans {
    cluster: Span,
    headers: Span,
    body: Span,
    trailers: Span,
}

fn http_call(mut guest: Guest<'_>, spans: HttpSpans, timeout: u32, place: u32) -> Result<(), Fault> {
    let mut call = HttpCall {
        root: guest.host().root_id(),
        cluster: guest.read(spans.cluster)?,
        body: guest.read(spans.body)?,
        headers: pairs::decode(&guest.read(spans.headers)?),
        trailers: pairs::decode(&guest.read(spans.trailers)?),
        timeout: Some(Duration::from_millis(timeout.into())).filter(|timeout| !timeout.is_zero()),
    };
    // Writes before the callout is made, so that none is made whose number cannot be returned.
    guest.write_number(place, 0)?;
    let complete = [":method", ":path", ":authority"].iter().all(|name| call.headers.get(name).is_some());
    if !complete || i32::try_from(timeout).is_err() || !guest.host().setup.clusters.has(&call.cluster) {
        return Err(Status::BadArgument.into());
    }
    if !call.body.is_empty() {
        call.headers.set("content-length", call.body.len().to_string());
    }
    let number = guest.host().callouts.add(Callout::Http(call))?;
    guest.write_number(place, number)
}
