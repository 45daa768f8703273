//! The built-in policies: a closed set, one file each. This module has only what they share, and the list of them.

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
    cel::{Attribute, ErrorKind, EvaluationError, Expression},
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

/// The result of a step, or of a turn of it.
#[derive(Debug)]
pub(crate) enum Flow {
    Continue,
    /// It asks a question first, and is run again with the answer.
    Ask(Ask),
    /// It needs these inputs too, and is run again once they are there.
    Want(Needs),
    Deny(Denial),
    Respond(Response),
    /// It could not decide. The caller gets this denial if `onFailure` is `deny`.
    Fail(Denial),
}

/// The denial for a failure with this reason.
pub(crate) fn failure(reason: &'static str) -> Denial {
    Denial { reason, response: Response::problem(500, "a policy could not be evaluated") }
}

/// The denial for a budget that was exhausted.
#[cold]
pub(crate) fn exhausted() -> Denial {
    failure(budget::REASON)
}

impl From<Exhausted> for Denial {
    fn from(Exhausted: Exhausted) -> Self {
        exhausted()
    }
}

/// The denial for an expression without a value. Its reason is `reason`, unless the budget was exhausted, or the
/// expression asks for the consumer of a caller who is none: then the caller gets a 403, and not a 500.
#[cold]
pub(crate) fn unevaluated(error: &EvaluationError, reason: &'static str) -> Denial {
    match error.kind() {
        _ if error.is_final() => exhausted(),
        ErrorKind::Attribute { attribute: Attribute::ConsumerName | Attribute::ConsumerGroups, .. } => Denial {
            reason: "consumer_unknown",
            response: Response::problem(403, "the caller is not a known consumer"),
        },
        _ => failure(reason),
    }
}

/// A built-in policy, as the engine sees it. Its file has the implementation and the `SCHEMA`, which says what a user
/// may write. One entry in the list of policies (`built_in!`) makes it known everywhere.
pub(crate) trait BuiltIn: Sized {
    /// The message that has its parameters in a plan.
    type Wire;
    /// Its state between two turns on one message.
    type State: State;

    fn load(wire: &Self::Wire, known: Known<'_>) -> Result<Self, LoadError>;

    /// The inputs that it needs before it runs.
    fn needs(&self, phase: Phase) -> Needs;

    /// Whether it may ask for the body while it runs ([`Flow::Want`]), although it does not always need it.
    fn may_want_body(&self) -> bool {
        false
    }

    /// The headers that it may edit, of a message in its own phase. Not included: the path and host, which go through
    /// the filter state, and edits of the response to a request.
    fn edits(&self) -> HeaderEdits {
        HeaderEdits::none()
    }

    /// Whether it evaluates expressions of a user, or sends the request to an agent.
    fn evaluates(&self) -> bool {
        false
    }

    /// The least that it costs a request that it admits, without declared costs.
    fn least_cost(&self) -> u64 {
        0
    }

    /// The name of the shared value that it uses, if it is known before a request comes.
    fn shared_key(&self) -> Option<Arc<str>> {
        None
    }

    /// How many signatures it wants remembered, and for how long.
    fn replays(&self) -> Option<Demand> {
        None
    }

    /// Where requests carry a credential for it. Records never show it.
    fn credential(&self) -> Option<&Source> {
        None
    }

    /// Tells the policy that no step of its chain reads the claims of a token.
    fn leave_out_claims(&mut self) {}

    fn run(&self, context: &mut Context<'_>, state: &mut Self::State) -> Flow;
}

/// The state of a policy between two turns on one message.
pub(crate) trait State: Default + Debug {
    /// Called when the step is over. What stays is seen by later steps of the same policy.
    fn leave(&mut self);
}

/// For policies that decide in one turn.
impl State for () {
    #[inline]
    fn leave(&mut self) {}
}

/// The parts of a plan that policies refer to while they are loaded.
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

        /// The state of the current step: one value for each policy.
        #[derive(Debug, Default)]
        pub(crate) struct States {
            pub(crate) agent: agent::Asked,
            $($module: <$module::$name as BuiltIn>::State,)*
        }

        impl States {
            /// Goes on to the next step.
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

            /// Whether it may ask for the body while it runs ([`Flow::Want`]), although it does not always need it.
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

            /// Whether it evaluates expressions of a user, or sends the request to an agent.
            pub(crate) fn evaluates(&self) -> bool {
                match self {
                    Self::Agent(_) => true,
                    $(Self::$name(policy) => policy.evaluates(),)*
                }
            }

            /// The least that it costs a request that it admits, without declared costs.
            pub(crate) fn least_cost(&self) -> u64 {
                match self {
                    Self::Agent(_) => 0,
                    $(Self::$name(policy) => policy.least_cost(),)*
                }
            }

            /// The name of the shared value that it uses, if it is known before a request comes.
            pub(crate) fn shared_key(&self) -> Option<Arc<str>> {
                match self {
                    Self::Agent(_) => None,
                    $(Self::$name(policy) => policy.shared_key(),)*
                }
            }

            /// How many signatures it wants remembered, and for how long.
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

            /// Tells the policy that no step of its chain reads the claims of a token.
            pub(crate) fn leave_out_claims(&mut self) {
                match self {
                    Self::Agent(_) => {}
                    $(Self::$name(policy) => policy.leave_out_claims(),)*
                }
            }

            /// Runs the policy. Each policy is a function of its own, so that none pays for the others. `steps(0)` is
            /// this step, and greater numbers are the steps that follow it.
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
    /// The policy of an agent; `None` if it is built in.
    pub(crate) fn as_agent(&self) -> Option<&AgentPolicy> {
        match self {
            Self::Agent(policy) => Some(policy),
            _ => None,
        }
    }

    /// The indexes of the agents that can evaluate it; `None` if it is built in.
    pub(crate) fn agents(&self) -> Option<&[usize]> {
        self.as_agent().map(AgentPolicy::agents)
    }
}

/// The least that several expressions cost together.
fn least_cost<'a>(expressions: impl IntoIterator<Item = &'a Arc<Expression>>) -> u64 {
    expressions.into_iter().map(|expression| expression.least_cost()).fold(0, u64::saturating_add)
}

/// The inputs of several expressions.
fn needs_of<'a>(expressions: impl IntoIterator<Item = &'a Arc<Expression>>) -> Needs {
    expressions.into_iter().fold(Needs::NONE, |needs, expression| needs.union(attributes::needs(expression)))
}
