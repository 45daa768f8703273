//! The program `postern`: [`serve`] ties the layers together; [`http`], [`admin`] and [`cli`] are its faces. Compiling,
//! storing and delivering resources belongs to the layers below.

// `heap.rs` is the exception, and says why.
#![deny(unsafe_code)]

pub mod admin;
pub mod cli;
pub mod control_plane;
mod heap;
pub mod http;
pub mod metrics;
pub mod reload;
pub mod serve;
pub mod source;
