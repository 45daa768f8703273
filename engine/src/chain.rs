//! A chain as it is loaded: the steps that guard a route, in order, and what becomes of one that fails.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use crate::{
    attributes,
    cel::Expression,
    event::{Needs, Phase},
    jwt::Issuer,
    plan::{Agent, LoadError},
    policy::Policy,
    strings::Strings,
};

/// What guards a route: one list of steps for requests, one for responses.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) request: Steps,
    pub(crate) response: Steps,
    /// Evaluate and report, but enforce nothing.
    pub(crate) shadow: bool,
    /// The largest request body that is buffered.
    pub(crate) body_limit: usize,
    /// What response steps read of the request. Envoy shows a request's headers to no callback of its response, so it
    /// is kept from before.
    pub(crate) keep: Needs,
}

/// The steps of one phase.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    /// The policies that nobody supports: with one, nothing runs.
    pub(crate) unsupported: Vec<Arc<str>>,
}

/// A policy with its parameters and its place in the chain.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: Arc<str>,
    pub(crate) when: Option<Arc<Expression>>,
    pub(crate) on_failure: OnFailure,
    pub(crate) shadow: bool,
    pub(crate) policy: Policy,
    pub(crate) needs: Needs,
}

/// What becomes of the chain when a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// As the agent says; without one, the request is denied.
    Unspecified,
    Deny,
    Continue,
    SkipRemaining,
}

/// What else of a plan steps refer to.
type Known<'a> = (&'a [Agent], &'a [Arc<Issuer>]);

impl Chain {
    pub(crate) fn load(
        wire: &wire::Chain,
        strings: &Strings,
        agents: &[Agent],
        issuers: &[Arc<Issuer>],
    ) -> Result<Self, LoadError> {
        let steps = |wire: &Option<wire::Steps>, phase, name: &str| match wire {
            None => Ok(Steps::default()),
            Some(wire) => Steps::load(wire, strings, (agents, issuers), phase).map_err(|error| error.within(name)),
        };
        let response = steps(&wire.response, Phase::Response, "response")?;
        let keep = response.steps.iter().fold(Needs::default(), |keep, step| keep.union(step.needs.of_request()));
        Ok(Self {
            request: steps(&wire.request, Phase::Request, "request")?,
            response,
            keep,
            shadow: wire.shadow,
            body_limit: usize::try_from(wire.body_limit).unwrap_or(usize::MAX),
        })
    }

    pub(crate) fn steps(&self, phase: Phase) -> &Steps {
        match phase {
            Phase::Request => &self.request,
            Phase::Response => &self.response,
        }
    }
}

impl Steps {
    /// Whether there is nothing to run and nothing to refuse.
    pub(crate) fn is_idle(&self) -> bool {
        self.steps.is_empty() && self.unsupported.is_empty()
    }

    fn load(wire: &wire::Steps, strings: &Strings, known: Known<'_>, phase: Phase) -> Result<Self, LoadError> {
        Ok(Self {
            steps: wire.steps.iter().map(|step| Step::load(step, strings, known, phase)).collect::<Result<_, _>>()?,
            unsupported: wire.unsupported.iter().map(|name| strings.name(*name)).collect::<Result<_, _>>()?,
        })
    }
}

impl Step {
    fn load(wire: &wire::Step, strings: &Strings, known: Known<'_>, phase: Phase) -> Result<Self, LoadError> {
        let name = strings.name(wire.name)?;
        Self::load_named(&name, wire, strings, known, phase).map_err(|error| error.within(format!("step `{name}`")))
    }

    fn load_named(
        name: &Arc<str>,
        wire: &wire::Step,
        strings: &Strings,
        (agents, issuers): Known<'_>,
        phase: Phase,
    ) -> Result<Self, LoadError> {
        let policy = Policy::load(wire, strings, agents, issuers)?;
        if !policy.phases().contains(&phase) {
            return Err(LoadError::Phase);
        }
        let when = strings.expression(wire.when)?;
        let mut needs = policy.needs(phase);
        if let Some(when) = &when {
            needs = needs.union(attributes::needs(when));
        }
        Ok(Self {
            name: Arc::clone(name),
            when,
            on_failure: on_failure(wire.on_failure)?,
            shadow: wire.shadow,
            policy,
            needs,
        })
    }
}

fn on_failure(wire: i32) -> Result<OnFailure, LoadError> {
    match wire::OnFailure::try_from(wire) {
        Ok(wire::OnFailure::Unspecified) => Ok(OnFailure::Unspecified),
        Ok(wire::OnFailure::Deny) => Ok(OnFailure::Deny),
        Ok(wire::OnFailure::Continue) => Ok(OnFailure::Continue),
        Ok(wire::OnFailure::SkipRemaining) => Ok(OnFailure::SkipRemaining),
        Err(_) => Err(LoadError::OnFailure(wire)),
    }
}
