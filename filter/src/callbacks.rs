//! The callbacks of proxy-wasm ABI 0.2.1 that this module exports. There are no more than it needs: Envoy skips a
//! callback that a module does not export, and each useless one would cost every request about a microsecond.

#![expect(unsafe_code, reason = "an export under a fixed name is an unsafe attribute; nothing here is unsafe to call")]

use crate::{host, plugin};

/// Marks the ABI of this module. Envoy looks for the name and never calls it.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// Allocates memory for what Envoy hands over; [`host`] takes it over.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    host::allocate(size)
}

/// A context begins: a root context (a plugin's configuration) without a parent, or a stream whose parent is a root
/// context.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    plugin::create(context, parent);
}

/// A root context gets its configuration. `false` makes Envoy refuse the update and keep the previous one.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(root: u32, size: usize) -> bool {
    plugin::configure(root, size)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(stream: u32, _count: u32, end_of_stream: u32) -> u32 {
    plugin::on_request_headers(stream, end_of_stream != 0) as u32
}

/// Called for requests that have a body. `size` is the part of it that has come so far while the request is paused.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(stream: u32, size: usize, end_of_stream: u32) -> u32 {
    plugin::on_request_body(stream, size, end_of_stream != 0) as u32
}

/// Called for requests that end with trailers. Their body has ended too.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(stream: u32, _count: u32) -> u32 {
    plugin::on_request_trailers(stream) as u32
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(stream: u32, _count: u32, _end_of_stream: u32) -> u32 {
    plugin::on_response_headers(stream) as u32
}

/// Called at intervals for a root context while streams of it wait for a time.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(root: u32) {
    plugin::on_tick(root);
}

/// A call to a collector is over. There is nothing to do, but without this export Envoy would keep the call until the
/// VM is called for something else.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(_root: u32, _call: u32, _headers: u32, _body_size: usize, _trailers: u32) {}

/// A collector that was called by gRPC has answered. There is nothing to do.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_receive(_root: u32, _call: u32, _size: usize) {}

/// A gRPC call to a collector is over. There is nothing to do.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_close(_root: u32, _call: u32, _status: u32) {}

/// A context ends.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(context: u32) {
    plugin::delete(context);
}
