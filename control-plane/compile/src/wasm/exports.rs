//! The module's callbacks. As in Envoy, a callback that is not exported is skipped.

use wasmtime::{Instance, Store, TypedFunc, WasmParams, WasmResults};

use super::{HostError, abi::Direction, host::Host};

type Callback<P, R = ()> = Option<TypedFunc<P, R>>;

/// The callbacks of a module.
pub(super) struct Exports {
    pub(super) context_create: Callback<(u32, u32)>,
    pub(super) vm_start: Callback<(u32, u32), u32>,
    pub(super) configure: Callback<(u32, u32), u32>,
    pub(super) tick: Callback<u32>,
    pub(super) http_call_response: Callback<(u32, u32, u32, u32, u32)>,
    pub(super) grpc_initial_metadata: Callback<(u32, u32, u32)>,
    pub(super) grpc_receive: Callback<(u32, u32, u32)>,
    pub(super) grpc_trailing_metadata: Callback<(u32, u32, u32)>,
    pub(super) grpc_close: Callback<(u32, u32, u32)>,
    pub(super) done: Callback<u32, u32>,
    pub(super) log: Callback<u32>,
    pub(super) delete: Callback<u32>,
    request: MessageCallbacks,
    response: MessageCallbacks,
}

/// The callbacks for one direction of a stream.
pub(super) struct MessageCallbacks {
    pub(super) headers: (&'static str, Callback<(u32, u32, u32), u32>),
    pub(super) body: (&'static str, Callback<(u32, u32, u32), u32>),
    pub(super) trailers: (&'static str, Callback<(u32, u32), u32>),
}

impl Exports {
    pub(super) fn find(instance: &Instance, store: &mut Store<Host>) -> Result<Self, HostError> {
        Ok(Self {
            context_create: callback(instance, store, "proxy_on_context_create")?,
            vm_start: callback(instance, store, "proxy_on_vm_start")?,
            configure: callback(instance, store, "proxy_on_configure")?,
            tick: callback(instance, store, "proxy_on_tick")?,
            http_call_response: callback(instance, store, "proxy_on_http_call_response")?,
            grpc_initial_metadata: callback(instance, store, "proxy_on_grpc_receive_initial_metadata")?,
            grpc_receive: callback(instance, store, "proxy_on_grpc_receive")?,
            grpc_trailing_metadata: callback(instance, store, "proxy_on_grpc_receive_trailing_metadata")?,
            grpc_close: callback(instance, store, "proxy_on_grpc_close")?,
            done: callback(instance, store, "proxy_on_done")?,
            log: callback(instance, store, "proxy_on_log")?,
            delete: callback(instance, store, "proxy_on_delete")?,
            request: MessageCallbacks {
                headers: named(instance, store, "proxy_on_request_headers")?,
                body: named(instance, store, "proxy_on_request_body")?,
                trailers: named(instance, store, "proxy_on_request_trailers")?,
            },
            response: MessageCallbacks {
                headers: named(instance, store, "proxy_on_response_headers")?,
                body: named(instance, store, "proxy_on_response_body")?,
                trailers: named(instance, store, "proxy_on_response_trailers")?,
            },
        })
    }

    pub(super) fn of(&self, direction: Direction) -> &MessageCallbacks {
        match direction {
            Direction::Request => &self.request,
            Direction::Response => &self.response,
        }
    }
}

/// An exported function. `None` if there is none; an error if it has another signature.
pub(super) fn callback<P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<Host>,
    name: &'static str,
) -> Result<Callback<P, R>, HostError> {
    let Some(function) = instance.get_func(&mut *store, name) else { return Ok(None) };
    let typed = function.typed(&*store).map_err(|error| HostError::Signature { name, cause: format!("{error:#}") })?;
    Ok(Some(typed))
}

fn named<P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<Host>,
    name: &'static str,
) -> Result<(&'static str, Callback<P, R>), HostError> {
    Ok((name, callback(instance, store, name)?))
}
