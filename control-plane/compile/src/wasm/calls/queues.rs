//! Host calls on shared queues: linked, since modules may import them, but not implemented.

use wasmtime::Caller;

use super::memory::{ENV, Imports, answer};
use crate::wasm::{abi::Status, host::Host};

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    let refused = || answer(Err(Status::Unimplemented.into()));
    imports
        .func_wrap(ENV, "proxy_register_shared_queue", move |_: Caller<'_, Host>, _: u32, _: u32, _: u32| refused())?;
    imports.func_wrap(
        ENV,
        "proxy_resolve_shared_queue",
        move |_: Caller<'_, Host>, _: u32, _: u32, _: u32, _: u32, _: u32| refused(),
    )?;
    imports
        .func_wrap(ENV, "proxy_dequeue_shared_queue", move |_: Caller<'_, Host>, _: u32, _: u32, _: u32| refused())?;
    imports
        .func_wrap(ENV, "proxy_enqueue_shared_queue", move |_: Caller<'_, Host>, _: u32, _: u32, _: u32| refused())?;
    Ok(())
}
