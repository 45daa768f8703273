//! Plans: one that has everything in it, and how a script changes it.

use postern_proto::plan::v1::{
    self as wire, api_key_auth::Source, expression::Attribute, expression::Function,
    jwt_validation::Source as TokenSource, step::Policy, traffic_permission, validate,
};
use sha2::{Digest as _, Sha256};

use crate::{
    Script,
    common::Writer,
    expressions::{self, Tree},
};

/// A valid plan with every policy, both phases, conditions, agents, shadow mode and an unsupported policy.
pub fn whole() -> wire::Plan {
    let mut writer = Writer::new();
    writer.consumer("alice", digest("k1"), &["staff", "admin"]);
    writer.plan.expressions = vec![path_starts_with("/a"), has_kind(), user(), has_body()];
    let issuer = issuer(&mut writer);
    writer.plan.issuers.push(issuer);
    let agents = [writer.agent("scanner", false), writer.agent("scorer", true)];
    let steps = built_in(&mut writer);
    let set = writer.set_step("mark", "x-a", "1");
    let mut agent = writer.agent_step("scan", &agents);
    let other = writer.agent_step("score", &[1]);
    agent.on_failure = wire::OnFailure::Continue.into();
    writer.route("all", steps.clone(), vec![set.clone(), agent.clone()]);
    writer.route("agents", vec![agent, other, set.clone()], vec![set.clone()]);
    let shadowed = steps.iter().cloned().map(|step| wire::Step { shadow: true, ..step }).collect();
    writer.route("shadow", shadowed, vec![]);
    let response = Some(wire::Steps { steps: vec![wire::Step { when: 4, ..set.clone() }], unsupported: vec![] });
    writer.chain("body", wire::Chain { response, body_limit: 2, ..Default::default() });
    let unsupported = vec![writer.string("waf")];
    let request = Some(wire::Steps { steps: vec![set], unsupported });
    writer.chain("unsupported", wire::Chain { request, shadow: true, body_limit: 16, ..Default::default() });
    writer.plan
}

/// The SHA-256 digest of an API key.
pub fn digest(key: &str) -> Vec<u8> {
    Sha256::digest(key).to_vec()
}

/// `request.url_path.startsWith(prefix)`.
pub fn path_starts_with(prefix: &str) -> wire::Expression {
    let mut tree = Tree::default();
    let arguments = [tree.attribute(Attribute::RequestUrlPath), tree.text(prefix)];
    tree.call(Function::StartsWith, &arguments);
    tree.finish()
}

/// `request.query.contains(part)`.
pub fn query_contains(part: &str) -> wire::Expression {
    let mut tree = Tree::default();
    let arguments = [tree.attribute(Attribute::RequestQuery), tree.text(part)];
    tree.call(Function::Contains, &arguments);
    tree.finish()
}

/// `request.headers['x-kind'].size() < 8`.
pub fn has_kind() -> wire::Expression {
    let mut tree = Tree::default();
    let kind = tree.member(Attribute::RequestHeaders, "x-kind");
    let arguments = [tree.call(Function::Size, &[kind]), tree.int(8)];
    tree.call(Function::Less, &arguments);
    tree.finish()
}

/// `request.headers['x-user']`.
pub fn user() -> wire::Expression {
    let mut tree = Tree::default();
    tree.member(Attribute::RequestHeaders, "x-user");
    tree.finish()
}

/// `size(request.body) > 0`.
pub fn has_body() -> wire::Expression {
    let mut tree = Tree::default();
    let body = tree.attribute(Attribute::RequestBody);
    let arguments = [tree.call(Function::Size, &[body]), tree.int(0)];
    tree.call(Function::Greater, &arguments);
    tree.finish()
}

/// A bucket of `burst` tokens for each value of the expression `key`.
pub fn limit(writer: &mut Writer, burst: u32, key: u32) -> wire::Step {
    let policy = wire::RateLimit {
        id: writer.string("limit"),
        interval_ns: 1_000_000_000,
        burst,
        key,
        most_keys: 1024,
        limit: burst,
        report: wire::ReportLimit::Always.into(),
    };
    writer.step("rateLimit", Policy::RateLimit(policy))
}

