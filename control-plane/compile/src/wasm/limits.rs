//! Limits of a module: fuel for each callback, memory and table entries for the VM.

use wasmtime::ResourceLimiter;

/// The limits of one VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The fuel for each callback: about one unit for an instruction or a byte copied inside the module, and
    /// [more](super::Filter) for what crosses its border. Fuel is deterministic.
    pub fuel: u64,
    /// The largest linear memory, in bytes. Beyond it, growing fails as in a browser or in Envoy: the module gets -1.
    pub memory: usize,
    /// The largest number of table entries.
    pub table_entries: usize,
}

impl Default for Limits {
    /// Fuel for about a second (a plan of 10,000 routes takes a fortieth of it), and 256 MiB of memory.
    fn default() -> Self {
        Self { fuel: 1_000_000_000, memory: 256 << 20, table_entries: 100_000 }
    }
}

/// Enforces the limits of memory and tables for wasmtime, and records refusals.
#[derive(Debug)]
pub(super) struct Limiter {
    limits: Limits,
    refused_memory: bool,
}

impl Limiter {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, refused_memory: false }
    }

    /// Whether the module was refused memory, which explains a trap.
    pub(super) fn refused_memory(&self) -> bool {
        self.refused_memory
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, _current: usize, desired: usize, _most: Option<usize>) -> wasmtime::Result<bool> {
        let allowed = desired <= self.limits.memory;
        self.refused_memory |= !allowed;
        Ok(allowed)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _most: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= self.limits.table_entries)
    }

    fn instances(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }
}
