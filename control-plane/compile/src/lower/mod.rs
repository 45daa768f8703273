//! Lowering: compiles attached chains and consumers into a plan. Strings, expressions and chains are interned. It does
//! not decide what is attached, and does not load the plan.

mod answers;
mod audit_log;
mod basic_auth;
mod cors;
mod ecma;
mod fault_injection;
mod hmac_auth;
mod hops;
mod interned;
mod ip_filter;
mod issuers;
mod json_schema;
mod jwt_validation;
mod matches;
mod needs;
mod policies;
mod request_id;
mod request_size;
mod respond;
mod rewrite;
mod route_edits;
mod security_headers;

use std::{collections::BTreeMap, sync::Arc};

use postern_engine::{
    Phase,
    budget::{self, STEPS},
    cel::Attribute,
};
use postern_model::{
    Action, Diagnostic, Diagnostics, MISDIRECTED_ROUTE, Mode, NO_HOST_ROUTE, OnFailure, PATH_PARAMETERS_ROUTE,
    Protocol, Resource,
};
use postern_proto::plan::v1::{
    Chain, Consumer, DeclaredRoutes, DenyWith, FORMAT, HeaderValue, MatchedHeaders, OnFailure as WireOnFailure,
    PasswordCredential, Plan, Route, Source as WireSource, Step as WireStep, Steps, TrafficPermission, source,
    step::Policy as WirePolicy, traffic_permission,
};
use prost::Message;

pub use self::answers::refusal;
use self::{interned::Interned, needs::Needs};
use crate::{
    attach::{self, Attached, Attachment, EffectiveStep, Rule, Scope, Source},
    expression::{Compilation, Compiled, Expressions},
    keys::KeySets,
    params::Params,
    port, route_match,
    support::{Feature, Support},
};

/// The name of the step that TrafficPermissions are lowered to, in decisions and logs.
pub const PERMISSION_STEP: &str = "TrafficPermission";

/// How chains that cannot be lowered are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Any error fails the lowering. For changes.
    Strict,
    /// Routes of such chains answer 500, and everything else is served. For a permissive start.
    Permissive,
}

/// The result of lowering.
#[derive(Debug)]
pub struct Lowered {
    /// The plan, not yet labelled.
    pub plan: Plan,
    /// Whether a step may read the tags of a source.
    pub reads_source_tags: bool,
    /// The errors of chains that refuse all requests. Empty if strict.
    pub problems: Vec<Diagnostic>,
}

/// Lowers the chains of an attachment. If strict, returns all errors; otherwise, chains with errors refuse all
/// requests.
pub fn lower(
    scope: &Scope<'_>,
    key_sets: &KeySets,
    attachment: &Attachment<'_>,
    strictness: Strictness,
) -> Result<Lowered, Diagnostics> {
    let services = scope.services.iter().map(|service| (service.name.clone(), service.spec.protocol)).collect();
    let known = Arc::clone(&attachment.expressions);
    let mut lowering = Lowering { services, support: scope.support.clone(), known, ..Lowering::default() };
    if let Some(settings) = scope.settings() {
        lowering.settings(&settings.spec);
    }
    lowering.issuers(scope, key_sets);
    let chains: Vec<_> = attachment.chains.iter().map(|attached| lowering.chain(attached)).collect();
    for (route, chain) in &attachment.routes {
        let name = lowering.string(route);
        lowering.plan.routes.extend(chains.get(*chain).map(|chain| Route { name, chain: *chain }));
    }
    let default = attachment.default.and_then(|chain| chains.get(chain));
    lowering.plan.default_chain = default.map_or(0, |chain| chain.saturating_add(1));
    lowering.plan.declared_routes = lowering.declared_routes(scope, attachment);
    lowering.matches(scope);
    let needs = lowering.needs();
    lowering.keep_issuers(&needs);
    for consumer in scope.consumers.iter().filter(|consumer| needs.has_use_for(&consumer.spec)) {
        lowering.consumer(consumer, &needs);
    }
    lowering.plan.silent = logs_nothing(scope);
    // Without our listeners, the nodes have routes that are not known here.
    lowering.plan.count_routes = !scope.has_gateways();
    let reads_source_tags = lowering.reads_source_tags || attachment.selects_by_tags();
    let (mut plan, mut problems) = lowering.finish(strictness)?;
    let mut found = route_edits::refuse(&mut plan, scope, attachment);
    found.extend(hops::counted_twice(scope, attachment));
    if strictness == Strictness::Strict {
        Diagnostics::reject(found.clone())?;
    }
    problems.extend(found);
    Ok(Lowered { plan, reads_source_tags, problems })
}