/// Admits a request for which these expressions are true.
pub fn validate(writer: &mut Writer, expressions: &[u32]) -> wire::Step {
    let message = writer.string("not as it must be");
    let rules = expressions.iter().map(|expression| validate::Rule { expression: *expression, message }).collect();
    writer.step("validate", Policy::Validate(wire::Validate { rules, status: 422 }))
}

fn issuer(writer: &mut Writer) -> wire::Issuer {
    let keys = vec![wire::VerificationKey {
        id: writer.string("k1"),
        algorithms: vec![wire::SignatureAlgorithm::Hs256.into()],
        material: Some(wire::verification_key::Material::Secret(vec![7; 32])),
    }];
    wire::Issuer { name: writer.string("joe"), issuer: writer.string("joe"), keys, ..Default::default() }
}

/// Takes a token where there is one.
fn token(writer: &mut Writer) -> wire::Step {
    let policy = wire::JwtValidation {
        issuers: vec![0],
        source: Some(TokenSource::Header(writer.string("x-user"))),
        scheme: writer.string(""),
        optional: true,
        max_size: 1024,
        types: vec![writer.string(""), writer.string("jwt")],
        realm: writer.string("api"),
        ..Default::default()
    };
    writer.step("jwtValidation", Policy::JwtValidation(policy))
}

/// Admits a request with an API key.
pub fn key_from(writer: &mut Writer, source: Source) -> wire::Step {
    writer.step("apiKeyAuth", Policy::ApiKeyAuth(wire::ApiKeyAuth { source: Some(source) }))
}

/// One step of each built-in policy, the last two under a condition.
fn built_in(writer: &mut Writer) -> Vec<wire::Step> {
    let (staff, service) = (writer.string("staff"), writer.string("web"));
    let rule = traffic_permission::Rule { services: vec![service], anyone: true, allow: true, source: None };
    let answer = wire::Answer { status: 204, headers: vec![], body: service };
    let mut steps = edge(writer);
    steps.extend([
        writer.step("trafficPermission", Policy::TrafficPermission(wire::TrafficPermission { rules: vec![rule] })),
        token(writer),
        writer.key_step(),
        writer.step("roleCheck", Policy::RoleCheck(wire::RoleCheck { groups: vec![staff], ..Default::default() })),
        limit(writer, 3, 3),
        validate(writer, &[1]),
        wire::Step { when: 2, ..writer.set_step("headers", "x-user", "someone") },
        wire::Step {
            when: 2,
            ..writer.step("respond", Policy::Respond(wire::Respond { answer: Some(answer), ..Default::default() }))
        },
    ]);
    steps
}

/// One step of each policy of an edge.
fn edge(writer: &mut Writer) -> Vec<wire::Step> {
    let [origin, get, empty, header, path] =
        ["https://*.a.test", "GET", "", "x-id", "/a"].map(|text| writer.string(text));
    let cors = wire::Cors {
        origins: vec![origin],
        allow_methods: get,
        allow_headers: empty,
        expose_headers: empty,
        max_age: empty,
        ..Default::default()
    };
    let ip_filter = wire::IpFilter { deny: vec![vec![10, 0, 0, 0, 8]], trusted_hops: 1, ..Default::default() };
    let id = wire::RequestId { header, trust_incoming: true, sortable: true, echo: true };
    let size = wire::RequestSize { body: Some(16), query: Some(64), require_length: true, ..Default::default() };
    let prefix = wire::rewrite::Path::Prefix(wire::PrefixRewrite { from: path, to: empty });
    let rewrite = wire::Rewrite { path: Some(prefix), pass_unmatched: true, ..Default::default() };
    let delay = Some(wire::InjectedDelay { milliseconds: 5, percent: 50 });
    let abort = Some(wire::InjectedAbort { status: 503, percent: 1, body: None });
    vec![
        writer.step("cors", Policy::Cors(cors)),
        wire::Step { shadow: true, ..writer.step("ipFilter", Policy::IpFilter(ip_filter)) },
        writer.step("requestId", Policy::RequestId(id)),
        writer.step("requestSize", Policy::RequestSize(size)),
        writer.step("rewrite", Policy::Rewrite(rewrite)),
        writer.step("faultInjection", Policy::FaultInjection(wire::FaultInjection { delay, abort })),
    ]
}

