//! Access of host calls to the module's memory: every address is checked, and copying costs fuel.

use std::ops::Range;

use wasmtime::{Caller, Linker, Trap};

use crate::wasm::{
    abi::{OK, Status},
    host::Host,
};

/// The module name of the ABI's imports.
pub(super) const ENV: &str = "env";

/// The linker that host calls are added to.
pub(super) type Imports = Linker<Host>;

/// The fuel for a host call, and for each byte that it copies. It limits how long one callback can keep the host busy,
/// and how much it can make the host store. In Envoy a call costs about as much.
const FUEL_PER_CALL: u64 = 1000;
const FUEL_PER_BYTE: u64 = 8;

/// The address and size of bytes in the module's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(pub(super) u32, pub(super) u32);

/// Where a module wants the address and the size of returned bytes to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReturnSlot(pub(super) u32, pub(super) u32);

/// Why a host call failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The module gets this status.
    Status(Status),
    /// The module is ended.
    Trap(wasmtime::Error),
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// The result of a host call for the module: a status, or a trap.
pub(super) fn answer(outcome: Result<(), Fault>) -> wasmtime::Result<u32> {
    match outcome {
        Ok(()) => Ok(OK),
        Err(Fault::Status(status)) => Ok(status as u32),
        Err(Fault::Trap(error)) => Err(error),
    }
}

/// The calling module, with the state of its host.
pub(super) struct Guest<'caller> {
    caller: Caller<'caller, Host>,
}

impl<'caller> Guest<'caller> {
    pub(super) fn new(caller: Caller<'caller, Host>) -> Self {
        Self { caller }
    }

    pub(super) fn host(&mut self) -> &mut Host {
        self.caller.data_mut()
    }

    /// Copies bytes from the module's memory.
    pub(super) fn read(&mut self, span: Span) -> Result<Vec<u8>, Fault> {
        let range = self.check(span)?;
        self.charge(span.1)?;
        let memory = self.caller.data().guest.memory.ok_or(Status::InvalidMemoryAccess)?;
        let bytes = memory.data(&self.caller).get(range).ok_or(Status::InvalidMemoryAccess)?;
        Ok(bytes.to_vec())
    }

    /// Writes bytes to an address in the module's memory.
    pub(super) fn write(&mut self, pointer: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.charge(u32::try_from(bytes.len()).unwrap_or(u32::MAX))?;
        self.store(pointer, bytes)
    }

    fn store(&mut self, pointer: u32, bytes: &[u8]) -> Result<(), Fault> {
        let memory = self.caller.data().guest.memory.ok_or(Status::InvalidMemoryAccess)?;
        let start = usize::try_from(pointer).map_err(|_| Status::InvalidMemoryAccess)?;
        memory.write(&mut self.caller, start, bytes).map_err(|_| Status::InvalidMemoryAccess.into())
    }

    pub(super) fn write_number(&mut self, pointer: u32, number: u32) -> Result<(), Fault> {
        self.write(pointer, &number.to_le_bytes())
    }

    /// Returns bytes to the module in memory that it allocates for them. For no bytes, nothing is allocated, and the
    /// address is 0.
    pub(super) fn give(&mut self, bytes: &[u8], place: ReturnSlot) -> Result<(), Fault> {
        let size = u32::try_from(bytes.len()).map_err(|_| Status::InvalidMemoryAccess)?;
        self.charge(size)?;
        let pointer = if size == 0 { 0 } else { self.allocate(size)? };
        self.store(pointer, bytes)?;
        self.write_number(place.0, pointer)?;
        self.write_number(place.1, size)
    }

    /// Charges the fuel for a host call that copies `bytes` bytes. A trap if none is left.
    pub(super) fn charge(&mut self, bytes: u32) -> Result<(), Fault> {
        let cost = u64::from(bytes).saturating_mul(FUEL_PER_BYTE).saturating_add(FUEL_PER_CALL);
        let fuel = self.caller.get_fuel().map_err(Fault::Trap)?;
        let left = fuel.checked_sub(cost).ok_or(Fault::Trap(Trap::OutOfFuel.into()))?;
        self.caller.set_fuel(left).map_err(Fault::Trap)
    }

    /// The range of a span, or a status if it is outside of the module's memory. Checked before fuel is charged.
    fn check(&self, span: Span) -> Result<Range<usize>, Status> {
        let memory = self.caller.data().guest.memory.ok_or(Status::InvalidMemoryAccess)?;
        let start = usize::try_from(span.0).map_err(|_| Status::InvalidMemoryAccess)?;
        let size = usize::try_from(span.1).map_err(|_| Status::InvalidMemoryAccess)?;
        let end = start.checked_add(size).filter(|end| *end <= memory.data_size(&self.caller));
        Ok(start..end.ok_or(Status::InvalidMemoryAccess)?)
    }

    fn allocate(&mut self, size: u32) -> Result<u32, Fault> {
        let guest = &mut self.host().guest;
        if guest.allocating {
            return Err(Status::InternalFailure.into());
        }
        let allocate = guest.allocate.clone().ok_or(Status::InvalidMemoryAccess)?;
        guest.allocating = true;
        let pointer = allocate.call(&mut self.caller, size);
        self.host().guest.allocating = false;
        match pointer.map_err(Fault::Trap)? {
            0 => Err(Status::InvalidMemoryAccess.into()),
            pointer => Ok(pointer),
        }
    }
}
