//! xDS: the protocol's state for one stream as a pure type, and the gRPC services around it.
//!
//! [`session`] decides what a client is sent; [`content`] is what goes over the wire, encoded once; [`offer`] shares it
//! between streams; [`wire`] reads messages; [`service`] moves bytes.

pub mod content;
pub mod limits;
pub mod offer;
pub mod service;
pub mod session;
mod virtual_hosts;
pub mod wire;

pub use limits::Limits;
pub use offer::Offers;
