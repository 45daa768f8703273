//! Policy discovery: policies for enforcement points that are not Envoys (docs/rules.md, Policy discovery).
//!
//! A client gets a [`PolicySet`](postern_release::publication::PolicySet): policies as their users wrote them and, on
//! request, the same compiled, as a plan that our engine loads. Clients with the engine take the plan, which has
//! everything that the policies refer to; others read the policies. A client with an identity gets the policies that
//! concern it, as a node would; one with an address only gets all policies of the default mesh, and no plan.
//!
//! An [`Update`] is what clients are sent. [`session`] is the protocol of one stream, and [`registry`] is what all
//! streams share (who is connected, what each client is to have, who answered); both are free of I/O. [`clients`] keeps
//! the registry current, and [`service`] is the gRPC service. Updates are pushed at once; requests are answered as
//! well.

pub mod clients;
mod identity;
pub mod registry;
pub mod report;
pub mod service;
pub mod session;
pub mod update;

pub use clients::Clients;
pub use postern_release::publication::PolicySet;
pub use registry::{Assignment, Registry, Ticket};
pub use report::{ClientReport, ClientState, GroupReport};
pub use service::{Discovery, Options};
pub use session::Session;
pub use update::{Acknowledgement, Update};
