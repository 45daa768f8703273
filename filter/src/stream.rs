//! One HTTP stream, in the order of its events: event → route → chain → verdict → host calls.

use std::sync::Arc;

use postern_engine::{
    Answer, Ask, Decision, Inputs, Needs, Plan, Response, Run, Turn, Verdict,
    agent::{CallError, Health},
    edits::{Allowance, Edits},
    matching::Unclear,
    route_record,
    run::Outlook,
};

use crate::{
    header_edit,
    host::{self, HostError, Map},
    matched, notices, records,
    route_refusal::RouteRefusal,
    sightings,
    worker::Worker,
};

const MILLISECOND: u64 = 1_000_000;

/// What Envoy does with the stream once a callback returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Continue = 0,
    Pause = 1,
    /// Stops at the headers. The rest waits at the caller, so that nothing is buffered.
    Hold = 4,
}

/// What a stream does besides running a chain. It depends on where its filter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Nothing: the control plane knows the routes.
    Gateway,
    /// Leave a record for the filter that verifies; without one, refuse a chain that may change the route.
    Overlay { verified: bool },
    /// Run no chain: refuse a request whose route is not the one whose chain ran.
    Verify,
}

/// A stream, with the plan under which it began: an update does not change the rules of a request in progress.
#[derive(Debug)]
pub(crate) struct Stream {
    plan: Option<Arc<Plan>>,
    root: u32,
    duty: Duty,
    progress: Progress,
    /// The count of a body that is limited.
    counted: Option<Box<Counted>>,
    /// How much of the body came while the request waited. Envoy does not show that part again.
    buffered: usize,
}

/// A body that is counted as it passes.
#[derive(Debug)]
struct Counted {
    allowance: Allowance,
    route: String,
    passed: u64,
}

#[derive(Debug)]
enum Progress {
    /// There was no request yet, or it took a route without a chain. The response passes as it is.
    Unguarded,
    /// The request waits for its body.
    Waiting(Box<Run>),
    /// The request waits for a time.
    Delayed(Box<Delayed>),
    /// The request was admitted. Its response goes through the chain of the same route.
    Admitted(Box<Admitted>),
    /// We answered the request: the response that Envoy shows us is our own.
    Answered,
    /// Even the answer failed. The request never goes on, and Envoy's time-outs end it.
    Stuck,
}

/// A request that waits for a time.
#[derive(Debug)]
struct Delayed {
    run: Box<Run>,
    body: Body,
    /// The time, in nanoseconds since 1970.
    until: u64,
}

/// What is kept of an admitted request for its response.
#[derive(Debug)]
struct Admitted {
    route: String,
    outlook: Outlook,
}

/// How far a run came in one callback.
#[derive(Debug, Clone, Copy)]
enum Reached {
    /// It has ended, and Envoy does this.
    End(Action),
    /// It waits at a step that needs the body.
    Body,
    /// It waits at a step until this time, in nanoseconds since 1970.
    Time { until: u64 },
}

/// What is known of a request's body.
#[derive(Debug, Clone, Copy)]
enum Body {
    /// More is to come.
    Coming,
    /// There is no body.
    None,
    /// All of it is there.
    Here,
}

impl Stream {
    pub(crate) fn new(plan: Option<Arc<Plan>>, root: u32, duty: Duty) -> Self {
        Self { plan, root, duty, progress: Progress::Unguarded, counted: None, buffered: 0 }
    }

    #[inline]
    pub(crate) fn on_request_headers(&mut self, end_of_stream: bool) -> Action {
        let body = if end_of_stream { Body::None } else { Body::Coming };
        let decided = self.begin(body);
        self.conclude(decided)
    }

