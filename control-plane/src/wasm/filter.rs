//! A filter's code, compiled.

use wasmtime::{Config, Engine, InstancePre, Linker, Module};

use super::{
    HostError, Setup, Vm, buffers, callouts, clock, contexts, foreign, grpc, headers, host::Host, logging, metrics,
    properties, queues, shared_data, streams, wasi,
};

/// The mark of the one ABI that we speak.
const ABI: &str = "proxy_abi_version_0_2_1";

/// A compiled filter, from which any number of VMs start. Compiling takes a good part of a second; starting takes a
/// fraction of a millisecond.
///
/// Its code is instrumented to count fuel: about one unit an instruction, one a byte in bulk operations, eight a byte
/// that crosses the module's border, and a thousand a host call.
#[derive(Clone)]
pub struct Filter {
    module: Module,
    linked: InstancePre<Host>,
}

impl Filter {
    /// Compiles a module, and checks that it speaks our ABI and imports nothing beyond it.
    pub fn compile(code: &[u8]) -> Result<Self, HostError> {
        let compile_error = |error: wasmtime::Error| HostError::Compile(format!("{error:#}"));
        let engine = Engine::new(&config()).map_err(compile_error)?;
        let module = Module::from_binary(&engine, code).map_err(compile_error)?;
        if module.get_export(ABI).is_none() {
            return Err(HostError::Missing(ABI));
        }
        let link_error = |error: wasmtime::Error| HostError::Link(format!("{error:#}"));
        let imports = imports(&engine).map_err(link_error)?;
        let linked = imports.instantiate_pre(&module).map_err(link_error)?;
        Ok(Self { module, linked })
    }

    /// The compiled module, for a cache.
    ///
    /// There is no way back yet: wasmtime's `Module::deserialize` is unsafe, since it runs whatever machine code it is
    /// given, and this crate forbids unsafe code. Whoever adds it must authenticate the bytes first, and keep them
    /// apart by wasmtime's version and the filter's digest.
    pub fn serialize(&self) -> Result<Vec<u8>, HostError> {
        self.module.serialize().map_err(|error| HostError::Serialize(format!("{error:#}")))
    }

    /// Starts a VM: a worker that has loaded the code, and no configuration yet.
    pub fn start(&self, setup: Setup) -> Result<Vm, HostError> {
        Vm::start(&self.linked, setup)
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Filter").finish_non_exhaustive()
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.consume_fuel(true);
    // An error names the callback; frames of a stripped module would say nothing more.
    config.wasm_backtrace_max_frames(None);
    config
}

/// Every import that a module of ABI 0.2.1 may have.
fn imports(engine: &Engine) -> wasmtime::Result<Linker<Host>> {
    let mut imports = Linker::new(engine);
    logging::link(&mut imports)?;
    clock::link(&mut imports)?;
    buffers::link(&mut imports)?;
    headers::link(&mut imports)?;
    streams::link(&mut imports)?;
    contexts::link(&mut imports)?;
    properties::link(&mut imports)?;
    shared_data::link(&mut imports)?;
    queues::link(&mut imports)?;
    callouts::link(&mut imports)?;
    grpc::link(&mut imports)?;
    metrics::link(&mut imports)?;
    foreign::link(&mut imports)?;
    wasi::link(&mut imports)?;
    Ok(imports)
}
