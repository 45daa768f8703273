//! Tokens: any text as a token, any header and claims under a good signature, and any text as JSON. What is admitted must
//! have been signed, and say what another reader of JSON finds in it.

#![cfg_attr(fuzzing, no_main)]

use std::sync::{Arc, LazyLock};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use postern_engine::{
    Plan, Verdict,
    json::{self, ErrorKind, Limits, Number, Value},
};
use postern_fuzz::{
    common::{Driver, Writer},
    cost, decision,
};
use postern_proto::plan::v1::{
    Issuer, JwtValidation, SignatureAlgorithm as Algorithm, VerificationKey, jwt_validation::ClaimHeader,
    jwt_validation::Source, step::Policy, verification_key::Material,
};
use serde_json::Value as Json;
use sha2::Sha256;

postern_fuzz::target!(run: run, seeds: seeds);

const NOW: u64 = 1_300_819_379;
const SECRET: &[u8] = b"a shared secret of more than 32 bytes";
const HEADER: &str = r#"{"alg":"HS256"}"#;
const CLAIMS: &str = r#"{"iss":"joe","exp":1300819380,"sub":"a","aud":["b"],"n":{"m":[1,2.5,null,true,"\u00e9"]}}"#;
/// RFC 7515, appendix A.3.
const ES256: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
const P256: [&str; 2] = ["f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"];

/// A route whose tokens are signed with a secret, and one whose tokens are signed with a key of P-256.
static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| {
    let mut writer = Writer::new();
    let empty = writer.string("");
    let [x, y] = P256.map(|text| URL_SAFE_NO_PAD.decode(text).unwrap_or_default());
    let point = [vec![4], x, y].concat();
    let key = |algorithm: Algorithm, material| VerificationKey {
        id: empty,
        algorithms: vec![algorithm.into()],
        material: Some(material),
    };
    let keys = [
        ("secret", key(Algorithm::Hs256, Material::Secret(SECRET.to_vec()))),
        ("public", key(Algorithm::Es256, Material::P256(point))),
    ];
    for (index, (route, key)) in (0..).zip(keys) {
        let (name, issuer) = (writer.string(route), writer.string("joe"));
        writer.plan.issuers.push(Issuer { name, issuer, keys: vec![key], ..Default::default() });
        let step = JwtValidation {
            issuers: vec![index],
            source: Some(Source::Header(writer.string("authorization"))),
            scheme: writer.string("Bearer"),
            claim_headers: vec![ClaimHeader { claim: writer.string("n.m"), header: writer.string("x-n") }],
            consumer_claim: writer.string("sub"),
            max_size: 1 << 16,
            realm: empty,
            types: vec![empty, writer.string("jwt")],
            ..Default::default()
        };
        let step = writer.step("jwtValidation", Policy::JwtValidation(step));
        writer.route(route, vec![step], vec![]);
    }
    writer.load()
});

/// The first byte says what the rest is: a token, claims, a header, or JSON.
fn run(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    match first % 4 {
        0 => check_token(rest),
        1 => check_claims(rest),
        2 => check_header(rest),
        _ => check_json(rest),
    }
}

fn admits(route: &str, token: &[u8]) -> bool {
    let value = [b"Bearer ", token].concat();
    let mut driver = Driver::request(&[("authorization", &value)]);
    driver.now = NOW * 1_000_000_000;
    cost::start();
    let Some(first) = driver.run(&PLAN, route) else { return false };
    cost::check(1, PLAN.steps(), 0);
    decision::check(&first);
    let admitted = matches!(first.verdict, Verdict::Continue(_));
    // A token that is known is decided as it was at first.
    assert_eq!(driver.run(&PLAN, route).as_ref(), Some(&first));
    assert_eq!(driver.hits, usize::from(admitted));
    admitted
}

/// Nobody without the key makes a token: what is admitted is one that was made with it.
fn check_token(token: &[u8]) {
    let known = signed(HEADER.as_bytes(), CLAIMS.as_bytes());
    let spaces = token.iter().take_while(|byte| **byte == b' ').count();
    let bare = token.get(spaces..).unwrap_or_default();
    assert!(!admits("secret", token) || bare == known.as_bytes());
    assert!(!admits("public", token) || bare == ES256.as_bytes());
}