    /// Handles a part of the body. `size` may be less than what has come: what counts is the body, once it is read.
    pub(crate) fn on_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        let mut run = match std::mem::replace(&mut self.progress, Progress::Unguarded) {
            Progress::Waiting(run) => run,
            Progress::Delayed(mut delayed) => {
                self.buffered = self.buffered.max(size);
                if end_of_stream {
                    delayed.body = Body::Here;
                }
                self.progress = Progress::Delayed(delayed);
                return Action::Pause;
            }
            Progress::Stuck => {
                self.progress = Progress::Stuck;
                return Action::Pause;
            }
            other => {
                self.progress = other;
                let counted = self.count(size);
                return self.conclude(counted);
            }
        };
        self.buffered = self.buffered.max(size);
        if size > run.body_limit() {
            run.answer(Answer::BodyTooLarge);
        } else if !end_of_stream {
            self.progress = Progress::Waiting(run);
            return Action::Pause;
        }
        let decided = self.go_on(run, Map::RequestHeaders, Body::Here);
        self.conclude(decided)
    }

    /// Ends the request, since the next event could not be handled.
    pub(crate) fn fail_by(&mut self, error: HostError) -> Action {
        self.fail(&error.into())
    }

    /// Whether there is nothing left to do for the stream, whatever comes.
    #[inline]
    fn is_over(&self) -> bool {
        matches!(self.progress, Progress::Unguarded | Progress::Answered) && self.counted.is_none()
    }

    /// The stream, if there is something left to do for it.
    #[inline]
    pub(crate) fn unless_over(self) -> Option<Self> {
        if !self.is_over() {
            return Some(self);
        }
        let Self { progress, counted, .. } = self;
        // There is nothing in them, but to find that out when they are dropped is two calls.
        std::mem::forget((progress, counted));
        None
    }

    /// The root context of its plan.
    pub(crate) fn root(&self) -> u32 {
        self.root
    }

    /// The time that the request waits for, if it does.
    pub(crate) fn delayed_until(&self) -> Option<u64> {
        match &self.progress {
            Progress::Delayed(delayed) => Some(delayed.until),
            _ => None,
        }
    }

    /// Goes on after the wait. `Continue` means that the request may go on.
    pub(crate) fn on_time(&mut self) -> Action {
        let Delayed { mut run, body, .. } = match std::mem::replace(&mut self.progress, Progress::Unguarded) {
            Progress::Delayed(delayed) => *delayed,
            other => {
                self.progress = other;
                return Action::Pause;
            }
        };
        run.answer(Answer::Waited);
        let decided = self.go_on(run, Map::RequestHeaders, body);
        self.conclude(decided)
    }

    /// Counts a part of a body that passes. A body that gets too large ends the request, even if its start was sent.
    fn count(&mut self, size: usize) -> Result<Action, Failure> {
        let Some(counted) = &mut self.counted else { return Ok(Action::Continue) };
        counted.passed = counted.passed.saturating_add(u64::try_from(size).unwrap_or(u64::MAX));
        if counted.passed <= counted.allowance.most {
            return Ok(Action::Continue);
        }
        let (allowance, route) = (counted.allowance.clone(), std::mem::take(&mut counted.route));
        self.counted = None;
        let decision = allowance.exceeded();
        self.give_account(&decision, &route)?;
        self.record_unanswered(Some(allowance.exceeded()));
        match decision.verdict {
            Verdict::Deny(response) | Verdict::Respond(response) => Ok(self.answer(&response)?),
            Verdict::Continue(_) => Ok(Action::Continue),
        }
    }

    /// Handles the end of the stream. An admitted request whose response never came is recorded now.
    pub(crate) fn on_end(&mut self) {
        self.record_unanswered(None);
    }

    /// Records an admitted request that gets no response from upstream. `decided` is ours, if a decision ended it.
    fn record_unanswered(&mut self, decided: Option<Decision>) {
        let Admitted { route, outlook } = match std::mem::replace(&mut self.progress, Progress::Unguarded) {
            Progress::Admitted(admitted) => *admitted,
            other => {
                self.progress = other;
                return;
            }
        };
        let Some(plan) = &self.plan else { return };
        let Some(mut run) = Run::unanswered(plan, &route, &Health::default(), outlook, decided) else { return };
        loop {
            let needs = match run.advance(&mut Worker) {
                Turn::Done => return records::write(&run.take_decision().records),
                Turn::Ask(Ask::Inputs(needs)) => needs,
                // Records ask for nothing else.
                Turn::Ask(_) => return,
            };
            match fetch_more(needs, Body::None, run.inputs()) {
                Ok(()) => run.inputs_given(),
                Err(error) => return log::debug!("a record is lost: {error}"),
            }
        }
    }

    pub(crate) fn on_response_headers(&mut self) -> Action {
        let decided = self.begin_response();
        self.conclude(decided)
    }

    #[inline]
    fn begin(&mut self, body: Body) -> Result<Action, Failure> {
        let mut route = match self.plan {
            Some(_) => host::property("xds\0route_name")?.unwrap_or_default(),
            None => return Err(Failure::NoPlan),
        };
        if self.duty != Duty::Gateway
            && let Some(action) = self.verify(&mut route)?
        {
            return Ok(action);
        }
        let plan = self.plan.as_ref().ok_or(Failure::NoPlan)?;
        let Some(mut run) = Run::request(plan, &route, &Health::default()) else { return self.pass_unguarded(&route) };
        if let Some(routes) = plan.take_first_used() {
            sightings::used(&routes);
        }
        let first = run.foresee();
        if !first.is_empty() {
            fetch(first, body, run.inputs())?;
            run.inputs_given();
        }
        match self.drive(&mut run, Map::RequestHeaders, body)? {
            Reached::End(action) => Ok(action),
            reached => Ok(self.put_aside(Box::new(run), body, reached)),
        }
    }

    /// Lets a request without a chain pass, unless its route is foreign to the plan.
    fn pass_unguarded(&mut self, route: &[u8]) -> Result<Action, Failure> {
        match &self.plan {
            Some(plan) if plan.is_foreign(route) => self.refuse(RouteRefusal::Unknown, route),
            Some(plan) if plan.counts_routes() => {
                sightings::unguarded(route);
                Ok(Action::Continue)
            }
            _ => Ok(Action::Continue),
        }
    }

    /// Ensures that the chain that runs is the chain of the route that is taken, for an Envoy with routes of its own.
    /// Replaces a name that the plan does not know by that of the route whose match fits. `None` if the chain is to run.
    #[cold]
    #[inline(never)]
    fn verify(&mut self, route: &mut Vec<u8>) -> Result<Option<Action>, Failure> {
        let plan = self.plan.as_ref().ok_or(Failure::NoPlan)?;
        if let Err(Unclear) = matched::resolve(plan, route)? {
            return self.refuse(RouteRefusal::Unclear, route).map(Some);
        }
        let route = route.as_slice();
        match self.duty {
            Duty::Gateway => Ok(None),
            Duty::Overlay { verified: true } => {
                host::set_property(route_record::RECORD_PROPERTY, &route_record::record(plan, route))?;
                Ok(None)
            }
            Duty::Overlay { verified: false } if plan.may_change_route(route) => {
                self.refuse(RouteRefusal::Unverified, route).map(Some)
            }
            Duty::Overlay { verified: false } => Ok(None),
            Duty::Verify => {
                let record = host::property(route_record::RECORD_PROPERTY)?;
                match route_record::agrees(plan, route, record.as_deref()) {
                    true => Ok(Some(Action::Continue)),
                    false => self.refuse(RouteRefusal::Changed, route).map(Some),
                }
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, refusal: RouteRefusal, route: &[u8]) -> Result<Action, Failure> {
        let decision = refusal.decision();
        let plan = self.plan.clone().ok_or(Failure::NoPlan)?;
        self.give_account(&decision, plan.shown(route))?;
        match decision.verdict {
            Verdict::Deny(response) | Verdict::Respond(response) => Ok(self.answer(&response)?),
            Verdict::Continue(_) => Ok(Action::Continue),
        }
    }

    fn begin_response(&mut self) -> Result<Action, Failure> {
        let Admitted { route, outlook } = match std::mem::replace(&mut self.progress, Progress::Unguarded) {
            Progress::Admitted(admitted) => *admitted,
            other => {
                self.progress = other;
                return Ok(Action::Continue);
            }
        };
        let plan = self.plan.as_ref().ok_or(Failure::NoPlan)?;
        match Run::response(plan, &route, &Health::default(), outlook) {
            Some(run) => self.go_on(Box::new(run), Map::ResponseHeaders, Body::None),
            None => Ok(Action::Continue),
        }
    }

    /// Goes on with a run after any event but the headers of a request, which have a shorter path.
    #[inline(never)]
    fn go_on(&mut self, mut run: Box<Run>, map: Map, body: Body) -> Result<Action, Failure> {
        match self.drive(&mut run, map, body)? {
            Reached::End(action) => Ok(action),
            reached => Ok(self.put_aside(run, body, reached)),
        }
    }

    /// Keeps a run that cannot go on now.
    #[cold]
    fn put_aside(&mut self, run: Box<Run>, body: Body, reached: Reached) -> Action {
        match reached {
            Reached::End(action) => action,
            Reached::Body => {
                self.progress = Progress::Waiting(run);
                Action::Pause
            }
            Reached::Time { until } => {
                let hold = matches!(body, Body::Coming) && !run.may_want_body();
                self.progress = Progress::Delayed(Box::new(Delayed { run, body, until }));
                if hold { Action::Hold } else { Action::Pause }
            }
        }
    }

    /// Answers what the run asks for, as far as that is possible now.
    #[inline(always)]
    fn drive(&mut self, run: &mut Run, map: Map, body: Body) -> Result<Reached, Failure> {
        loop {
            let ask = match run.advance(&mut Worker) {
                Turn::Done => return Ok(Reached::End(self.carry_out(run, map)?)),
                Turn::Ask(ask) => ask,
            };
            match (ask, body) {
                (Ask::Inputs(needs), Body::Coming) if needs.has(Needs::BODY) => return Ok(Reached::Body),
                (Ask::Inputs(needs), body) => {
                    fetch_more(needs, body, run.inputs())?;
                    if needs.has(Needs::BODY) && run.inputs().body.len() > run.body_limit() {
                        run.inputs().body = Vec::new();
                        run.answer(Answer::BodyTooLarge);
                    } else {
                        run.inputs_given();
                    }
                }
                (Ask::Wait { milliseconds }, _) => {
                    let until = host::now()?.saturating_add(u64::from(milliseconds).saturating_mul(MILLISECOND));
                    return Ok(Reached::Time { until });
                }
                // The plan was refused at load if it needs one; if not, nobody is there to ask.
                (Ask::Call(_), _) => run.answer(Answer::Called(Err(CallError::Unreachable))),
            }
        }
    }

    #[inline(always)]
    fn carry_out(&mut self, run: &mut Run, map: Map) -> Result<Action, Failure> {
        let is_request = matches!(map, Map::RequestHeaders);
        let silent = !is_request || self.plan.as_ref().is_none_or(|plan| !plan.wants_accounts());
        match run.passed() {
            Some(edits) if silent => self.let_pass(edits, run.route(), map)?,
            _ => {
                if let Some(action) = self.settle(run, map)? {
                    return Ok(action);
                }
            }
        }
        if is_request && !run.is_last() {
            let route = run.route().to_owned();
            self.progress = Progress::Admitted(Box::new(Admitted { route, outlook: run.take_outlook() }));
        }
        if is_request && self.buffered > 0 {
            return self.count(self.buffered);
        }
        Ok(Action::Continue)
    }

    /// Carries out a decision. `None` if the message goes on.
    #[inline(never)]
    fn settle(&mut self, run: &mut Run, map: Map) -> Result<Option<Action>, Failure> {
        let decision = run.take_decision();
        records::write(&decision.records);
        // What the request was let pass for is known already; a response that is refused is news.
        if matches!(map, Map::RequestHeaders) || !matches!(decision.verdict, Verdict::Continue(_)) {
            self.give_account(&decision, run.route())?;
        }
        notices::refused(run, &decision);
        match decision.verdict {
            Verdict::Continue(edits) => self.let_pass(&edits, run.route(), map).map(|()| None),
            Verdict::Deny(response) | Verdict::Respond(response) => Ok(Some(self.answer(&response)?)),
        }
    }

    #[inline(always)]
    fn let_pass(&mut self, edits: &Edits, route: &str, map: Map) -> Result<(), Failure> {
        apply(edits, map)?;
        if let Some(allowance) = edits.allowance().cloned() {
            self.counted = Some(Box::new(Counted { allowance, route: route.to_owned(), passed: 0 }));
        }
        Ok(())
    }

    /// Sets the account of a decision for access logs, if there are any.
    #[inline]
    fn give_account(&self, decision: &Decision, route: &str) -> Result<(), HostError> {
        match self.plan.as_ref().filter(|plan| plan.wants_accounts()) {
            Some(plan) => host::set_property("postern", decision.account(plan.label(), route).as_bytes()),
            None => Ok(()),
        }
    }

    fn answer(&mut self, response: &Response) -> Result<Action, HostError> {
        self.progress = Progress::Answered;
        host::send_response(response)?;
        Ok(Action::Pause)
    }

    /// Fails closed: a request that was not decided, or whose decision was not carried out, is answered with a 500.
    #[inline]
    fn conclude(&mut self, decided: Result<Action, Failure>) -> Action {
        decided.unwrap_or_else(|failure| self.fail(&failure))
    }

    #[cold]
    fn fail(&mut self, failure: &Failure) -> Action {
        log::error!("request refused: {failure}");
        let response = Response::problem(500, "the request could not be checked");
        self.answer(&response).unwrap_or_else(|_| {
            self.progress = Progress::Stuck;
            Action::Pause
        })
    }
}

/// Fetches inputs that were not foreseen.
#[inline(never)]
fn fetch_more(needs: Needs, body: Body, inputs: &mut Inputs) -> Result<(), HostError> {
    fetch(needs, body, inputs)
}

/// Fetches the inputs that a step needs.
#[inline(always)]
fn fetch(needs: Needs, body: Body, inputs: &mut Inputs) -> Result<(), HostError> {
    if needs.has(Needs::REQUEST_HEADERS) {
        inputs.request_headers = host::headers(Map::RequestHeaders)?;
    }
    if needs.has(Needs::RESPONSE_HEADERS) {
        inputs.response_headers = host::headers(Map::ResponseHeaders)?;
    }
    if needs.has(Needs::NOW) {
        inputs.now = host::now()?;
    }
    if needs.has(Needs::HAS_BODY) {
        inputs.has_body = !matches!(body, Body::None);
    }
    if needs.has(Needs::RANDOM) {
        inputs.random = host::random()?;
    }
    if let (true, Body::Here) = (needs.has(Needs::BODY), body) {
        inputs.body = host::request_body()?;
    }
    if needs.has_properties() { fetch_properties(needs, inputs) } else { Ok(()) }
}

#[inline(never)]
fn fetch_properties(needs: Needs, inputs: &mut Inputs) -> Result<(), HostError> {
    for property in needs.properties() {
        if let Some(value) = host::property(&property.path().join("\0"))? {
            inputs.set(property, value);
        }
    }
    Ok(())
}

#[inline(always)]
fn apply(edits: &Edits, map: Map) -> Result<(), Failure> {
    if edits.body().is_some() {
        return Err(Failure::BodyEdit);
    }
    // Routes turn these into the upstream's path and host; as headers they would make Envoy choose another route.
    for (name, value) in [("postern_path", edits.path()), ("postern_host", edits.host())] {
        if let Some(value) = value {
            host::set_property(name, value.as_bytes())?;
        }
    }
    Ok(edits.headers().try_for_each(|edit| header_edit::apply(edit, map))?)
}

/// Why a request could not be decided.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no plan is loaded")]
    NoPlan,
    #[error("a step replaces the body, which this filter cannot do")]
    BodyEdit,
    #[error(transparent)]
    Host(#[from] HostError),
}
