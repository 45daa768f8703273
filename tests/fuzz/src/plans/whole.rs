//! A plan that has everything in it.

use postern_proto::plan::v1::{self as wire, jwt_validation::Source as TokenSource, step::Policy, traffic_permission};

use super::expressions::{has_body, has_kind, path_starts_with, user};
use super::steps::{digest, limit, validate};
use crate::common::Writer;

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
    credentials(&mut writer);
    recorded(&mut writer);
    writer.plan
}

/// A consumer with a password and one with a key to sign with, and a route for each of them.
fn credentials(writer: &mut Writer) {
    let [name, realm, method, label] = ["bob", "api", "@method", ""].map(|text| writer.string(text));
    writer.plan.consumers.push(wire::Consumer {
        name,
        basic_auth: Some(wire::PasswordCredential {
            username: name,
            salt: vec![1; 16],
            iterations: 1,
            hash: digest("password"),
        }),
        hmac: vec![wire::HmacKey { id: name, secret: b"secret".to_vec() }],
        ..Default::default()
    });
    let basic = writer.step("basicAuth", Policy::BasicAuth(wire::BasicAuth { realm, remove: true }));
    let signed = wire::HmacAuth {
        components: vec![method],
        label,
        window_ns: 300_000_000_000,
        skew_ns: 30_000_000_000,
        require_date: true,
        require_digest: true,
        replay_capacity: 100,
    };
    let signed = writer.step("hmacAuth", Policy::HmacAuth(signed));
    writer.route("password", vec![basic], vec![]);
    writer.route("signed", vec![signed], vec![]);
}

/// A route that checks bodies, and records what passes.
fn recorded(writer: &mut Writer) {
    let [schema, types, header, value] =
        ["[1, \"a\", {}]", "application/json", "x-frame-options", "DENY"].map(|text| writer.string(text));
    let schemas = vec![
        wire::Schema { any_of: vec![2, 3], ..Default::default() },
        wire::Schema { types: 0b100, object: Some(wire::ObjectRules::default()), ..Default::default() },
        wire::Schema { values: vec![schema], ..Default::default() },
    ];
    let body =
        wire::JsonSchema { schemas, content_types: vec![types], allow_empty: true, status: 400, most_errors: 10 };
    let set = vec![wire::HeaderValue { name: header, value }];
    let audit = wire::AuditLog {
        sample: 1_000_000,
        fields: vec![wire::AuditField { name: writer.string("kind"), expression: 2 }],
        headers: vec![writer.string("x-kind")],
        redact_headers: vec![writer.string("x-user")],
        log: true,
        ..Default::default()
    };
    let request =
        vec![writer.step("jsonSchema", Policy::JsonSchema(body)), writer.step("auditLog", Policy::AuditLog(audit))];
    let secure = wire::SecurityHeaders { set, remove: vec![], keep_upstream: true };
    let response = vec![writer.step("securityHeaders", Policy::SecurityHeaders(secure))];
    let steps = |steps| Some(wire::Steps { steps, unsupported: vec![] });
    let chain =
        wire::Chain { request: steps(request), response: steps(response), body_limit: 64, ..Default::default() };
    writer.chain("recorded", chain);
}

/// One step of most built-in policies, the last two under a condition.
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
    let csrf = wire::Csrf {
        allow_origins: vec![origin],
        deny_missing: true,
        token_cookie: Some(header),
        token_header: Some(header),
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
        wire::Step { shadow: true, ..writer.step("csrf", Policy::Csrf(csrf)) },
        wire::Step { shadow: true, ..writer.step("ipFilter", Policy::IpFilter(ip_filter)) },
        writer.step("requestId", Policy::RequestId(id)),
        writer.step("requestSize", Policy::RequestSize(size)),
        writer.step("rewrite", Policy::Rewrite(rewrite)),
        writer.step("faultInjection", Policy::FaultInjection(wire::FaultInjection { delay, abort })),
    ]
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

#[cfg(test)]
mod tests {
    use prost::Message as _;

    #[test]
    fn loads_the_whole_plan() {
        postern_engine::Plan::load(&super::whole().encode_to_vec()).unwrap();
    }
}
