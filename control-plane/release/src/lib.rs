//! Revisions: what was accepted, where it is kept, which node gets which of them, and what nodes said about it.
//!
//! [`owner`] is the one thread that changes what is in force; [`releases`] (admission → store → rollout) is what it works on,
//! [`publication`] what it publishes. [`fleet`] knows who runs what.

pub mod catalogue;
pub mod condition;
pub mod fleet;
pub mod journal;
pub mod lifecycle;
pub mod owner;
pub mod publication;
pub mod releases;
pub mod rollout;
pub mod store;
