//! Every call from the filter to Envoy. No other file names one.
//!
//! The imports are declared here and not taken from the crate `proxy-wasm`: its calls panic on unexpected statuses and
//! on headers that are not UTF-8. A panic traps the VM, and a trap costs other requests too. Here everything is bytes,
//! and a status is a value.

#![expect(unsafe_code, reason = "host calls take and return raw memory; each block says why it is sound")]

use std::{ptr, slice};

use postern_engine::{Headers, Response};

use crate::{memory, pairs};

/// A list of headers that Envoy keeps for a stream, under proxy-wasm's number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Map {
    RequestHeaders = 0,
    RequestTrailers = 1,
    ResponseHeaders = 2,
}

/// A host call that failed, and its status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("host call {call} failed with status {status}")]
    Status { call: &'static str, status: u32 },
    #[error("host call {call} returned what cannot be read")]
    Unreadable { call: &'static str },
    #[error("host call {call} was given more than it can take")]
    TooLarge { call: &'static str },
}

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;
const REQUEST_BODY: u32 = 0;
/// A size that asks for the whole of a buffer.
const EVERYTHING: usize = u32::MAX as usize;
const PLUGIN_CONFIGURATION: u32 = 7;
const NO_GRPC_STATUS: i32 = -1;
const REQUEST_STREAM: u32 = 0;
/// Levels of log lines.
pub(crate) const LOG_INFO: u32 = 2;
pub(crate) const LOG_WARNING: u32 = 3;
pub(crate) const LOG_ERROR: u32 = 4;
const COUNTER: u32 = 0;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, message: *const u8, size: usize) -> u32;
    fn proxy_get_buffer_bytes(buffer: u32, start: usize, most: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
        version: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(key: *const u8, key_size: usize, value: *const u8, value_size: usize, version: u32)
    -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize) -> u32;
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_add_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(map: u32, name: *const u8, name_size: usize) -> u32;
    fn proxy_call_foreign_function(
        name: *const u8,
        name_size: usize,
        argument: *const u8,
        argument_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, metric: *mut u32) -> u32;
    fn proxy_increment_metric(metric: u32, by: i64) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_http_call(
        cluster: *const u8,
        cluster_size: usize,
        headers: *const u8,
        headers_size: usize,
        body: *const u8,
        body_size: usize,
        trailers: *const u8,
        trailers_size: usize,
        timeout: u32,
        call: *mut u32,
    ) -> u32;
    fn proxy_grpc_call(
        upstream: *const u8,
        upstream_size: usize,
        service: *const u8,
        service_size: usize,
        method: *const u8,
        method_size: usize,
        metadata: *const u8,
        metadata_size: usize,
        message: *const u8,
        message_size: usize,
        timeout: u32,
        call: *mut u32,
    ) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn random_get(buffer: *mut u8, size: usize) -> u32;
}

/// Memory that Envoy fills and [`receive`] takes back.
#[inline]
pub(crate) fn allocate(size: usize) -> *mut u8 {
    memory::block(size)
}

/// The configuration of the root context that is being configured.
pub(crate) fn plugin_configuration(size: usize) -> Result<Vec<u8>, HostError> {
    let bytes = receive("get_buffer_bytes", |data, length| {
        // SAFETY: `receive` hands over two valid places.
        unsafe { proxy_get_buffer_bytes(PLUGIN_CONFIGURATION, 0, size, data, length) }
    })?;
    Ok(bytes.unwrap_or_default())
}

/// The body of the request, as far as it has come.
pub(crate) fn request_body() -> Result<Vec<u8>, HostError> {
    let bytes = receive("get_buffer_bytes", |data, length| {
        // SAFETY: `receive` hands over two valid places.
        unsafe { proxy_get_buffer_bytes(REQUEST_BODY, 0, EVERYTHING, data, length) }
    })?;
    Ok(bytes.unwrap_or_default())
}

/// Nanoseconds since 1970.
#[inline]
pub(crate) fn now() -> Result<u64, HostError> {
    let mut time = 0;
    // SAFETY: the place is valid for the call.
    let status = unsafe { proxy_get_current_time_nanoseconds(&raw mut time) };
    done("get_current_time_nanoseconds", status).map(|()| time)
}

/// Random bytes, from Envoy's own generator.
pub(crate) fn random() -> Result<[u8; 16], HostError> {
    let mut bytes = [0; 16];
    // SAFETY: the place is valid for the call and as large as it says.
    let status = unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) };
    done("random_get", status).map(|()| bytes)
}

