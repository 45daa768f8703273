//! Which route of a gateway a request takes: what Envoy does with the routes that we generate, as a pure function.

mod headers;
#[cfg(test)]
mod testing;

pub use headers::{headers_of_route, matched_headers};
