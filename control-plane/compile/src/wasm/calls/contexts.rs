//! Host calls on contexts.

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, ReturnSlot, answer};
use crate::wasm::{
    abi::Status,
    host::{After, Host},
};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(ENV, "proxy_set_effective_context", |mut caller: Caller<'_, Host>, context: u32| {
        answer(set_effective_context(caller.data_mut(), context))
    })?;
    imports.func_wrap(ENV, "proxy_done", |mut caller: Caller<'_, Host>| answer(done(caller.data_mut())))?;
    imports.func_wrap(ENV, "proxy_get_status", |caller: Caller<'_, Host>, code: u32, data: u32, size: u32| {
        answer(get_status(Guest::new(caller), code, ReturnSlot(data, size)))
    })?;
    Ok(())
}

fn set_effective_context(host: &mut Host, context: u32) -> Result<(), Fault> {
    if !host.has_context(context) {
        return Err(Status::BadArgument.into());
    }
    host.effective = Some(context);
    Ok(())
}

/// Ends a root that delayed its end.
fn done(host: &mut Host) -> Result<(), Fault> {
    let id = host.root_id();
    let root = host.roots.get_mut(&id).filter(|root| root.finishing).ok_or(Status::NotFound)?;
    root.finishing = false;
    host.after.push_back(After::Delete(id));
    Ok(())
}

/// The gRPC status of the callout whose callback is running.
fn get_status(mut guest: Guest<'_>, code: u32, place: ReturnSlot) -> Result<(), Fault> {
    let offered = &guest.host().offered;
    let (status, text) = (offered.status, offered.status_text.clone());
    guest.write_number(code, status)?;
    guest.give(&text, place)
}
