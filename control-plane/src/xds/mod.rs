//! xDS: the protocol's state for one stream as a pure type, and the gRPC service around it.

pub mod service;
pub mod session;
