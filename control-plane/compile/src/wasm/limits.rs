//! What a module may take: instructions for each callback, memory and table entries for its life.

use wasmtime::ResourceLimiter;

/// The limits of one VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fuel for each callback: about one unit an instruction and a byte copied inside the module, and
    /// [more](super::Filter) for what crosses its border. It is the same on every run and machine.
    pub fuel: u64,
    /// Bytes of linear memory. Growing beyond fails as it does in a browser or in Envoy: the module gets -1.
    pub memory: usize,
    /// Entries of its tables.
    pub table_entries: usize,
}

impl Default for Limits {
    /// About a second of work (a plan of 10,000 routes takes a fortieth of it), 256 MiB.
    fn default() -> Self {
        Self { fuel: 1_000_000_000, memory: 256 << 20, table_entries: 100_000 }
    }
}

/// The part of [`Limits`] that wasmtime asks for, and whether it ever had to refuse.
#[derive(Debug)]
pub(super) struct Limiter {
    limits: Limits,
    refused_memory: bool,
}

impl Limiter {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, refused_memory: false }
    }

    /// Whether the module asked for more memory than it may have: then this is why it trapped.
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
