//! The route of a request by what it asks for, where its name does not tell: reads the headers, and the plan decides.

use postern_engine::{
    Plan,
    matching::{Requested, Unclear},
};

use crate::host::{self, HostError, Map};

/// Replaces a name that the plan does not know by that of the route whose match fits, if one does.
pub(crate) fn resolve(plan: &Plan, route: &mut Vec<u8>) -> Result<Result<(), Unclear>, HostError> {
    if plan.goes_by_match(route) {
        match plan.matched_route(&Requested::of(&host::headers(Map::RequestHeaders)?)) {
            Ok(Some(matched)) => *route = matched.as_bytes().to_vec(),
            Ok(None) => {}
            Err(unclear) => return Ok(Err(unclear)),
        }
    }
    Ok(Ok(()))
}
