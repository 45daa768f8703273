//! Lowering: attached chains and consumers become a plan. Strings, expressions and chains are interned: what is equal is
//! there once.

mod audit_log;
mod basic_auth;
mod cors;
mod fault_injection;
mod hmac_auth;
mod interned;
mod ip_filter;
mod issuers;
mod json_schema;
mod jwt_validation;
mod policies;
mod request_id;
mod request_size;
mod respond;
mod rewrite;
mod security_headers;

use std::collections::BTreeMap;

use postern_engine::Phase;
use postern_proto::plan::v1::{
    Answer, Chain, Consumer, DenyWith, Expression, FORMAT, HeaderValue, OnFailure as WireOnFailure, PasswordCredential,
    Plan, Route, Step as WireStep, Steps,
};
use prost::Message;

use self::interned::Interned;
use crate::{
    attach::Attached,
    digest::Digest,
    expression::{self, Environment, ExpressionError},
    keys::KeySets,
    model::{self, Bundle, Diagnostic, Diagnostics, Mode, OnFailure, Resource, RoutePolicy, Step},
};

/// The plan for what is attached.
pub fn lower(
    bundle: &Bundle,
    key_sets: &KeySets,
    attached: &BTreeMap<&str, Attached<'_>>,
    revision: &Digest,
) -> Result<Plan, Diagnostics> {
    let services = bundle.services.iter().map(|service| service.name.clone()).collect();
    let mut lowering = Lowering { services, ..Lowering::default() };
    lowering.issuers(bundle, key_sets);
    for (route, chain) in attached {
        lowering.route(route, chain);
    }
    for consumer in &bundle.consumers {
        lowering.consumer(consumer);
    }
    if let Some(settings) = bundle.settings.first() {
        lowering.settings(&settings.spec);
    }
    lowering.finish(revision)
}

#[derive(Default)]
struct Lowering {
    strings: Interned<String>,
    expressions: Interned<Vec<u8>>,
    chains: Interned<Vec<u8>>,
    plan: Plan,
    /// The names of the plan's issuers, in its order.
    issuers: Vec<String>,
    /// The names of the services.
    services: Vec<String>,
    errors: Vec<Diagnostic>,
}

/// Where in what the user wrote a step stands.
struct Place<'a> {
    policy: &'a Resource<RoutePolicy>,
    phase: Phase,
    field: String,
}

impl Lowering {
    fn route(&mut self, route: &str, attached: &Attached<'_>) {
        let spec = &attached.policy.spec;
        let chain = Chain {
            request: self.steps(attached, Phase::Request),
            response: self.steps(attached, Phase::Response),
            shadow: spec.mode == Mode::Shadow,
            body_limit: spec.max_body_size,
        };
        let index = self.chains.index(chain.encode_to_vec());
        if usize::try_from(index).is_ok_and(|index| index == self.plan.chains.len()) {
            self.plan.chains.push(chain);
        }
        let name = self.string(route);
        self.plan.routes.push(Route { name, chain: index });
    }

    fn consumer(&mut self, consumer: &Resource<model::Consumer>) {
        let name = self.string(&consumer.name);
        let api_key_sha256 = consumer.spec.api_keys.iter().map(|key| key.sha256.to_vec()).collect();
        let groups = consumer.spec.groups.iter().map(|group| self.string(group)).collect();
        let hmac = consumer.spec.hmac.iter().map(|key| self.hmac_key(key)).collect();
        let basic_auth = consumer.spec.basic_auth.as_ref().map(|credential| PasswordCredential {
            username: self.string(&credential.username),
            salt: credential.password.salt.clone(),
            iterations: credential.password.iterations,
            hash: credential.password.hash.to_vec(),
        });
        self.plan.consumers.push(Consumer { name, api_key_sha256, groups, basic_auth, hmac });
    }

    fn settings(&mut self, settings: &model::Settings) {
        self.plan.policy_not_supported = settings.policy_not_supported.as_ref().map(|answer| self.answer(answer));
        self.plan.agent_unavailable = settings.agent_unavailable.as_ref().map(|answer| self.answer(answer));
    }

