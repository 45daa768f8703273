//! The built-in policies: a closed set, one file each. Here is only what they share and how a step finds its own.

mod agent;
mod api_key_auth;
pub mod audit_log;
mod basic_auth;
mod cors;
mod csrf;
mod fault_injection;
mod headers;
mod hmac_auth;
mod ip_filter;
mod json_schema;
mod jwt_validation;
mod rate_limit;
mod request_id;
mod request_size;
mod respond;
mod rewrite;
mod role_check;
mod security_headers;
mod source;
mod traffic_permission;
mod validate;

use std::{fmt::Debug, sync::Arc};

use postern_proto::plan::v1::{self as wire, step::Policy as Wire};

use self::agent::AgentPolicy;
pub(crate) use self::{agent::Following, source::Source};
use crate::{
    agent::Agent,
    ask::Ask,
    attributes,
    budget::{self, Exhausted},
    cel::{EvaluationError, Expression},
    context::Context,
    edited::HeaderEdits,
    event::{Needs, Phase},
    jwt::Issuer,
    load_error::LoadError,
    replays::Demand,
    schema::PolicySchema,
    strings::Strings,
    verdict::{Denial, Response},
};

/// What a step says about the rest of its chain.
#[derive(Debug)]
pub(crate) enum Flow {
    Continue,
    /// It must know something first; it is run again with the answer.
    Ask(Ask),
    /// It must know this of the message too; it is run again with it.
    Want(Needs),
    Deny(Denial),
    Respond(Response),
    /// It could not decide. The denial is what the caller gets if a failure means a denial.
    Fail(Denial),
}

/// A failure to decide.
pub(crate) fn failure(reason: &'static str) -> Denial {
    Denial { reason, response: Response::problem(500, "a policy could not be evaluated") }
}

/// There were not enough steps left to decide.
#[cold]
pub(crate) fn exhausted() -> Denial {
    failure(budget::REASON)
}

impl From<Exhausted> for Denial {
    fn from(Exhausted: Exhausted) -> Self {
        exhausted()
    }
}

/// Why an expression has no value, as a step says it: `reason`, unless it would have cost too much.
#[cold]
pub(crate) fn unevaluated(error: &EvaluationError, reason: &'static str) -> Denial {
    if error.is_final() { exhausted() } else { failure(reason) }
}

/// What a built-in policy is to the engine. Its file has all of it, and its `SCHEMA`, which says what a user may write; the
/// one list of policies ([`built_in!`]) makes it known to everyone else.
pub(crate) trait BuiltIn: Sized {
    /// Its parameters in a plan.
    type Wire;
    /// What it remembers of a message between the turns that it takes.
    type State: State;