/// Whether no access log can contain decisions. Users' own listeners may log them, so they count as logging.
fn logs_nothing(scope: &Scope<'_>) -> bool {
    let ours = scope.has_gateways() && scope.envoy_resources.is_empty();
    ours && attach::access_logs(scope).is_some_and(|logs| logs.iter().all(|log| log.backends.is_empty()))
}

#[derive(Default)]
struct Lowering {
    strings: Interned<String>,
    expressions: Interned<Vec<u8>>,
    chains: Interned<Vec<u8>>,
    /// The compiled expressions of the attachment.
    known: Arc<Expressions>,
    plan: Plan,
    /// The names of the plan's issuers, in order.
    issuers: Vec<String>,
    /// The services and their protocols.
    services: BTreeMap<String, Protocol>,
    /// What the nodes understand.
    support: Support,
    /// Whether an expression reads the tags of a source.
    reads_source_tags: bool,
    errors: Vec<Diagnostic>,
}

/// The step that is being lowered, for errors.
struct Place<'a> {
    step: &'a EffectiveStep<'a>,
    phase: Phase,
}

impl Lowering {
    /// Lowers a chain. Returns its index in the plan.
    fn chain(&mut self, attached: &Attached<'_>) -> u32 {
        let before = self.errors.len();
        self.errors.extend(attached.errors.iter().cloned());
        let mut chain = Chain {
            request: self.steps(attached, Phase::Request),
            response: self.steps(attached, Phase::Response),
            shadow: attached.shadow,
            body_limit: attached.body_limit,
        };
        if self.errors.len() > before {
            // It is served only if not strict, which `finish` decides.
            chain = answers::refusing(vec![self.string("invalid-chain")]);
        } else if !attached.refused.is_empty() {
            chain = answers::refusing(attached.refused.iter().map(|policy| self.string(&policy.name)).collect());
        }
        let index = self.chains.index(chain.encode_to_vec());
        if usize::try_from(index).is_ok_and(|index| index == self.plan.chains.len()) {
            self.plan.chains.push(chain);
        }
        index
    }

    /// Adds a consumer with the credentials that steps of this plan use.
    fn consumer(&mut self, consumer: &Resource<postern_model::Consumer>, needs: &Needs) {
        let name = self.string(&consumer.name);
        let api_keys = consumer.spec.api_keys.iter().filter(|_| needs.api_keys);
        let api_key_sha256 = api_keys.map(|key| key.sha256.to_vec()).collect();
        let groups = consumer.spec.groups.iter().map(|group| self.string(group)).collect();
        let hmac = consumer.spec.hmac.iter().filter(|_| needs.hmac_keys).map(|key| self.hmac_key(key)).collect();
        let password = consumer.spec.basic_auth.as_ref().filter(|_| needs.passwords);
        let basic_auth = password.map(|credential| PasswordCredential {
            username: self.string(&credential.username),
            salt: credential.password.salt.clone(),
            iterations: credential.password.iterations,
            hash: credential.password.hash.to_vec(),
        });
        self.plan.consumers.push(Consumer { name, api_key_sha256, groups, basic_auth, hmac });
    }