fn check_claims(claims: &[u8]) {
    if !admits("secret", signed(HEADER.as_bytes(), claims).as_bytes()) {
        return;
    }
    let other: Json = serde_json::from_slice(claims).unwrap_or_default();
    assert_eq!(other.get("iss").and_then(Json::as_str), Some("joe"));
    assert!(other.get("exp").and_then(Json::as_f64).is_some_and(|expiry| expiry >= NOW as f64));
    for start in ["nbf", "iat"].into_iter().filter_map(|name| other.get(name)) {
        assert!(start.as_f64().is_some_and(|start| start <= NOW as f64));
    }
}

fn check_header(header: &[u8]) {
    let token = signed(header, CLAIMS.as_bytes());
    assert!(!admits("public", token.as_bytes()));
    if admits("secret", token.as_bytes()) {
        let other: Json = serde_json::from_slice(header).unwrap_or_default();
        assert_eq!(other.get("alg").and_then(Json::as_str), Some("HS256"));
        assert!(other.get("crit").is_none() && other.get("kid").is_none());
        let media_type = other.get("typ").map(|typ| typ.as_str().unwrap_or_default().to_ascii_lowercase());
        assert!(media_type.is_none_or(|typ| matches!(typ.as_str(), "jwt" | "application/jwt")));
    }
}

fn signed(header: &[u8], claims: &[u8]) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let code = Hmac::<Sha256>::new_from_slice(SECRET).map(|code| code.chain_update(&text).finalize().into_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(code.unwrap_or_default()))
}

/// What we read, another reader reads as the same; what only it reads, we refuse for a reason that we mean.
fn check_json(text: &[u8]) {
    let other = serde_json::from_slice::<Json>(text);
    match (json::parse(text, Limits { depth: 100, values: 1 << 16 }), other) {
        (Ok(ours), Ok(other)) => assert!(same(&ours, &other), "{ours:?} {other:?}"),
        (Ok(ours), Err(error)) => unreadable(&ours, &error),
        (Err(error), Ok(_)) => {
            assert!(matches!(error.kind, ErrorKind::Repeated | ErrorKind::TooDeep | ErrorKind::TooMany), "{error}");
        }
        (Err(_), Err(_)) => {}
    }
}

#[track_caller]
#[expect(clippy::panic, reason = "a finding")]
fn unreadable(ours: &Value<'_>, error: &serde_json::Error) {
    panic!("{ours:?}, but {error}");
}

fn same(ours: &Value<'_>, other: &Json) -> bool {
    match (ours, other) {
        (Value::Null, Json::Null) => true,
        (Value::Bool(ours), Json::Bool(other)) => ours == other,
        (Value::String(ours), Json::String(other)) => ours == other,
        (Value::Number(Number::Int(ours)), Json::Number(other)) if other.is_i64() => other.as_i64() == Some(*ours),
        (Value::Number(Number::Uint(ours)), Json::Number(other)) => other.as_u64() == Some(*ours),
        // The other reader has a way of its own to round, and keeps the sign of zero.
        (Value::Number(ours), Json::Number(other)) => other.as_f64().is_some_and(|other| {
            let ours = ours.as_f64();
            (ours - other).abs() <= ours.abs() * 1e-14
        }),
        (Value::Array(ours), Json::Array(other)) => {
            ours.len() == other.len() && ours.iter().zip(other).all(|(ours, other)| same(ours, other))
        }
        (Value::Object(ours), Json::Object(other)) => {
            let found = |(name, ours)| other.get(name).is_some_and(|other| same(ours, other));
            ours.len() == other.len() && ours.iter().all(found)
        }
        _ => false,
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let with = |kind: u8, rest: &[u8]| [&[kind], rest].concat();
    let known = signed(HEADER.as_bytes(), CLAIMS.as_bytes());
    assert!(admits("secret", known.as_bytes()) && admits("public", ES256.as_bytes()));
    vec![
        vec![],
        with(0, known.as_bytes()),
        with(0, ES256.as_bytes()),
        with(0, b"eyJhbGciOiJub25lIn0.eyJpc3MiOiJqb2UifQ."),
        with(1, CLAIMS.as_bytes()),
        with(1, br#"{"iss":"joe","exp":1e300,"nbf":-1,"iat":0.5}"#),
        with(1, br#"{"iss":"joe","exp":18446744073709551615,"aud":"a","n":{"m":"x"}}"#),
        with(2, HEADER.as_bytes()),
        with(2, br#"{"alg":"ES256","kid":"a","typ":"JWT","crit":[],"jwk":{"kty":"EC"}}"#),
        with(3, CLAIMS.as_bytes()),
        with(3, br#" [0, -1, 1.5e-3, "\ud83d\ude00\"\\", {"a":{}, "b":[true,false,null]}] "#),
    ]
}
