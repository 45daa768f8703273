//! Host calls on time: the clock stands still until it is set, and ticks happen only when requested.

use std::time::Duration;

use wasmtime::Caller;

use super::memory::{ENV, Fault, Guest, Imports, answer};
use crate::wasm::host::Host;

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(ENV, "proxy_get_current_time_nanoseconds", |caller: Caller<'_, Host>, time: u32| {
        answer(current_time(Guest::new(caller), time))
    })?;
    imports.func_wrap(ENV, "proxy_set_tick_period_milliseconds", |mut caller: Caller<'_, Host>, period: u32| {
        if let Some(root) = caller.data_mut().root_mut() {
            root.tick_period = Some(Duration::from_millis(period.into())).filter(|period| !period.is_zero());
        }
        answer(Ok(()))
    })?;
    Ok(())
}

fn current_time(mut guest: Guest<'_>, place: u32) -> Result<(), Fault> {
    let now = guest.host().nanoseconds();
    guest.write(place, &now.to_le_bytes())
}