/// Loads a shared value and its version. `None` if it is absent.
#[inline]
pub(crate) fn shared_data(key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
    let mut version = 0;
    let value = receive("get_shared_data", |data, size| {
        // SAFETY: `key` lives through the call, and all places are valid for it.
        unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &raw mut version) }
    })?;
    Ok(value.map(|value| (value, version)))
}

/// Stores a shared value; `false` if its version is no longer this one. Version 0 stores it unconditionally.
#[inline]
pub(crate) fn set_shared_data(key: &str, value: &[u8], version: u32) -> Result<bool, HostError> {
    // SAFETY: both slices live through the call.
    let status = unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), version) };
    if status == CAS_MISMATCH { Ok(false) } else { done("set_shared_data", status).map(|()| true) }
}

/// A property of the stream; `None` if it has none of this path. The parts of the path are separated by NUL.
#[inline]
pub(crate) fn property(path: &str) -> Result<Option<Vec<u8>>, HostError> {
    receive("get_property", |data, size| {
        // SAFETY: `path` lives through the call, and `receive` hands over two valid places.
        unsafe { proxy_get_property(path.as_ptr(), path.len(), data, size) }
    })
}

/// Sets a value in the filter state. Access logs read it as `%FILTER_STATE(wasm.<name>:PLAIN)%`.
#[inline]
pub(crate) fn set_property(name: &str, value: &[u8]) -> Result<(), HostError> {
    // SAFETY: both slices live through the call.
    let status = unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
    done("set_property", status)
}

/// All headers of a message, in one call.
#[inline]
pub(crate) fn headers(map: Map) -> Result<Headers, HostError> {
    let call = "get_header_map_pairs";
    let bytes = receive(call, |data, size| {
        // SAFETY: `receive` hands over two valid places.
        unsafe { proxy_get_header_map_pairs(map as u32, data, size) }
    })?;
    Headers::read(bytes.unwrap_or_default()).ok_or(HostError::Unreadable { call })
}

