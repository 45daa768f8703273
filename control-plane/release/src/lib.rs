//! Revisions: what was accepted, where it is stored, which node gets which revision, and what nodes reported about it.
//!
//! [`owner`] is the one thread that changes what is in force; it works on [`releases`] (admission → store → rollout)
//! and publishes [`publication`]. [`fleet`] records who runs what. How resources are compiled is `postern-compile`'s,
//! how they reach nodes is `postern-deliver`'s.

pub mod catalogue;
pub mod condition;
pub mod fleet;
pub mod journal;
pub mod lifecycle;
pub mod owner;
pub mod publication;
pub mod published_keys;
pub mod releases;
pub mod rollout;
pub mod store;
