//! The decisions of the servers of ext_authz and ext_proc: key, limit and headers, by our engine on the same plan as
//! the Wasm filter's. Values that workers share in Envoy are shared by requests here.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use postern_compile::snapshot::FilterCode;
use postern_engine::{
    Answer, Ask, Headers, Needs, Plan, Run, Turn, Verdict,
    agent::{CallError, Health},
    edits::Edits,
    host::Alone,
};

use super::policies::{Policies, route_name};

/// What is to happen to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It goes on with these edits.
    Continue { set: Vec<(String, String)>, remove: Vec<String> },
    /// It is answered.
    Deny { status: u16, body: String },
}

/// The state of a server, shared by its requests.
#[derive(Debug)]
pub(super) struct Decider {
    plan: Arc<Plan>,
    route: String,
    host: Mutex<Alone>,
}

impl Decider {
    pub(super) fn new(policies: Policies) -> Result<Self> {
        let plan = policies.plan(1, &FilterCode::new(Vec::new(), None))?;
        Ok(Self { plan: Arc::new(Plan::load(&plan)?), route: route_name(0), host: Mutex::default() })
    }

    /// Decides on a request by its headers, names in lower case.
    pub(super) fn decide<'a>(&self, headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Decision {
        let Some(mut run) = Run::request(&self.plan, &self.route, &Health::default()) else {
            return Decision::Continue { set: Vec::new(), remove: Vec::new() };
        };
        let mut headers = Some(headers.collect::<Headers>());
        let mut needs = run.foresee();
        loop {
            if needs.has(Needs::REQUEST_HEADERS) {
                run.inputs().request_headers = headers.take().unwrap_or_default();
            }
            if needs.has(Needs::NOW) {
                run.inputs().now = now();
            }
            if !needs.is_empty() {
                run.inputs_given();
            }
            let turn = run.advance(&mut *self.host.lock().unwrap_or_else(PoisonError::into_inner));
            needs = Needs::NONE;
            match turn {
                Turn::Done => return carry_out(run.take_decision().verdict),
                Turn::Ask(Ask::Inputs(asked)) => needs = asked,
                Turn::Ask(Ask::Wait { .. }) => run.answer(Answer::Waited),
                Turn::Ask(Ask::Call(_)) => run.answer(Answer::Called(Err(CallError::Unreachable))),
            }
        }
    }
}

fn carry_out(verdict: Verdict) -> Decision {
    match verdict {
        Verdict::Continue(edits) => Decision::Continue { set: set(&edits), remove: removed(&edits) },
        Verdict::Deny(response) | Verdict::Respond(response) => {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            Decision::Deny { status: response.status, body }
        }
    }
}

fn set(edits: &Edits) -> Vec<(String, String)> {
    let pairs =
        edits.headers().flat_map(|edit| edit.values.iter().map(|value| (edit.name.to_string(), value.to_string())));
    pairs.collect()
}

fn removed(edits: &Edits) -> Vec<String> {
    let removed = edits.headers().filter(|edit| edit.replace && edit.values.is_empty());
    removed.map(|edit| edit.name.to_string()).collect()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::policies::{KEY, KEY_HEADER};

    #[test]
    fn admits_the_key_only() {
        let decider = Decider::new(Policies::Three).unwrap();
        let check = |headers: &[(&'static str, &'static str)], expect: Option<u16>| {
            let decision = decider.decide(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
            let status = match decision {
                Decision::Continue { .. } => None,
                Decision::Deny { status, .. } => Some(status),
            };
            assert_eq!(status, expect, "{headers:?}");
        };
        check(&[], Some(401));
        check(&[(KEY_HEADER, "guess")], Some(401));
        check(&[(KEY_HEADER, KEY), (KEY_HEADER, KEY)], Some(401));
        check(&[("host", "a"), (KEY_HEADER, KEY)], None);
    }
}