/// Adds a value to a header.
pub(crate) fn add_header(map: Map, name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: both slices live through the call.
    let status =
        unsafe { proxy_add_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
    done("add_header_map_value", status)
}

/// Sets a header in place of all values that it has.
#[inline]
pub(crate) fn replace_header(map: Map, name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: both slices live through the call.
    let status =
        unsafe { proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
    done("replace_header_map_value", status)
}

/// Removes a header with all its values. It is not an error if it is absent.
#[inline]
pub(crate) fn remove_header(map: Map, name: &str) -> Result<(), HostError> {
    // SAFETY: the slice lives through the call.
    let status = unsafe { proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) };
    if status == NOT_FOUND { Ok(()) } else { done("remove_header_map_value", status) }
}

/// Answers the caller in place of the upstream, once the current callback has returned.
pub(crate) fn send_response(response: &Response) -> Result<(), HostError> {
    let call = "send_local_response";
    let details = "postern";
    let headers = pairs::encode(&response.headers).ok_or(HostError::TooLarge { call })?;
    // SAFETY: all slices live through the call.
    let status = unsafe {
        proxy_send_local_response(
            u32::from(response.status),
            details.as_ptr(),
            details.len(),
            response.body.as_ptr(),
            response.body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC_STATUS,
        )
    };
    done(call, status)
}

/// Calls a native function of the host; `None` if it has none of this name.
pub(crate) fn call_foreign_function(name: &str, argument: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
    receive("call_foreign_function", |data, size| {
        // SAFETY: both slices live through the call, and `receive` hands over two valid places.
        unsafe { proxy_call_foreign_function(name.as_ptr(), name.len(), argument.as_ptr(), argument.len(), data, size) }
    })
}

/// Defines a counter, which Envoy's statistics show as `wasmcustom.<name>`. Each call allocates memory, so call it once
/// for each name and VM.
pub(crate) fn define_counter(name: &str) -> Result<u32, HostError> {
    let mut metric = 0;
    // SAFETY: the slice lives through the call, and the place is valid for it.
    let status = unsafe { proxy_define_metric(COUNTER, name.as_ptr(), name.len(), &raw mut metric) };
    done("define_metric", status).map(|()| metric)
}

/// Adds one to a counter.
pub(crate) fn increment_counter(metric: u32) -> Result<(), HostError> {
    // SAFETY: the call takes and returns plain numbers.
    done("increment_metric", unsafe { proxy_increment_metric(metric, 1) })
}

/// Sets the interval at which `proxy_on_tick` is called for the root of the current context; 0 stops it.
pub(crate) fn set_tick_period(milliseconds: u32) -> Result<(), HostError> {
    // SAFETY: the call takes and returns plain numbers.
    done("set_tick_period_milliseconds", unsafe { proxy_set_tick_period_milliseconds(milliseconds) })
}

/// Makes another context the current one, which later calls concern.
pub(crate) fn act_for(context: u32) -> Result<(), HostError> {
    // SAFETY: the call takes and returns plain numbers.
    done("set_effective_context", unsafe { proxy_set_effective_context(context) })
}

/// Resumes a paused request.
pub(crate) fn continue_request() -> Result<(), HostError> {
    // SAFETY: the call takes and returns plain numbers.
    done("continue_stream", unsafe { proxy_continue_stream(REQUEST_STREAM) })
}

/// Writes a line to Envoy's log, where it shows at this level.
pub(crate) fn log_line(level: u32, line: &str) -> Result<(), HostError> {
    // SAFETY: the slice lives through the call.
    done("log", unsafe { proxy_log(level, line.as_ptr(), line.len()) })
}

/// Posts a body to a cluster. The answer is ignored. The call belongs to the root context, and outlives the stream.
pub(crate) fn post(cluster: &str, headers: &[(&str, &str)], body: &[u8], timeout: u32) -> Result<(), HostError> {
    let call = "http_call";
    let headers = pairs::encode(headers).ok_or(HostError::TooLarge { call })?;
    let mut number = 0;
    // SAFETY: all slices live through the call, and the place is valid for it.
    let status = unsafe {
        proxy_http_call(
            cluster.as_ptr(),
            cluster.len(),
            headers.as_ptr(),
            headers.len(),
            body.as_ptr(),
            body.len(),
            ptr::null(),
            0,
            timeout,
            &raw mut number,
        )
    };
    done(call, status)
}

/// Calls a method of a gRPC service with a message; `upstream` is Envoy's `GrpcService`. The answer is ignored. The
/// call belongs to the root context, and outlives the stream.
pub(crate) fn call_grpc(
    upstream: &[u8],
    [service, method]: [&str; 2],
    message: &[u8],
    timeout: u32,
) -> Result<(), HostError> {
    let mut number = 0;
    // SAFETY: all slices live through the call, and the place is valid for it.
    let status = unsafe {
        proxy_grpc_call(
            upstream.as_ptr(),
            upstream.len(),
            service.as_ptr(),
            service.len(),
            method.as_ptr(),
            method.len(),
            ptr::null(),
            0,
            message.as_ptr(),
            message.len(),
            timeout,
            &raw mut number,
        )
    };
    done("grpc_call", status)
}

/// Sends `log` records to Envoy's log. Safe to call for every root context.
pub(crate) fn install_logger() {
    // A second call finds the logger in place, which is what we want.
    let _ = log::set_logger(&HostLogger);
    log::set_max_level(log::LevelFilter::Debug);
}

struct HostLogger;

impl log::Log for HostLogger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        let level = match record.level() {
            log::Level::Trace => 0,
            log::Level::Debug => 1,
            log::Level::Info => 2,
            log::Level::Warn => 3,
            log::Level::Error => 4,
        };
        let message = record.args().to_string();
        // SAFETY: the slice lives through the call. A log line that Envoy does not take is lost, and nothing else.
        unsafe { proxy_log(level, message.as_ptr(), message.len()) };
    }

    fn flush(&self) {}
}

#[inline]
fn done(call: &'static str, status: u32) -> Result<(), HostError> {
    if status == OK { Ok(()) } else { Err(HostError::Status { call, status }) }
}

/// Makes a call that returns bytes, and takes them over. `None` if the host has nothing of that name.
#[inline]
fn receive(
    call: &'static str,
    ask: impl FnOnce(*mut *mut u8, *mut usize) -> u32,
) -> Result<Option<Vec<u8>>, HostError> {
    let mut data = ptr::null_mut();
    let mut size = 0;
    match ask(&raw mut data, &raw mut size) {
        OK if data.is_null() || size == 0 => Ok(Some(Vec::new())),
        OK => {
            // SAFETY: Envoy got `data` from `allocate(size)` for this call, filled all of it, and gives it up.
            let bytes = unsafe { Box::from_raw(ptr::from_mut(slice::from_raw_parts_mut(data, size))) };
            Ok(Some(bytes.into_vec()))
        }
        NOT_FOUND => Ok(None),
        status => Err(HostError::Status { call, status }),
    }
}