    fn steps(&mut self, attached: &Attached<'_>, phase: Phase) -> Option<Steps> {
        let (steps, name) = match phase {
            Phase::Request => (attached.request, "request"),
            Phase::Response => (attached.response, "response"),
        };
        let mut lowered = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let place = Place { policy: attached.policy, phase, field: format!("spec.{name}[{index}]") };
            lowered.extend(self.step(&place, step));
        }
        (!lowered.is_empty()).then_some(Steps { steps: lowered, unsupported: Vec::new() })
    }

    fn step(&mut self, place: &Place<'_>, step: &Step) -> Option<WireStep> {
        let when = step.when.as_deref().map_or(0, |when| self.condition(place, "when", when));
        let on_failure = match step.on_failure {
            None => WireOnFailure::Unspecified,
            Some(OnFailure::Deny) => WireOnFailure::Deny,
            Some(OnFailure::Continue) => WireOnFailure::Continue,
            Some(OnFailure::SkipRemaining) => WireOnFailure::SkipRemaining,
        };
        let policy = match self.policy(place, step) {
            Ok(policy) => policy,
            Err(error) => {
                self.error(place, "params", error.to_string());
                return None;
            }
        };
        let shadow = step.mode == Mode::Shadow;
        Some(WireStep {
            name: self.string(&step.name),
            when,
            on_failure: on_failure.into(),
            shadow,
            deny_with: step.deny_with.as_ref().map(|deny_with| self.deny_with(deny_with)),
            policy: Some(policy),
        })
    }

    /// Compiles an expression; 0, and an error at its field, if it is wrong.
    fn expression(&mut self, place: &Place<'_>, field: &str, text: &str) -> u32 {
        let compiled = expression::compile(text, environment(place.phase));
        self.intern(place, field, compiled)
    }

    /// The same for an expression that must be true or false.
    fn condition(&mut self, place: &Place<'_>, field: &str, text: &str) -> u32 {
        let compiled = expression::compile_condition(text, environment(place.phase));
        self.intern(place, field, compiled)
    }

    fn intern(&mut self, place: &Place<'_>, field: &str, compiled: Result<Expression, Vec<ExpressionError>>) -> u32 {
        match compiled {
            Ok(compiled) => self.expressions.index(compiled.encode_to_vec()).saturating_add(1),
            Err(errors) => {
                for error in errors {
                    self.error(place, field, format!("column {}: {}", error.column, error.message));
                }
                0
            }
        }
    }

    fn error(&mut self, place: &Place<'_>, field: &str, message: String) {
        self.errors.push(place.policy.diagnose(&format!("{}.{field}", place.field), message));
    }

    fn deny_with(&mut self, deny_with: &model::DenyWith) -> DenyWith {
        DenyWith {
            status: deny_with.status.map(u32::from),
            headers: self.header_values(&deny_with.headers),
            body: deny_with.body.as_ref().map(|body| self.string(body)),
        }
    }

    fn answer(&mut self, answer: &model::Answer) -> Answer {
        Answer {
            status: answer.status.into(),
            headers: self.header_values(&answer.headers),
            body: self.string(&answer.body),
        }
    }

    fn header_values(&mut self, values: &BTreeMap<String, String>) -> Vec<HeaderValue> {
        let lower =
            |(name, value): (&String, &String)| HeaderValue { name: self.header_name(name), value: self.string(value) };
        values.iter().map(lower).collect()
    }

    fn header_name(&mut self, name: &str) -> u32 {
        self.strings.index(name.to_ascii_lowercase())
    }

    fn string(&mut self, text: &str) -> u32 {
        self.strings.index(text.to_owned())
    }

    fn finish(self, revision: &Digest) -> Result<Plan, Diagnostics> {
        Diagnostics::reject(self.errors)?;
        // What we encoded ourselves decodes; an expression that did not would be missing, and the gate would say so.
        let decode = |bytes: Vec<u8>| Expression::decode(bytes.as_slice()).unwrap_or_default();
        Ok(Plan {
            format: FORMAT,
            revision: revision.short().to_owned(),
            strings: self.strings.into_values(),
            expressions: self.expressions.into_values().into_iter().map(decode).collect(),
            ..self.plan
        })
    }
}

const fn environment(phase: Phase) -> Environment {
    match phase {
        Phase::Request => Environment::Request,
        Phase::Response => Environment::Response,
    }
}
