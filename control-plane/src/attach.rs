//! Attachment: which chain guards which route. It owns the choice, not the chains' meaning.
//!
//! A route has at most one `RoutePolicy` today, which the model guarantees; levels and merging find their place here.

use std::collections::BTreeMap;

use crate::model::{Bundle, Resource, RoutePolicy, Step};

/// The chain of a route, as users wrote it.
#[derive(Debug)]
pub struct Attached<'a> {
    /// The resource that it comes from, for errors.
    pub policy: &'a Resource<RoutePolicy>,
    /// The steps before the request goes upstream.
    pub request: &'a [Step],
    /// The steps before the response goes downstream.
    pub response: &'a [Step],
}

/// Every guarded route by name, in the order of names.
pub fn attach<'a>(bundle: &'a Bundle) -> BTreeMap<&'a str, Attached<'a>> {
    let attached = |policy: &'a Resource<RoutePolicy>| {
        let spec = &policy.spec;
        (spec.target_ref.name.as_str(), Attached { policy, request: &spec.request, response: &spec.response })
    };
    bundle.route_policies.iter().map(attached).collect()
}
