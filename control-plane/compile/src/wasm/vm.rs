//! An instance of a filter: a worker's VM. Starts, configures, calls and ends it. Streams are in
//! [`events`](super::events), answers to callouts in [`replies`](super::replies).

use std::time::Duration;

use wasmtime::{InstancePre, Store, Trap, TypedFunc, WasmParams, WasmResults};

use super::{
    CallError, CallId, Callout, Cause, Crash, HostError, LogLine, Metric, Properties, Refused, RootId, Setup,
    SharedData, Stream, StreamId,
    exports::{self, Exports},
    host::{After, Host, Root},
};

/// A worker's VM.
///
/// A call in which the filter traps or exceeds a limit ends the VM: every later call returns [`CallError::Ended`].
/// Earlier effects stay visible.
pub struct Vm {
    store: Store<Host>,
    pub(super) exports: Exports,
    ended: Option<Crash>,
    settling: bool,
}

impl Vm {
    pub(super) fn start(linked: &InstancePre<Host>, setup: Setup) -> Result<Self, HostError> {
        let (engine, limits) = (linked.module().engine(), setup.limits);
        let mut store = Store::new(engine, Host::new(setup));
        store.limiter(|host| &mut host.limiter);
        let instance = store.set_fuel(limits.fuel).and_then(|()| linked.instantiate(&mut store));
        let instance = instance.map_err(|error| crash(&store, "start", 0, &error))?;
        let memory = instance.get_memory(&mut store, "memory").ok_or(HostError::Missing("memory"))?;
        let mut allocate = exports::callback(&instance, &mut store, "malloc")?;
        if allocate.is_none() {
            allocate = exports::callback(&instance, &mut store, "proxy_on_memory_allocate")?;
        }
        let guest = &mut store.data_mut().guest;
        guest.memory = Some(memory);
        guest.allocate = Some(allocate.ok_or(HostError::Missing("proxy_on_memory_allocate"))?);
        let mut initialize: Option<TypedFunc<(), ()>> = exports::callback(&instance, &mut store, "_initialize")?;
        if initialize.is_none() {
            initialize = exports::callback(&instance, &mut store, "_start")?;
        }
        let exports = Exports::find(&instance, &mut store)?;
        let mut vm = Self { store, exports, ended: None, settling: false };
        vm.run("start", initialize, ())?;
        Ok(vm)
    }

    /// Creates a root context with this configuration, as Envoy does for an update. Open streams stay on their root. If
    /// the filter refuses the configuration, no root is left.
    pub fn configure(&mut self, configuration: &[u8]) -> Result<RootId, Refused> {
        self.check_alive()?;
        let mark = self.host().log.len();
        let id = RootId(self.host_mut().next_context());
        let root = Root { configuration: Some(configuration.to_vec()), ..Root::default() };
        self.host_mut().roots.insert(id, root);
        let accepted = self.offer_configuration(id, count(configuration.len()))?;
        if let Some(root) = self.host_mut().roots.get_mut(&id) {
            root.configuration = None;
        }
        if accepted {
            return Ok(id);
        }
        let log = self.host().log.get(mark..).unwrap_or_default().to_vec();
        self.delete_root(id)?;
        Err(Refused::Declined { log })
    }

    /// Ends a root, as Envoy does after its last stream. Returns whether it is gone: a filter can delay the end
    /// (`proxy_on_done` returns false) until it calls `proxy_done`.
    pub fn retire(&mut self, root: RootId) -> Result<bool, CallError> {
        self.check_root(root)?;
        let finished = self.call(root.0, "proxy_on_done", self.exports.done.clone(), root.0)?;
        if finished.is_none_or(|finished| finished != 0) {
            self.delete_root(root)?;
            return Ok(true);
        }
        if let Some(root) = self.host_mut().roots.get_mut(&root) {
            root.finishing = true;
        }
        self.settle()?;
        Ok(!self.host().roots.contains_key(&root))
    }

    /// Calls the timer callback of a root, whatever the time is.
    pub fn tick(&mut self, root: RootId) -> Result<(), CallError> {
        self.check_root(root)?;
        self.call(root.0, "proxy_on_tick", self.exports.tick.clone(), root.0)?;
        self.settle()
    }

    /// The timer interval of a root. `None` if it has no timer.
    pub fn tick_period(&self, root: RootId) -> Option<Duration> {
        self.host().roots.get(&root).and_then(|root| root.tick_period)
    }

    /// Sets the clock, since 1970. It does not advance by itself.
    pub fn set_time(&mut self, since_1970: Duration) {
        self.host_mut().now = since_1970;
    }

    /// The state of an open stream. `None` if it is not open.
    pub fn stream(&self, stream: StreamId) -> Option<&Stream> {
        self.host().streams.get(&stream)
    }

    /// Replaces the properties that Envoy provides of an open stream, as when it takes another route.
    pub fn provide(&mut self, stream: StreamId, properties: Properties) {
        if let Some(stream) = self.host_mut().streams.get_mut(&stream) {
            stream.provide(properties);
        }
    }

