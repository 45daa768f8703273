//! Policy discovery: policies for enforcement points that are not Envoys.
//!
//! What is discovered is a [`PolicySet`](postern_release::publication::PolicySet): policies as their users wrote them and, for clients that ask, the same compiled,
//! as a plan that our engine loads. Those who enforce with the engine take the plan, which has all that the policies refer
//! to; those who enforce otherwise read the policies. A client that says who it is gets the policies that concern it, as a
//! node would; one that says nothing of itself but its address gets all of the default mesh, and no plan.
//!
//! An [`Update`] is what clients are sent. [`session`] is the protocol of one stream and [`registry`] what all streams have in
//! common (what each client is to have, who is connected, who answered), both without I/O; [`clients`] keeps the registry up
//! with what is published, and [`service`] is tonic around them. Updates are pushed at once; a client that asks by itself is answered as well.

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
