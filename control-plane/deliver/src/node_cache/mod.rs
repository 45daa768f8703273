//! The node cache: relays xDS between an Envoy and the control plane, keeps what the Envoy accepted, and serves that
//! while the control plane is gone.
//!
//! [`tracker`] decides what an Envoy has accepted, and [`deference`] what it is asked to take from a cache; both are
//! pure. [`kept`] is what is kept of a node, and [`shelf`] keeps it in files. [`stream`] handles one stream: it relays
//! while [`upstream`] is there, and otherwise runs the same [`Session`](crate::xds::session::Session) as the control
//! plane on what is kept. [`service`] is the gRPC face, on a [`socket`].

mod deference;
mod kept;
mod protocol;
mod service;
mod shared;
mod shelf;
mod socket;
mod stream;
mod tracker;
mod upstream;

pub use self::{
    service::NodeCache,
    shared::Options,
    shelf::{Shelf, ShelfError},
    socket::{Address, AddressError, Socket, SocketError},
    upstream::{Upstream, UpstreamError},
};