/// Changes one thing about a plan, as a script says. The result may or may not load.
pub fn edit(plan: &mut wire::Plan, script: &mut Script<'_>) {
    let (strings, expressions) = (plan.strings.len(), plan.expressions.len());
    match script.below(12) {
        0 => put(&mut plan.strings, script, |script| script.text()),
        1 => put(&mut plan.expressions, script, expressions::scripted),
        2 => {
            put(&mut plan.routes, script, |script| wire::Route { name: script.index(strings), chain: script.index(5) })
        }
        3 => put(&mut plan.agents, script, |script| wire::Agent {
            name: script.index(strings),
            fail_open: script.flag(),
            timeout_ms: script.byte().into(),
        }),
        4 => put(&mut plan.consumers, script, |script| consumer(script, strings)),
        5 => plan.policy_not_supported = Some(answer(script, strings)),
        6 => plan.agent_unavailable = Some(answer(script, strings)),
        7 => {
            let place = script.below(plan.chains.len());
            if let Some(chain) = plan.chains.get_mut(place) {
                (chain.shadow, chain.body_limit) = (script.flag(), script.byte().into());
            }
        }
        _ => edit_steps(plan, script, strings, expressions),
    }
}

fn edit_steps(plan: &mut wire::Plan, script: &mut Script<'_>, strings: usize, expressions: usize) {
    let place = script.below(plan.chains.len());
    let Some(chain) = plan.chains.get_mut(place) else { return };
    let steps = if script.byte() % 4 == 3 { &mut chain.response } else { &mut chain.request };
    let steps = steps.get_or_insert_default();
    match script.below(8) {
        0 => steps.unsupported.push(script.index(strings)),
        1 => steps.unsupported.clear(),
        2 => drop(steps.steps.pop()),
        3 => {
            let (from, to) = (script.below(steps.steps.len()), script.below(steps.steps.len()));
            if !steps.steps.is_empty() {
                steps.steps.swap(from, to);
            }
        }
        _ => put(&mut steps.steps, script, |script| wire::Step {
            name: script.index(strings),
            when: script.index(expressions + 1),
            on_failure: i32::from(script.byte() % 5),
            shadow: script.byte() % 4 == 3,
            deny_with: (script.byte() % 4 == 3).then(|| wire::DenyWith {
                status: (script.byte() % 2 == 1).then(|| u32::from(script.byte()) * 3),
                headers: pairs(script, strings),
                body: (script.byte() % 2 == 1).then(|| script.index(strings)),
            }),
            source: (script.byte() % 4 == 3).then(|| source(script, strings)),
            alternative: script.byte() % 4 == 3,
            policy: Some(policy(script, strings, expressions)),
        }),
    }
}

/// Some sources, of any strings.
fn source(script: &mut Script<'_>, strings: usize) -> wire::Source {
    let tag = |script: &mut Script<'_>| wire::source::Tag { name: script.index(strings), value: script.index(strings) };
    wire::Source {
        mesh: script.index(strings),
        service: script.flag().then(|| script.index(strings)),
        tags: (0..script.below(3)).map(|_| tag(script)).collect(),
    }
}

/// Replaces an entry, or adds one at the end.
fn put<T>(list: &mut Vec<T>, script: &mut Script<'_>, make: impl FnOnce(&mut Script<'_>) -> T) {
    let place = script.below(list.len() + 1);
    let entry = make(script);
    match list.get_mut(place) {
        Some(known) => *known = entry,
        None => list.push(entry),
    }
}

