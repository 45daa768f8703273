//! One HTTP stream, in the order of its events: event → route → chain → verdict → host calls.

use std::rc::Rc;

use postern_engine::{Chain, Decision, Headers, Plan, Response, Verdict, chain::Steps, edits::Edit};

use crate::host::{self, HostError, Map};

/// What Envoy is to do with the stream once a callback returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Continue = 0,
    Pause = 1,
}

/// A stream and the plan that it began under: an update in between does not change the rules of a request under way.
#[derive(Debug)]
pub(crate) struct Stream {
    plan: Option<Rc<Plan>>,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    /// No request seen yet, or one on a route that the plan does not know: the response passes as it is.
    Unguarded,
    /// The request passed the chain of this route; its response goes through the same.
    Admitted { route: String },
    /// We answered ourselves: the response that Envoy shows us now is our own.
    Answered,
}

impl Stream {
    pub(crate) fn new(plan: Option<Rc<Plan>>) -> Self {
        Self { plan, progress: Progress::Unguarded }
    }

    pub(crate) fn on_request_headers(&mut self) -> Action {
        let decided = self.decide_request();
        self.conclude(decided)
    }

    pub(crate) fn on_response_headers(&mut self) -> Action {
        let decided = self.decide_response();
        self.conclude(decided)
    }

    fn decide_request(&mut self) -> Result<Action, Failure> {
        let plan = self.plan.clone().ok_or(Failure::NoPlan)?;
        let Some((route, chain)) = guarded_route(&plan)? else {
            return Ok(Action::Continue);
        };
        let decision = run(&plan, &chain.request, Map::RequestHeaders)?;
        host::set_property("postern", decision.account(plan.revision(), &route).as_bytes())?;
        self.progress = Progress::Admitted { route };
        self.carry_out(decision, Map::RequestHeaders)
    }

    fn decide_response(&mut self) -> Result<Action, Failure> {
        let Progress::Admitted { route } = &self.progress else {
            return Ok(Action::Continue);
        };
        let plan = self.plan.clone().ok_or(Failure::NoPlan)?;
        match plan.chain(route) {
            Some(chain) if !chain.response.is_empty() => {
                let decision = run(&plan, &chain.response, Map::ResponseHeaders)?;
                self.carry_out(decision, Map::ResponseHeaders)
            }
            _ => Ok(Action::Continue),
        }
    }

    fn carry_out(&mut self, decision: Decision, map: Map) -> Result<Action, Failure> {
        match decision.verdict {
            Verdict::Continue(edits) => {
                edits.iter().try_for_each(|edit| apply(edit, map))?;
                Ok(Action::Continue)
            }
            Verdict::Deny(response) => Ok(self.answer(&response)?),
        }
    }

    fn answer(&mut self, response: &Response) -> Result<Action, HostError> {
        self.progress = Progress::Answered;
        host::send_response(response)?;
        Ok(Action::Pause)
    }

    /// Fails closed: what could not be decided, or not carried out whole, is answered with a 500.
    fn conclude(&mut self, decided: Result<Action, Failure>) -> Action {
        decided.unwrap_or_else(|failure| {
            log::error!("request refused: {failure}");
            let response = Response::problem(500, "Internal Server Error", "the request could not be checked");
            // If even this fails, the request stays paused: Envoy's time-outs end it, and it never reaches upstream.
            self.answer(&response).unwrap_or(Action::Pause)
        })
    }
}

/// The route that Envoy chose for the request and the chain that guards it, if one does.
fn guarded_route(plan: &Plan) -> Result<Option<(String, &Chain)>, HostError> {
    let Some(name) = host::property(&["xds", "route_name"])? else {
        return Ok(None);
    };
    // A plan's routes have names in UTF-8: another name is none of them.
    let route = String::from_utf8(name).ok();
    Ok(route.and_then(|route| plan.chain(&route).map(|chain| (route, chain))))
}

fn run(plan: &Plan, steps: &Steps, map: Map) -> Result<Decision, HostError> {
    let headers = if steps.needs().headers { host::headers(map)? } else { Headers::default() };
    Ok(steps.run(&headers, plan.consumers()))
}

fn apply(edit: &Edit, map: Map) -> Result<(), HostError> {
    if !edit.replace {
        return edit.values.iter().try_for_each(|value| host::add_header(map, &edit.name, value));
    }
    match edit.values.split_first() {
        None => host::remove_header(map, &edit.name),
        Some((first, rest)) => {
            host::replace_header(map, &edit.name, first)?;
            rest.iter().try_for_each(|value| host::add_header(map, &edit.name, value))
        }
    }
}

/// Why a request could not be decided.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no plan is loaded")]
    NoPlan,
    #[error(transparent)]
    Host(#[from] HostError),
}
