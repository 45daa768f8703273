//! A chain as it is loaded: the steps that guard a route, in order, and what becomes of one that fails.

use std::sync::Arc;

use postern_proto::plan::v1::{self as wire, step::Policy as Wire};

use crate::{
    attributes, budget,
    cel::Expression,
    deny_with::DenyWith,
    event::{Needs, Phase},
    header::Name,
    load_error::{LoadError, PlanPart},
    on_failure::OnFailure,
    policy::{Following, Known, Policy, audit_log::AuditLog},
    selector::Selector,
    strings::Strings,
};

/// The steps that guard a route: one list for requests, one for responses.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) request: Steps,
    pub(crate) response: Steps,
    /// Evaluate and report, but enforce nothing.
    pub(crate) shadow: bool,
    /// The largest request body that is buffered.
    pub(crate) body_limit: usize,
    /// What response steps read of the request. Envoy does not show a request's headers to the callbacks of its
    /// response, so these inputs are fetched with the request and kept.
    pub(crate) keep: Needs,
    /// The audit logs of the chain. They record messages whatever its steps decide.
    pub(crate) audits: Vec<AuditLog>,
}

/// The steps of one phase.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    /// The policies that nobody supports. If there is one, no step runs.
    pub(crate) unsupported: Vec<Arc<str>>,
    /// The inputs of its steps that cost next to nothing: they are asked for with the first question.
    pub(crate) cheap: Needs,
    /// The inputs that are certainly asked for first and need no waiting. Empty if there are none.
    pub(crate) first: Needs,
    /// Whether there is nothing to do before the first step: no unsupported policy, no agent, no promised header.
    pub(crate) plain: bool,
    /// The promised request headers whose values from the caller might reach the upstream or a condition. They are
    /// stripped before the first step.
    pub(crate) promised: Vec<Name>,
}

/// A policy with its parameters, and how its chain runs it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: Arc<str>,
    pub(crate) when: Option<Arc<Expression>>,
    pub(crate) on_failure: OnFailure,
    pub(crate) shadow: bool,
    pub(crate) deny_with: Option<DenyWith>,
    pub(crate) policy: Policy,
    pub(crate) needs: Needs,
    /// The sources that the step is for; all traffic if `None`.
    pub(crate) source: Option<Selector>,
    /// How many of the steps that follow it are its alternatives, for sources that it is not for.
    pub(crate) alternatives: usize,
    /// Whether the step is an alternative of an earlier one.
    pub(crate) is_alternative: bool,
}

impl Chain {
    pub(crate) fn load(wire: &wire::Chain, known: Known<'_>) -> Result<Self, LoadError> {
        let steps = |wire: &Option<wire::Steps>, phase| match wire {
            None => Ok(Steps::default()),
            Some(wire) => Steps::load(wire, known, phase).map_err(|error| error.within(PlanPart::Phase(phase))),
        };
        let response = steps(&wire.response, Phase::Response)?;
        let mut audits = load_audits(wire, known.strings)?;
        let later = audits.iter().filter(|audit| audit.waits()).map(AuditLog::needs);
        let later = response.steps.iter().map(|step| step.needs).chain(later);
        let keep = later.fold(Needs::NONE, |keep, needs| keep.union(needs.of_request()));
        let mut request = steps(&wire.request, Phase::Request)?;
        let read = request.steps.iter().chain(&response.steps).map(|step| step.needs);
        if !read.chain(audits.iter().map(AuditLog::needs)).any(|needs| needs.has(Needs::CLAIMS)) {
            request.steps.iter_mut().for_each(|step| step.policy.leave_out_claims());
        }
        request.keep_promises(wire.shadow);
        for credential in request.steps.iter().chain(&response.steps).filter_map(|step| step.policy.credential()) {
            audits.iter_mut().for_each(|audit| audit.hide(credential));
        }
        Ok(Self {
            request,
            response,
            keep,
            audits,
            shadow: wire.shadow,
            body_limit: usize::try_from(wire.body_limit).unwrap_or(usize::MAX),
        })
    }

    /// Returns an error if the steps cost more than a request may spend, whatever the request is. The error names the
    /// first step that could not be paid for.
    pub(crate) fn check_cost(&self, steps: u64) -> Result<(), LoadError> {
        let mut least: u64 = 0;
        for phase in [Phase::Request, Phase::Response] {
            for step in &self.steps(phase).steps {
                let (cost, most) = (step.least_cost(), steps.saturating_add(step.body_allowance(self.body_limit)));
                if least.saturating_add(cost) > most {
                    let error = LoadError::TooCostly { least: least.saturating_add(cost), steps };
                    return Err(error.within(PlanPart::Step(Arc::clone(&step.name))).within(PlanPart::Phase(phase)));
                }
                least = least.saturating_add(if step.needs.has(Needs::BODY) { 0 } else { cost });
            }
        }
        Ok(())
    }

    /// Whether its steps read which route a request takes, so that they may decide differently on another route.
    pub(crate) fn depends_on_route(&self) -> bool {
        self.request.steps.iter().chain(&self.response.steps).any(|step| step.needs.depend_on_route())
    }

    pub(crate) fn steps(&self, phase: Phase) -> &Steps {
        match phase {
            Phase::Request => &self.request,
            Phase::Response => &self.response,
        }
    }

    /// Whether there is nothing to do for the response to an admitted request.
    #[inline]
    pub(crate) fn ends_with_request(&self) -> bool {
        self.response.is_idle() && !self.audits.iter().any(AuditLog::waits)
    }
}