    fn load(wire: &Self::Wire, known: Known<'_>) -> Result<Self, LoadError>;

    /// What it reads.
    fn needs(&self, phase: Phase) -> Needs;

    /// Whether it may want the body once it runs, though it does not always need it.
    fn may_want_body(&self) -> bool {
        false
    }

    /// Which headers of a message in its own phase it may edit. What goes through the filter state (path and host), or
    /// concerns the response to a request, is not among them.
    fn edits(&self) -> HeaderEdits {
        HeaderEdits::none()
    }

    /// Whether it has expressions of a user's, or tells an agent of the request.
    fn evaluates(&self) -> bool {
        false
    }

    /// The least that it costs a request that it admits, of what depends on the request.
    fn least_cost(&self) -> u64 {
        0
    }

    /// The shared value that it uses, if it is known beforehand.
    fn shared_key(&self) -> Option<Arc<str>> {
        None
    }

    /// What it wants of the memory of signatures.
    fn replays(&self) -> Option<Demand> {
        None
    }

    /// Where requests carry a credential for it: no record shows what is there.
    fn credential(&self) -> Option<&Source> {
        None
    }

    /// Tells it that nobody in its chain asks what a token says.
    fn leave_out_claims(&mut self) {}

    fn run(&self, context: &mut Context<'_>, state: &mut Self::State) -> Flow;
}

/// What a policy remembers of a message between the turns that it takes.
pub(crate) trait State: Default + Debug {
    /// The step is over: what is left is for later steps of the same policy.
    fn leave(&mut self);
}

/// Most policies decide in one turn.
impl State for () {
    #[inline]
    fn leave(&mut self) {}
}

/// What of a plan policies refer to while they are loaded.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) strings: &'a Strings,
    pub(crate) agents: &'a [Agent],
    pub(crate) issuers: &'a [Arc<Issuer>],
}

/// Makes everything that goes by policies from one list: `module: Type`, where the plan's message has the name of the type.
///
/// `step`s are policies that run; `record`s are a part of their chain as a whole, which loads them.
macro_rules! built_in {
    (
        $(step $module:ident: $name:ident,)*
        $(record $record:ident: $record_name:ident,)*
    ) => {
        /// Every built-in policy, as the control plane checks it and documentation shows it.
        pub const SCHEMAS: &[PolicySchema] = &[$($module::SCHEMA,)* $($record::SCHEMA,)*];

        /// A policy with its parameters, ready to run.
        #[derive(Debug)]
        pub(crate) enum Policy {
            /// One that an agent evaluates: it is not built in.
            Agent(AgentPolicy),
            $($name($module::$name),)*
        }

        /// What the step under way remembers, each policy for itself.
        #[derive(Debug, Default)]
        pub(crate) struct States {
            pub(crate) agent: agent::Asked,
            $($module: <$module::$name as BuiltIn>::State,)*
        }

        impl States {
            /// On to the next step.
            #[inline]
            pub(crate) fn leave(&mut self) {
                self.agent.leave();
                $(self.$module.leave();)*
            }
        }

        impl Policy {
            pub(crate) fn load(step: &wire::Step, known: Known<'_>) -> Result<Self, LoadError> {
                match step.policy.as_ref().ok_or(LoadError::UnknownPolicy)? {
                    Wire::Agent(wire) => AgentPolicy::load(wire, known).map(Self::Agent),
                    $(Wire::$name(wire) => $module::$name::load(wire, known).map(Self::$name),)*
                    $(Wire::$record_name(_) => Err(LoadError::Phase),)*
                }
            }

            /// The chains that it may stand in.
            pub(crate) fn phases(&self) -> &'static [Phase] {
                match self {
                    Self::Agent(_) => &[Phase::Request, Phase::Response],
                    $(Self::$name(_) => $module::SCHEMA.phases,)*
                }
            }

            /// What it reads.
            pub(crate) fn needs(&self, phase: Phase) -> Needs {
                match self {
                    Self::Agent(_) => agent::needs(phase),
                    $(Self::$name(policy) => policy.needs(phase),)*
                }
            }

            /// Whether it may want the body once it runs, though it does not always need it.
            pub(crate) fn may_want_body(&self) -> bool {
                match self {
                    Self::Agent(_) => true,
                    $(Self::$name(policy) => policy.may_want_body(),)*
                }
            }

            /// Which headers of a message in its own phase it may edit.
            pub(crate) fn edits(&self) -> HeaderEdits {
                match self {
                    Self::Agent(_) => agent::edits(),
                    $(Self::$name(policy) => policy.edits(),)*
                }
            }

            /// Whether it has expressions of a user's, or tells an agent of the request.
            pub(crate) fn evaluates(&self) -> bool {
                match self {
                    Self::Agent(_) => true,
                    $(Self::$name(policy) => policy.evaluates(),)*
                }
            }

            /// The least that it costs a request that it admits, of what depends on the request.
            pub(crate) fn least_cost(&self) -> u64 {
                match self {
                    Self::Agent(_) => 0,
                    $(Self::$name(policy) => policy.least_cost(),)*
                }
            }

            /// The shared value that it uses, if it is known beforehand.
            pub(crate) fn shared_key(&self) -> Option<Arc<str>> {
                match self {
                    Self::Agent(_) => None,
                    $(Self::$name(policy) => policy.shared_key(),)*
                }
            }

            /// What it wants of the memory of signatures.
            pub(crate) fn replays(&self) -> Option<Demand> {
                match self {
                    Self::Agent(_) => None,
                    $(Self::$name(policy) => policy.replays(),)*
                }
            }

            /// Where requests carry a credential for it.
            pub(crate) fn credential(&self) -> Option<&Source> {
                match self {
                    Self::Agent(_) => None,
                    $(Self::$name(policy) => policy.credential(),)*
                }
            }

            /// Tells it that nobody in its chain asks what a token says.
            pub(crate) fn leave_out_claims(&mut self) {
                match self {
                    Self::Agent(_) => {}
                    $(Self::$name(policy) => policy.leave_out_claims(),)*
                }
            }

            /// Only looks up whose turn it is: what each policy does is a function of its own, so that none pays for the
            /// others. `steps` has this step at 0, and those behind it.
            #[inline(always)]
            pub(crate) fn run<'a>(
                &self,
                context: &mut Context<'_>,
                states: &mut States,
                steps: impl Fn(usize) -> Option<Following<'a>>,
            ) -> Flow {
                match self {
                    Self::Agent(policy) => policy.run(context, &mut states.agent, steps),
                    $(Self::$name(policy) => policy.run(context, &mut states.$module),)*
                }
            }
        }
    };
}

built_in! {
    step api_key_auth: ApiKeyAuth,
    step basic_auth: BasicAuth,
    step cors: Cors,
    step csrf: Csrf,
    step fault_injection: FaultInjection,
    step headers: Headers,
    step hmac_auth: HmacAuth,
    step ip_filter: IpFilter,
    step json_schema: JsonSchema,
    step jwt_validation: JwtValidation,
    step rate_limit: RateLimit,
    step request_id: RequestId,
    step request_size: RequestSize,
    step respond: Respond,
    step rewrite: Rewrite,
    step role_check: RoleCheck,
    step security_headers: SecurityHeaders,
    step traffic_permission: TrafficPermission,
    step validate: Validate,
    record audit_log: AuditLog,
}

/// The schema of the policy of this name.
pub fn schema(name: &str) -> Option<&'static PolicySchema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}

impl Policy {
    /// What agents are asked, if it is not built in.
    pub(crate) fn as_agent(&self) -> Option<&AgentPolicy> {
        match self {
            Self::Agent(policy) => Some(policy),
            _ => None,
        }
    }

    /// The agents that can evaluate it, if it is not built in.
    pub(crate) fn agents(&self) -> Option<&[usize]> {
        self.as_agent().map(AgentPolicy::agents)
    }
}

/// What several expressions cost at the least.
fn least_cost<'a>(expressions: impl IntoIterator<Item = &'a Arc<Expression>>) -> u64 {
    expressions.into_iter().map(|expression| expression.least_cost()).fold(0, u64::saturating_add)
}

/// What several expressions read.
fn needs_of<'a>(expressions: impl IntoIterator<Item = &'a Arc<Expression>>) -> Needs {
    expressions.into_iter().fold(Needs::NONE, |needs, expression| needs.union(attributes::needs(expression)))
}
