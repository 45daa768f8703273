//! A host for the filter: enough of proxy-wasm ABI 0.2.1 under wasmtime to run the very bytes that an Envoy runs.
//!
//! [`Filter`] is a compiled module, [`Vm`] one instance of it: a worker. A VM is [configured](Vm::configure) with a
//! plan, streams are [opened](Vm::open) on it, and what the filter does to them is data: the [`Stream`] as edited, the
//! [log](Vm::log), [metrics](Vm::metrics), [shared data](SharedData) and [callouts](Vm::callouts), which are answered
//! by whoever drives the VM. Time is an argument too ([`Vm::set_time`]).
//!
//! It owns the ABI and what Envoy does around a callback: what may be read when, what is carried out only after the
//! callback returned, which statuses a call has. It does not own routing, retries, buffers' limits or any I/O.
//!
//! Nothing that a module does can panic the host, run for ever or take more memory than [`Limits`] says: a module that
//! traps, or that a limit stops, ends its VM, and every later call says so.

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
