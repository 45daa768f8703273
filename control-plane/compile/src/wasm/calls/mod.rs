//! The host calls of ABI 0.2.1, one file a subject: what a module can import. They read and change
//! [`Host`](super::host::Host); its state is declared outside of this folder.

mod buffers;
mod clock;
mod contexts;
mod foreign;
mod grpc;
mod headers;
mod http;
mod logging;
mod memory;
mod metrics;
mod properties;
mod queues;
mod shared_data;
mod streams;
mod wasi;

use wasmtime::Engine;

use self::memory::Imports;

/// All imports of ABI 0.2.1.
pub(super) fn imports(engine: &Engine) -> wasmtime::Result<Imports> {
    let mut imports = Imports::new(engine);
    logging::link(&mut imports)?;
    clock::link(&mut imports)?;
    buffers::link(&mut imports)?;
    headers::link(&mut imports)?;
    streams::link(&mut imports)?;
    contexts::link(&mut imports)?;
    properties::link(&mut imports)?;
    shared_data::link(&mut imports)?;
    queues::link(&mut imports)?;
    http::link(&mut imports)?;
    grpc::link(&mut imports)?;
    metrics::link(&mut imports)?;
    foreign::link(&mut imports)?;
    wasi::link(&mut imports)?;
    Ok(imports)
}
