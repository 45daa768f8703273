//! A filter's code, compiled.

use std::hash::{Hash as _, Hasher};

use postern_base::digest::Digest;
use sha2::{Digest as _, Sha256};
use wasmtime::{Config, Engine, InstancePre, Module};

use super::{HostError, Setup, Vm, calls, host::Host, sealed::Genuine};

/// The export that marks the supported ABI.
const ABI: &str = "proxy_abi_version_0_2_1";

/// A compiled filter, from which any number of VMs start. Compiling takes a good part of a second, starting a fraction
/// of a millisecond.
///
/// Its code is instrumented to count fuel: about one unit an instruction, one a byte in bulk operations, eight a byte
/// that crosses the module's border, and a thousand a host call.
#[derive(Clone)]
pub struct Filter {
    module: Module,
    linked: InstancePre<Host>,
}

impl Filter {
    /// Compiles a module. An error if it has another ABI, or imports what that does not have.
    pub fn compile(code: &[u8]) -> Result<Self, HostError> {
        let engine = engine()?;
        let module = Module::from_binary(&engine, code).map_err(compile_error)?;
        Self::link(module)
    }

    /// A [serialized](Self::serialize) filter, without compiling it again.
    pub(crate) fn restore(module: &Genuine<'_>) -> Result<Self, HostError> {
        let module = module.module(&engine()?).map_err(|error| HostError::Restore(format!("{error:#}")))?;
        Self::link(module)
    }

    /// The compiled module, for a cache.
    pub fn serialize(&self) -> Result<Vec<u8>, HostError> {
        self.module.serialize().map_err(|error| HostError::Serialize(format!("{error:#}")))
    }

    /// The digest of everything except the code on which a compiled module depends: wasmtime's version, its
    /// configuration and the processor.
    pub(crate) fn environment() -> Result<Digest, HostError> {
        let mut bytes = Hashed::default();
        engine()?.precompile_compatibility_hash().hash(&mut bytes);
        Ok(Digest::of(&bytes.0.finalize()))
    }

    /// Starts a VM with the code loaded and no configuration: a worker.
    pub fn start(&self, setup: Setup) -> Result<Vm, HostError> {
        Vm::start(&self.linked, setup)
    }

    fn link(module: Module) -> Result<Self, HostError> {
        if module.get_export(ABI).is_none() {
            return Err(HostError::Missing(ABI));
        }
        let link_error = |error: wasmtime::Error| HostError::Link(format!("{error:#}"));
        let imports = calls::imports(module.engine()).map_err(link_error)?;
        let linked = imports.instantiate_pre(&module).map_err(link_error)?;
        Ok(Self { module, linked })
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Filter").finish_non_exhaustive()
    }
}

/// A hasher for SHA-256, since the standard hashers differ between processes and are too short.
#[derive(Default)]
struct Hashed(Sha256);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        digest.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
    }
}

fn compile_error(error: wasmtime::Error) -> HostError {
    HostError::Compile(format!("{error:#}"))
}

fn engine() -> Result<Engine, HostError> {
    let mut config = Config::new();
    config.consume_fuel(true);
    // Errors name the callback. Frames of a stripped module would add nothing.
    config.wasm_backtrace_max_frames(None);
    Engine::new(&config).map_err(compile_error)
}