    /// The lines logged since the start or the last [`take_log`](Self::take_log).
    pub fn log(&self) -> &[LogLine] {
        &self.host().log
    }

    /// Like [`Self::log`], and clears the log.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.host_mut().log)
    }

    /// The metrics that the filter defined.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.host().metrics.iter()
    }

    /// The callouts in progress, by kind, the oldest first.
    pub fn callouts(&self) -> impl Iterator<Item = (CallId, &Callout)> {
        self.host().callouts.under_way.iter().map(|(id, callout)| (*id, callout))
    }

    /// The shared data of this VM.
    pub fn shared_data(&self) -> &SharedData {
        &self.host().setup.shared_data
    }

    /// The fuel that the last callback used, which is the same on every run.
    pub fn fuel_used(&self) -> u64 {
        let left = self.store.get_fuel().unwrap_or_default();
        self.host().setup.limits.fuel.saturating_sub(left)
    }

    /// The size of the module's memory, in bytes.
    pub fn memory_size(&self) -> usize {
        self.host().guest.memory.map_or(0, |memory| memory.data_size(&self.store))
    }

    pub(super) fn host(&self) -> &Host {
        self.store.data()
    }

    pub(super) fn host_mut(&mut self) -> &mut Host {
        self.store.data_mut()
    }

    pub(super) fn check_alive(&self) -> Result<(), CallError> {
        self.ended.as_ref().map_or(Ok(()), |crash| Err(CallError::Ended(crash.clone())))
    }

    pub(super) fn check_root(&self, root: RootId) -> Result<(), CallError> {
        self.check_alive()?;
        let known = self.host().roots.contains_key(&root);
        if known { Ok(()) } else { Err(CallError::Unknown { what: "root context", number: root.0 }) }
    }

    /// Calls a callback in a context. `None` if the module does not export it.
    pub(super) fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        context: u32,
        name: &'static str,
        callback: Option<TypedFunc<P, R>>,
        parameters: P,
    ) -> Result<Option<R>, CallError> {
        self.check_alive()?;
        self.host_mut().current = context;
        self.host_mut().effective = None;
        Ok(self.run(name, callback, parameters)?)
    }

    /// Carries out the actions that callbacks requested. Callbacks that run meanwhile add to the same list, so that the
    /// recursion is bounded even if streams resume each other.
    pub(super) fn settle(&mut self) -> Result<(), CallError> {
        if self.settling {
            return Ok(());
        }
        self.settling = true;
        let outcome = self.carry_out();
        self.settling = false;
        outcome
    }

    fn carry_out(&mut self) -> Result<(), CallError> {
        while let Some(action) = self.host_mut().after.pop_front() {
            match action {
                After::GoOn(stream, direction) => self.go_on(stream, direction)?,
                After::Answer(stream, response) => self.answer(stream, response)?,
                After::Reset(stream) => self.reset(stream),
                After::Delete(root) => self.delete_root(root)?,
            }
        }
        Ok(())
    }

    fn offer_configuration(&mut self, id: RootId, size: u32) -> Result<bool, CallError> {
        self.call(id.0, "proxy_on_context_create", self.exports.context_create.clone(), (id.0, 0))?;
        let started = self.call(id.0, "proxy_on_vm_start", self.exports.vm_start.clone(), (id.0, 0))?;
        if started == Some(0) {
            return Ok(false);
        }
        let accepted = self.call(id.0, "proxy_on_configure", self.exports.configure.clone(), (id.0, size))?;
        self.settle()?;
        Ok(accepted != Some(0))
    }

    fn delete_root(&mut self, id: RootId) -> Result<(), CallError> {
        self.call(id.0, "proxy_on_delete", self.exports.delete.clone(), id.0)?;
        let host = self.host_mut();
        host.roots.remove(&id);
        host.callouts.under_way.retain(|_, callout| callout.root() != id);
        Ok(())
    }

    fn run<P: WasmParams, R: WasmResults>(
        &mut self,
        name: &'static str,
        callback: Option<TypedFunc<P, R>>,
        parameters: P,
    ) -> Result<Option<R>, Crash> {
        let Some(callback) = callback else { return Ok(None) };
        let (mark, fuel) = (self.host().log.len(), self.host().setup.limits.fuel);
        let outcome = self.store.set_fuel(fuel).and_then(|()| callback.call(&mut self.store, parameters));
        outcome.map(Some).map_err(|error| {
            let crash = crash(&self.store, name, mark, &error);
            self.ended = Some(crash.clone());
            crash
        })
    }
}

impl std::fmt::Debug for Vm {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Vm").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// A size as a number of the ABI.
pub(super) fn count(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn crash(store: &Store<Host>, callback: &'static str, mark: usize, error: &wasmtime::Error) -> Crash {
    let host = store.data();
    let limits = host.setup.limits;
    let cause = match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Cause::Fuel { fuel: limits.fuel },
        _ if host.limiter.refused_memory() => Cause::Memory { bytes: limits.memory },
        _ => Cause::Trap(format!("{error:#}")),
    };
    Crash { callback, cause, log: host.log.get(mark..).unwrap_or_default().to_vec() }
}