/// The audit logs of both phases.
fn load_audits(wire: &wire::Chain, strings: &Strings) -> Result<Vec<AuditLog>, LoadError> {
    let mut audits = Vec::new();
    for step in wire.request.iter().chain(&wire.response).flat_map(|steps| &steps.steps) {
        if let Some(Wire::AuditLog(audit)) = &step.policy {
            let name = strings.name(step.name)?;
            let load = || AuditLog::load(audit, &name, strings.expression(step.when)?, strings);
            audits.push(load().map_err(|error| error.within(PlanPart::Step(Arc::clone(&name))))?);
        }
    }
    Ok(audits)
}

impl Steps {
    /// Whether there is nothing to run and nothing to refuse.
    pub(crate) fn is_idle(&self) -> bool {
        self.steps.is_empty() && self.unsupported.is_empty()
    }

    fn load(wire: &wire::Steps, known: Known<'_>, phase: Phase) -> Result<Self, LoadError> {
        let steps: Vec<_> = wire.steps.iter().filter(|step| !matches!(step.policy, Some(Wire::AuditLog(_)))).collect();
        let load = |(index, wire): (usize, &&wire::Step)| {
            let mut step = Step::load(wire, known, phase)?;
            let following = steps.iter().skip(index.saturating_add(1));
            step.alternatives = following.take_while(|following| following.alternative).count();
            Ok(step)
        };
        let steps: Vec<Step> = steps.iter().enumerate().map(load).collect::<Result<_, LoadError>>()?;
        let cheap = steps.iter().fold(Needs::NONE, |cheap, step| cheap.union(step.needs.cheap()));
        let unsupported: Vec<_> =
            wire.unsupported.iter().map(|name| known.strings.name(*name)).collect::<Result<_, _>>()?;
        let plain = unsupported.is_empty() && steps.iter().all(|step| step.policy.agents().is_none());
        let certain = |step: &&Step| plain && step.source.is_none() && !step.needs.has(Needs::BODY);
        let first = steps.first().filter(certain).map_or(Needs::NONE, |step| step.needs.without(Needs::OWN));
        let first = if first.is_empty() { first } else { first.union(cheap) };
        Ok(Self { steps, unsupported, cheap, first, plain, promised: Vec::new() })
    }

    /// Finds the promised headers that must be stripped. A header that is always set before anybody can read it need
    /// not be stripped: that is the usual case, and costs nothing.
    fn keep_promises(&mut self, shadow: bool) {
        let (mut all_run, mut read) = (!shadow, false);
        for step in &self.steps {
            read |= step.reads_headers();
            if !all_run || read || !step.is_certain() {
                let promised = step.policy.edits().into_promised();
                let new = promised.into_iter().filter(|name| !self.promised.contains(name)).collect::<Vec<_>>();
                self.promised.extend(new);
            }
            all_run &= step.on_failure != OnFailure::SkipRemaining;
        }
        if !self.promised.is_empty() {
            self.plain = false;
            self.first = self.first.union(Needs::REQUEST_HEADERS).union(self.cheap);
        }
    }
}

impl Step {
    /// Whether the policy runs on every message that reaches the step and then passes.
    fn is_certain(&self) -> bool {
        let denies = matches!(self.on_failure, OnFailure::Unspecified | OnFailure::Deny);
        let for_all = self.when.is_none() && self.source.is_none() && !self.is_alternative;
        for_all && denies && !self.shadow
    }

    /// The step, as seen when an agent is asked for an earlier step and might evaluate this one too.
    pub(crate) fn as_following(&self) -> Following<'_> {
        Following {
            policy: self.policy.as_agent(),
            is_conditional: self.when.is_some(),
            shadow: self.shadow,
            on_failure: self.on_failure,
            source: self.source.as_ref(),
            alternatives: self.alternatives,
        }
    }

    /// Whether a condition, another expression or an agent may read the headers of the request.
    fn reads_headers(&self) -> bool {
        let when = self.when.as_ref().map_or(Needs::NONE, |when| attributes::needs(when));
        when.has(Needs::REQUEST_HEADERS) || (self.policy.evaluates() && self.needs.has(Needs::REQUEST_HEADERS))
    }

    /// The least that the step costs a request that reaches it and is not refused by it.
    fn least_cost(&self) -> u64 {
        if self.shadow || self.source.is_some() {
            return 0;
        }
        self.when.as_ref().map_or_else(|| self.policy.least_cost(), |when| when.least_cost())
    }

    /// The steps that the largest body adds to what the step may cost.
    fn body_allowance(&self, limit: usize) -> u64 {
        let limit = if self.needs.has(Needs::BODY) { limit } else { 0 };
        budget::steps(limit).saturating_mul(budget::STEPS_A_BODY_BYTE)
    }

    fn load(wire: &wire::Step, known: Known<'_>, phase: Phase) -> Result<Self, LoadError> {
        let name = known.strings.name(wire.name)?;
        Self::load_named(&name, wire, known, phase).map_err(|error| error.within(PlanPart::Step(Arc::clone(&name))))
    }

    fn load_named(name: &Arc<str>, wire: &wire::Step, known: Known<'_>, phase: Phase) -> Result<Self, LoadError> {
        let (strings, policy) = (known.strings, Policy::load(wire, known)?);
        if !policy.phases().contains(&phase) {
            return Err(LoadError::Phase);
        }
        let when = strings.expression(wire.when)?;
        let mut needs = policy.needs(phase);
        if let Some(when) = &when {
            needs = needs.union(attributes::needs(when));
        }
        let source = wire.source.as_ref().map(|source| Selector::load(source, strings)).transpose()?;
        Ok(Self {
            name: Arc::clone(name),
            when,
            on_failure: OnFailure::load(wire.on_failure)?,
            shadow: wire.shadow,
            deny_with: wire.deny_with.as_ref().map(|wire| DenyWith::load(wire, strings)).transpose()?,
            policy,
            needs,
            source,
            alternatives: 0,
            is_alternative: wire.alternative,
        })
    }
}