    /// The marked names of all routes of gateways. `None` if there are no gateways.
    fn declared_routes(&mut self, scope: &Scope<'_>, attachment: &Attachment<'_>) -> Option<DeclaredRoutes> {
        if scope.gateways.is_empty() {
            return None;
        }
        let mut declared = DeclaredRoutes::default();
        let guarded = route_match::guarded_services(scope.route_policies.iter().map(|policy| &policy.spec));
        for gateway in &scope.gateways {
            for (route, marked) in gateway.spec.routes.iter().zip(route_match::marked_names(&gateway.spec, &guarded)) {
                let marked = self.string(&marked);
                let is_guarded = attachment.routes.contains_key(route.name.as_str());
                if is_guarded { declared.guarded.push(marked) } else { declared.open.push(marked) }
            }
        }
        declared.open.extend([NO_HOST_ROUTE, PATH_PARAMETERS_ROUTE].map(|name| self.string(name)));
        if port::has_misdirected(&scope.gateways) {
            declared.open.push(self.string(MISDIRECTED_ROUTE));
        }
        Some(declared)
    }

    fn settings(&mut self, settings: &postern_model::Settings) {
        self.plan.matched_headers = settings
            .route_headers
            .as_ref()
            .map(|names| MatchedHeaders { names: names.iter().map(|name| self.header_name(name)).collect() });
        self.error_answers(settings);
        let microseconds = settings.request_budget_ms.map_or(0, |budget| u64::from(budget).saturating_mul(1_000));
        self.plan.steps = microseconds.saturating_mul(budget::STEPS_A_MICROSECOND);
    }

    fn steps(&mut self, attached: &Attached<'_>, phase: Phase) -> Option<Steps> {
        let steps = attached.steps(phase);
        let mut lowered = Vec::with_capacity(steps.len());
        if phase == Phase::Request && !attached.permissions.is_empty() {
            lowered.push(self.permissions(&attached.permissions));
        }
        for step in steps {
            lowered.extend(self.step(&Place { step, phase }));
        }
        (!lowered.is_empty()).then_some(Steps { steps: lowered, unsupported: Vec::new() })
    }

    fn permissions(&mut self, rules: &[Rule<'_>]) -> WireStep {
        let lower = |rule: &Rule<'_>| traffic_permission::Rule {
            source: rule.source.as_ref().map(|source| self.source(source)),
            anyone: rule.source.is_none(),
            allow: rule.action == Action::Allow,
            ..Default::default()
        };
        let rules = rules.iter().map(lower).collect();
        WireStep {
            name: self.string(PERMISSION_STEP),
            policy: Some(WirePolicy::TrafficPermission(TrafficPermission { rules })),
            ..WireStep::default()
        }
    }

    fn source(&mut self, source: &Source) -> WireSource {
        let tags = source.tags.iter();
        WireSource {
            mesh: self.string(&source.mesh),
            service: source.service.as_ref().map(|service| self.string(service)),
            tags: tags
                .map(|(name, value)| source::Tag { name: self.string(name), value: self.string(value) })
                .collect(),
        }
    }

    /// Reports a step whose effect the node's Envoy would silently ignore.
    fn supported(&mut self, place: &Place<'_>) {
        let Ok(Params::Rewrite(rewrite)) = place.step.params() else { return };
        let host = rewrite.host.as_ref().map(|_| "host");
        for (feature, used) in [(Feature::HostRewrite, host), (Feature::PathRewrite, rewrite.of_path())] {
            if let Some(name) = used.filter(|_| self.support.lacks(feature)) {
                self.error(place, &format!("params.{name}"), feature.missing());
            }
        }
    }

