//! Policy discovery: policies for enforcement points that are not Envoys.
//!
//! What is discovered is a [`PolicySet`]: every policy of the revision in force as its user wrote it, and the same
//! compiled, as a plan that our engine loads. Those who enforce with the engine take the plan, which has all that the
//! policies refer to; those who enforce otherwise read the policies. A client says nothing of itself but its address, so
//! all get the same: what a node gets that says nothing of itself either.
//!
//! [`session`] is the protocol of one stream and [`registry`] what all streams have in common (the update in force, who
//! is connected, who answered), both without I/O; [`service`] is tonic around them. Updates are pushed at once; a client
//! that asks by itself is answered as well.

pub mod policy_set;
pub mod registry;
pub mod service;
pub mod session;

pub use policy_set::PolicySet;
pub use registry::{Answer, Registry, Ticket};
pub use service::Discovery;
pub use session::Session;
