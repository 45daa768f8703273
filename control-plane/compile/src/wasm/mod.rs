//! A host for the filter: the part of proxy-wasm ABI 0.2.1 that is needed to run the filter's own bytes, under
//! wasmtime.
//!
//! [`Filter`] is a compiled module, [`Vm`] an instance of it: a worker. A VM is [configured](Vm::configure) with a
//! plan, and streams are [opened](Vm::open) on it. The effects of the filter are data: the edited [`Stream`], the
//! [log](Vm::log), [metrics](Vm::metrics), [shared data](SharedData) and [callouts](Vm::callouts), which the VM's user
//! answers. Time is an argument ([`Vm::set_time`]).
//!
//! It owns the ABI and Envoy's behaviour around a callback: what can be read when, what happens only after the callback
//! has returned, and the status of each call. It does not own routing, retries, limits of buffers or I/O.
//!
//! No module can panic the host, run forever, or take more memory than [`Limits`] allows. A module that traps or
//! exceeds a limit ends its VM, and every later call returns an error.

mod abi;
mod callouts;
mod calls;
mod error;
mod events;
mod exports;
mod filter;
mod header_map;
mod host;
mod ids;
mod limits;
mod logging;
mod metrics;
mod pairs;
mod properties;
mod replies;
mod sealed;
mod setup;
mod shared_data;
mod stream;
mod vm;

pub use abi::LogLevel;
pub use callouts::{CallId, Callout, GrpcCall, GrpcMessage, GrpcStream, HttpCall};
pub use error::{CallError, Cause, Crash, HostError, Refused};
pub use filter::Filter;
pub use header_map::HeaderMap;
pub use ids::{RootId, StreamId};
pub use limits::Limits;
pub use logging::LogLine;
pub use metrics::{Metric, MetricKind};
pub use properties::Properties;
pub use replies::HttpReply;
pub(crate) use sealed::SealKey;
pub use setup::{Clusters, HeadersPause, Setup};
pub use shared_data::SharedData;
pub use stream::{Flow, LocalResponse, Message, Stream};
pub use vm::Vm;