    fn step(&mut self, place: &Place<'_>) -> Option<WireStep> {
        let step = &place.step.step;
        self.supported(place);
        let when = step.when.as_deref().map_or(0, |when| self.condition(place, "when", when));
        let on_failure = match step.on_failure {
            None => WireOnFailure::Unspecified,
            Some(OnFailure::Deny) => WireOnFailure::Deny,
            Some(OnFailure::Continue) => WireOnFailure::Continue,
            Some(OnFailure::SkipRemaining) => WireOnFailure::SkipRemaining,
        };
        let policy = match self.policy(place) {
            Ok(policy) => policy,
            Err(error) => {
                self.error(place, "params", error.to_string());
                return None;
            }
        };
        Some(WireStep {
            name: self.string(&step.name),
            when,
            on_failure: on_failure.into(),
            shadow: step.mode == Some(Mode::Shadow),
            deny_with: step.deny_with.as_ref().map(|deny_with| self.deny_with(deny_with)),
            source: place.step.source.as_ref().map(|source| self.source(source)),
            alternative: place.step.alternative,
            policy: Some(policy),
        })
    }

    /// The index of a compiled expression, from 1. If it is wrong, records errors at the field and returns 0.
    fn expression(&mut self, place: &Place<'_>, field: &str, text: &str) -> u32 {
        let compiled = self.known.any(text, place.phase.into());
        self.intern(place, field, compiled)
    }

    /// Like [`Self::expression`], for an expression of type bool.
    fn condition(&mut self, place: &Place<'_>, field: &str, text: &str) -> u32 {
        let compiled = self.known.condition(text, place.phase.into());
        self.intern(place, field, compiled)
    }

    fn intern(&mut self, place: &Place<'_>, field: &str, compiled: Compilation) -> u32 {
        match compiled {
            Ok(compiled) if self.never_fits(place, field, &compiled) => 0,
            Ok(compiled) => {
                self.reads_source_tags |= compiled.reads(Attribute::SourceTags);
                let index = self.expressions.index(compiled.wire.encode_to_vec());
                if usize::try_from(index).is_ok_and(|index| index == self.plan.expressions.len()) {
                    self.plan.expressions.push(compiled.wire.clone());
                }
                index.saturating_add(1)
            }
            Err(errors) => {
                for error in errors {
                    self.error(place, field, format!("column {}: {}", error.column, error.message));
                }
                0
            }
        }
    }

    /// The budget of a request, in steps.
    fn steps_of_request(&self) -> u64 {
        if self.plan.steps == 0 { STEPS } else { self.plan.steps }
    }

    /// Whether an expression always exceeds the budget; if so, records an error at the field. Expressions on the request
    /// body are never refused here, because a body adds to the budget.
    fn never_fits(&mut self, place: &Place<'_>, field: &str, compiled: &Compiled) -> bool {
        let (least, steps) = (compiled.least_cost(), self.steps_of_request());
        let affordable = least <= steps || compiled.reads(Attribute::RequestBody);
        if !affordable {
            let message = format!("this takes {least} steps or more, and a request has {steps}: it can only ever fail");
            self.error(place, field, message);
        }
        !affordable
    }

    fn error(&mut self, place: &Place<'_>, field: &str, message: String) {
        self.errors.extend(place.step.diagnose(field, message));
    }

    fn deny_with(&mut self, deny_with: &postern_model::DenyWith) -> DenyWith {
        DenyWith {
            status: deny_with.status.map(u32::from),
            headers: self.header_values(&deny_with.headers),
            body: deny_with.body.as_ref().map(|body| self.string(body)),
        }
    }

    fn header_values(&mut self, values: &BTreeMap<String, String>) -> Vec<HeaderValue> {
        let lower =
            |(name, value): (&String, &String)| HeaderValue { name: self.header_name(name), value: self.string(value) };
        values.iter().map(lower).collect()
    }

    fn header_name(&mut self, name: &str) -> u32 {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return self.strings.index(name.to_ascii_lowercase());
        }
        self.string(name)
    }

    fn string(&mut self, text: &str) -> u32 {
        self.strings.index_of(text)
    }

    fn finish(self, strictness: Strictness) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
        if strictness == Strictness::Strict {
            Diagnostics::reject(self.errors.clone())?;
        }
        let plan = Plan { format: FORMAT, strings: self.strings.into_values(), ..self.plan };
        Ok((plan, self.errors))
    }
}
