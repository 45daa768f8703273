//! Refusals because of the route that a request takes, whatever its chain decides.

use postern_engine::{Decision, Response, Verdict};

/// Why a request is refused because of its route.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RouteRefusal {
    /// No Gateway of the plan declares it: the route table is older or newer than the plan.
    Unknown,
    /// Its chain edits headers, and nothing verifies that the edit leaves the route as it is.
    Unverified,
    /// The route is not the one whose chain ran.
    Changed,
    /// It goes by what the request asks for, and that can be read in several ways, which have different chains.
    Unclear,
}

impl RouteRefusal {
    /// The decision, with its response and reason.
    pub(crate) fn decision(self) -> Decision {
        let (status, reason, detail) = match self {
            Self::Unknown => (503, "route_unknown", "the policies of this route are being updated"),
            Self::Unverified => (500, "route_unverified", "the policies of this route cannot be enforced here"),
            Self::Changed => {
                (500, "route_changed", "the request takes another route than its policies were chosen for")
            }
            Self::Unclear => (400, "route_unclear", "the path or the host can be read in several ways"),
        };
        Decision {
            verdict: Verdict::Deny(Response::problem(status, detail)),
            step: Some("route".into()),
            reason: Some(reason),
            consumer: None,
            notes: Vec::new(),
            records: Vec::new(),
        }
    }
}
