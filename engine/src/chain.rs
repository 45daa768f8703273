//! A chain: the steps that guard a route, in order, and the context that they share while one message passes.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use crate::{
    edits::EditedHeaders,
    event::Headers,
    plan::{Consumers, LoadError, Strings},
    policy::{Flow, Needs, Policy},
    verdict::{Decision, Verdict},
};

/// What guards a route: one list of steps for requests, one for responses.
#[derive(Debug)]
pub struct Chain {
    /// Run before the request goes upstream.
    pub request: Steps,
    /// Run before the response goes downstream.
    pub response: Steps,
}

impl Chain {
    pub(crate) fn load(wire: &wire::Chain, strings: &Strings) -> Result<Self, LoadError> {
        Ok(Self {
            request: Steps::load(&wire.request, strings).map_err(|error| error.within("request"))?,
            response: Steps::load(&wire.response, strings).map_err(|error| error.within("response"))?,
        })
    }
}

/// The steps of one phase.
#[derive(Debug)]
pub struct Steps {
    steps: Vec<Step>,
    needs: Needs,
}

#[derive(Debug)]
struct Step {
    name: Arc<str>,
    policy: Policy,
}

impl Steps {
    fn load(wire: &[wire::Step], strings: &Strings) -> Result<Self, LoadError> {
        let steps = wire.iter().map(|step| Step::load(step, strings)).collect::<Result<Vec<_>, _>>()?;
        let mut needs = Needs::default();
        for step in &steps {
            step.policy.needs(&mut needs);
        }
        Ok(Self { steps, needs })
    }

    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// What a host must provide before [`Steps::run`].
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Runs the steps in order on a message, until one denies.
    pub fn run(&self, headers: &Headers, consumers: &Consumers) -> Decision {
        let mut context = Context { headers: EditedHeaders::new(headers), consumers, consumer: None };
        for step in &self.steps {
            match step.policy.run(&mut context) {
                Flow::Continue => {}
                Flow::Deny(denial) => {
                    return Decision {
                        verdict: Verdict::Deny(denial.response),
                        step: Some(Arc::clone(&step.name)),
                        reason: Some(denial.reason),
                        consumer: context.consumer,
                    };
                }
            }
        }
        Decision {
            verdict: Verdict::Continue(context.headers.into_edits()),
            step: None,
            reason: None,
            consumer: context.consumer,
        }
    }
}

impl Step {
    fn load(wire: &wire::Step, strings: &Strings) -> Result<Self, LoadError> {
        let name = strings.name(wire.name)?;
        let policy = Policy::load(wire, strings).map_err(|error| error.within(format!("step `{name}`")))?;
        Ok(Self { name, policy })
    }
}

/// What the steps of a chain share while one message passes: each sees what earlier ones changed.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    headers: EditedHeaders<'a>,
    consumers: &'a Consumers,
    consumer: Option<Arc<str>>,
}

impl<'a> Context<'a> {
    pub(crate) fn headers(&self) -> &EditedHeaders<'a> {
        &self.headers
    }

    pub(crate) fn headers_mut(&mut self) -> &mut EditedHeaders<'a> {
        &mut self.headers
    }

    pub(crate) fn consumers(&self) -> &'a Consumers {
        self.consumers
    }

    /// Records who the caller proved to be.
    pub(crate) fn identify(&mut self, consumer: &Arc<str>) {
        self.consumer = Some(Arc::clone(consumer));
    }
}
