//! The harness: real Envoys, the real `postern` program and a real upstream. Each is ended when its guard is dropped.
//!
//! Nothing here asserts what is right; tests and the demo do.

#![forbid(unsafe_code)]

pub mod bench;
pub mod client;
pub mod collector;
pub mod control_plane;
pub mod crash;
pub mod envoy;
pub mod grpc_collector;
pub mod grpc_health;
pub mod http2;
pub mod key_server;
pub mod log_receiver;
pub mod nameless;
pub mod node_cache;
pub mod pki;
pub mod process;
pub mod raw;
pub mod site;
pub mod tls;
pub mod upstream;
pub mod wait;

pub use client::{Client, Received, Request};
pub use collector::Collector;
pub use control_plane::ControlPlane;
pub use envoy::{Envoy, Release};
pub use grpc_collector::GrpcCollector;
pub use grpc_health::GrpcHealth;
pub use log_receiver::LogReceiver;
pub use node_cache::NodeCache;
pub use site::Site;
pub use tls::TlsClient;
pub use upstream::Upstream;