fn policy(script: &mut Script<'_>, strings: usize, expressions: usize) -> Policy {
    match script.below(10) {
        0 => Policy::ApiKeyAuth(wire::ApiKeyAuth {
            source: match script.below(4) {
                0 => Some(Source::Header(script.index(strings))),
                1 => Some(Source::Query(script.index(strings))),
                2 => Some(Source::Cookie(script.index(strings))),
                _ => None,
            },
        }),
        1 => Policy::Headers(wire::Headers {
            remove: indexes(script, strings),
            set: pairs(script, strings),
            add: pairs(script, strings),
            default: pairs(script, strings),
        }),
        2 => Policy::RateLimit(wire::RateLimit {
            id: script.index(strings),
            interval_ns: script.number(),
            burst: script.number() as u32,
            key: script.index(expressions + 1),
            most_keys: script.number() as u32,
            limit: script.byte().into(),
            report: i32::from(script.byte() % 4),
        }),
        3 => Policy::RoleCheck(wire::RoleCheck {
            groups: indexes(script, strings),
            all: script.flag(),
            ..Default::default()
        }),
        4 => Policy::Respond(wire::Respond { answer: Some(answer(script, strings)), ..Default::default() }),
        5 => {
            let rule = |script: &mut Script<'_>| validate::Rule {
                expression: script.index(expressions + 1),
                message: script.index(strings),
            };
            let rules = (0..script.below(4)).map(|_| rule(script)).collect();
            Policy::Validate(wire::Validate { rules, status: 400 + u32::from(script.byte()) })
        }
        6 => {
            let rule = |script: &mut Script<'_>| traffic_permission::Rule {
                services: indexes(script, strings),
                anyone: script.flag(),
                allow: script.flag(),
                source: script.flag().then(|| source(script, strings)),
            };
            Policy::TrafficPermission(wire::TrafficPermission {
                rules: (0..script.below(4)).map(|_| rule(script)).collect(),
            })
        }
        7 => Policy::BasicAuth(wire::BasicAuth { realm: script.index(strings), remove: script.flag() }),
        8 => Policy::JwtValidation(wire::JwtValidation {
            issuers: indexes(script, 2),
            audiences: indexes(script, strings),
            source: match script.below(4) {
                0 => Some(TokenSource::Header(script.index(strings))),
                1 => Some(TokenSource::Query(script.index(strings))),
                2 => Some(TokenSource::Cookie(script.index(strings))),
                _ => None,
            },
            scheme: script.index(strings),
            remove: script.flag(),
            optional: script.flag(),
            leeway_ms: script.number() as u32,
            max_age_ms: script.number(),
            required_claims: indexes(script, strings),
            consumer_claim: script.index(strings),
            max_size: script.number() as u32,
            realm: script.index(strings),
            types: indexes(script, strings),
            ..Default::default()
        }),
        _ => Policy::Agent(wire::AgentPolicy {
            agents: indexes(script, 2),
            policy: script.index(strings),
            params: pairs(script, strings),
        }),
    }
}

fn consumer(script: &mut Script<'_>, strings: usize) -> wire::Consumer {
    let digest = |script: &mut Script<'_>| Sha256::digest(script.chunk()).to_vec();
    wire::Consumer {
        name: script.index(strings),
        api_key_sha256: (0..script.below(3)).map(|_| digest(script)).collect(),
        groups: indexes(script, strings),
        basic_auth: script.flag().then(|| wire::PasswordCredential {
            username: script.index(strings),
            salt: script.chunk().to_vec(),
            iterations: u32::from(script.byte() % 4),
            hash: digest(script),
        }),
        hmac: (0..script.below(3))
            .map(|_| wire::HmacKey { id: script.index(strings), secret: script.chunk().to_vec() })
            .collect(),
    }
}

fn answer(script: &mut Script<'_>, strings: usize) -> wire::Answer {
    wire::Answer {
        status: 200 + u32::from(script.byte()),
        headers: pairs(script, strings),
        body: script.index(strings),
    }
}

fn pairs(script: &mut Script<'_>, strings: usize) -> Vec<wire::HeaderValue> {
    let pair =
        |script: &mut Script<'_>| wire::HeaderValue { name: script.index(strings), value: script.index(strings) };
    (0..script.below(3)).map(|_| pair(script)).collect()
}

fn indexes(script: &mut Script<'_>, count: usize) -> Vec<u32> {
    (0..script.below(4)).map(|_| script.index(count)).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    #[test]
    fn loads_the_whole_plan() {
        postern_engine::Plan::load(&super::whole().encode_to_vec()).unwrap();
    }
}
