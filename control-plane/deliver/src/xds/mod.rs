//! xDS: the protocol state of one stream as a pure type, and the gRPC services around it (docs/rules.md, xDS).
//!
//! [`session`] decides what a client is sent; [`content`] is the encoded response; [`offer`] shares responses between
//! streams; [`wire`] reads messages; [`service`] does the I/O.

pub mod content;
pub mod limits;
pub mod offer;
pub mod service;
pub mod session;
mod virtual_hosts;
pub mod wire;

pub use limits::Limits;
pub use offer::Offers;
