//! The callbacks of proxy-wasm ABI 0.2.1 that Envoy finds in this module, and no more: Envoy skips a callback that a
//! module does not export, and each one called for nothing costs every request about a microsecond.

#![expect(unsafe_code, reason = "an export under a fixed name is an unsafe attribute; nothing here is unsafe to call")]

use crate::{host, plugin};

/// Says which ABI this module speaks. Envoy looks for the name and never calls it.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// Memory for what Envoy hands over; [`host`] takes it back.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    host::allocate(size)
}

/// A root context (a plugin's configuration; no parent) or a stream (its parent is a root) begins.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    plugin::create(context, parent);
}

/// A root context gets its configuration. `false` makes Envoy refuse the update and keep the one before.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(root: u32, size: usize) -> bool {
    plugin::configure(root, size)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(stream: u32, _count: u32, end_of_stream: u32) -> u32 {
    plugin::on_request_headers(stream, end_of_stream != 0) as u32
}

/// Called for requests that have a body; `size` is all of it that came so far, while the request is paused.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(stream: u32, size: usize, end_of_stream: u32) -> u32 {
    plugin::on_request_body(stream, size, end_of_stream != 0) as u32
}

/// Called for requests that end with trailers: their body has ended too.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(stream: u32, _count: u32) -> u32 {
    plugin::on_request_trailers(stream) as u32
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(stream: u32, _count: u32, _end_of_stream: u32) -> u32 {
    plugin::on_response_headers(stream) as u32
}

/// Called now and then for a root whose streams wait for a time.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(root: u32) {
    plugin::on_tick(root);
}

/// A collector has answered, or did not. Nothing is left to do, but without this export Envoy would keep the call until
/// the VM is called for something else.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(_root: u32, _call: u32, _headers: u32, _body_size: usize, _trailers: u32) {}

/// The same for a collector that was called by gRPC: it has answered …
#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_receive(_root: u32, _call: u32, _size: usize) {}

/// … or did not.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_close(_root: u32, _call: u32, _status: u32) {}

/// A context ends.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(context: u32) {
    plugin::delete(context);
}
