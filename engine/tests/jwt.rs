//! `jwtValidation`, in ways that the corpus cannot test: answers of hosts, what caches keep from plan to plan, and keys
//! that are unavailable or unusable. The tokens and keys are those of RFC 7515, appendix A.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    missing_docs,
    reason = "test code"
)]

mod common;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use common::{Driver, Writer};
use postern_engine::{Decision, Plan, Verdict};
use postern_proto::plan::v1::{
    self as wire, Issuer, JwtValidation, SignatureAlgorithm as Algorithm, VerificationKey, jwt_validation::Source,
    step::Policy, verification_key::Material,
};
use prost::Message;

/// A time before the tokens expired.
const THEN: u64 = 1_300_819_379_000_000_000;
const SECRET: &str = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
const HS256: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const ES256: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
const P256_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const P256_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

fn bytes(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

fn point() -> Vec<u8> {
    [vec![4], bytes(P256_X), bytes(P256_Y)].concat()
}

fn key(algorithm: Algorithm, material: Material) -> VerificationKey {
    VerificationKey { id: 0, algorithms: vec![algorithm.into()], material: Some(material) }
}

fn secret() -> VerificationKey {
    key(Algorithm::Hs256, Material::Secret(bytes(SECRET)))
}

fn p256() -> VerificationKey {
    key(Algorithm::Es256, Material::P256(point()))
}

/// A plan with one issuer, `joe`, and a route whose chain is one step.
fn plan(keys: Vec<VerificationKey>, change: impl FnOnce(&mut Issuer, &mut JwtValidation)) -> Writer {
    let mut writer = Writer::new();
    let [empty, jwt] = ["", "jwt"].map(|text| writer.string(text));
    let header = Source::Header(writer.string("authorization"));
    let name = writer.string("joe");
    let mut issuer = Issuer { name, issuer: name, keys, ..Default::default() };
    let mut step = JwtValidation {
        issuers: vec![0],
        source: Some(header),
        scheme: writer.string("Bearer"),
        max_size: 8192,
        types: vec![empty, jwt],
        ..Default::default()
    };
    change(&mut issuer, &mut step);
    writer.plan.issuers.push(issuer);
    let step = writer.step("jwtValidation", Policy::JwtValidation(step));
    writer.route("r", vec![step], vec![]);
    writer
}

fn good(keys: Vec<VerificationKey>) -> Writer {
    plan(keys, |_, _| {})
}

fn request(token: &str) -> Driver {
    let value = format!("Bearer {token}");
    Driver { now: THEN, ..Driver::request(&[("authorization", value.as_bytes())]) }
}

fn decide(driver: &mut Driver, writer: &Writer) -> Decision {
    driver.run(&writer.load(), "r").unwrap()
}

/// The status and the reason of a denial; `None` for an admission.
fn denial(decision: &Decision) -> Option<(u16, &'static str)> {
    match &decision.verdict {
        Verdict::Deny(response) => Some((response.status, decision.reason.unwrap())),
        Verdict::Continue(_) => None,
        Verdict::Respond(_) => panic!("an answer"),
    }
}

#[test]
fn asks_the_host_about_a_signature_and_takes_its_word() {
    for (word, expect) in [(true, None), (false, Some((401, "signature_wrong")))] {
        let mut driver = Driver { words: vec![Some(word)], ..request(ES256) };
        assert_eq!((denial(&decide(&mut driver, &good(vec![p256()]))), driver.signatures), (expect, 1));
    }
}

#[test]
fn checks_by_itself_what_the_host_cannot() {
    let mut driver = request(ES256);
    assert_eq!((denial(&decide(&mut driver, &good(vec![p256()]))), driver.signatures), (None, 1));
    let mut driver = request(HS256);
    assert_eq!((denial(&decide(&mut driver, &good(vec![secret()]))), driver.signatures), (None, 0));
}

#[test]
fn asks_for_each_key_that_may_have_signed() {
    let other = {
        // Another point: the generator of P-256 (SEC 2, section 2.4.2).
        let x = "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296";
        let y = "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";
        let hex = |text: &str| {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        key(Algorithm::Es256, Material::P256([vec![4], hex(x), hex(y)].concat()))
    };
    let mut driver = Driver { words: vec![Some(false), Some(true)], ..request(ES256) };
    assert_eq!((denial(&decide(&mut driver, &good(vec![other.clone(), p256()]))), driver.signatures), (None, 2));
    let many = vec![other; 40];
    let mut driver = Driver { words: vec![Some(false); 8], ..request(ES256) };
    let refused = Some((401, "signature_wrong"));
    assert_eq!((denial(&decide(&mut driver, &good(many))), driver.signatures), (refused, 8));
}

#[test]
fn asks_nothing_about_a_signature_that_cannot_be_good() {
    let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
    let (signed, _) = ES256.rsplit_once('.').unwrap();
    let mut driver = Driver { words: vec![Some(true)], ..request(&format!("{signed}.{zeros}")) };
    let refused = Some((401, "signature_wrong"));
    assert_eq!((denial(&decide(&mut driver, &good(vec![p256()]))), driver.signatures), (refused, 0));
}

#[test]
fn remembers_a_good_token_and_no_other() {
    let mut driver = Driver { words: vec![Some(true)], ..request(ES256) };
    let writer = good(vec![p256()]);
    for (hits, signatures) in [(0, 1), (1, 1), (2, 1)] {
        assert_eq!(denial(&decide(&mut driver, &writer)), None);
        assert_eq!((driver.hits, driver.signatures), (hits, signatures));
    }
    driver.now = THEN + 1_000_000_000;
    assert_eq!(denial(&decide(&mut driver, &writer)), Some((401, "token_expired")));
    let mut driver = Driver { words: vec![Some(false); 2], ..request(ES256) };
    for signatures in [1, 2] {
        assert_eq!(denial(&decide(&mut driver, &writer)), Some((401, "signature_wrong")));
        assert_eq!((driver.hits, driver.signatures), (0, signatures));
    }
}

#[test]
fn takes_nothing_from_a_plan_with_other_keys_or_rules() {
    let first = good(vec![p256()]);
    let mut other_audience = plan(vec![p256()], |issuer, _| issuer.audiences = vec![0]);
    other_audience.plan.strings[0] = "shop".into();
    let others = [
        ("another key", good(vec![key(Algorithm::Es256, Material::P256(point())), secret()])),
        ("no key", good(vec![secret()])),
        ("another leeway", plan(vec![p256()], |_, step| step.leeway_ms = 1)),
        ("another age", plan(vec![p256()], |_, step| step.max_age_ms = 1)),
        ("a consumer", plan(vec![p256()], |_, step| step.consumer_claim = 2)),
        ("another audience", other_audience),
        ("unavailable keys", plan(vec![], |issuer, _| issuer.keys_unavailable = true)),
    ];
    for (what, other) in others {
        let mut driver = Driver { words: vec![Some(true)], ..request(ES256) };
        assert_eq!(denial(&decide(&mut driver, &first)), None);
        decide(&mut driver, &other);
        assert_eq!(driver.hits, 0, "{what}");
        assert_eq!(denial(&decide(&mut driver, &first)), None);
        assert_eq!(driver.hits, 1, "the same plan again, after {what}");
    }
}

#[test]
fn fails_while_keys_are_unavailable() {
    let unavailable = plan(vec![], |issuer, _| issuer.keys_unavailable = true);
    assert_eq!(denial(&decide(&mut request(HS256), &unavailable)), Some((503, "keys_unavailable")));
    assert_eq!(denial(&decide(&mut request("a.b.c"), &unavailable)), Some((401, "token_malformed")));
    let mut open = plan(vec![], |issuer, step| {
        issuer.keys_unavailable = true;
        step.claim_headers = vec![wire::jwt_validation::ClaimHeader { claim: 2, header: 1 }];
    });
    let chain = &mut open.plan.chains[0];
    chain.request.as_mut().unwrap().steps[0].on_failure = wire::OnFailure::Continue.into();
    let decision = decide(&mut request(HS256), &open);
    let Verdict::Continue(edits) = &decision.verdict else { panic!("{decision:?}") };
    let removed = edits.headers().next().unwrap();
    assert!(removed.replace && removed.values.is_empty(), "a caller must not say what only a token may say");
}

#[test]
fn refuses_a_plan_with_a_key_that_cannot_be_used() {
    let off_curve = {
        let mut point = point();
        point[64] ^= 1;
        point
    };
    let bad = |material| key(Algorithm::Es256, material);
    for (what, keys) in [
        ("no material", vec![VerificationKey { material: None, ..p256() }]),
        ("no algorithm", vec![VerificationKey { algorithms: vec![], ..p256() }]),
        ("an unknown algorithm", vec![VerificationKey { algorithms: vec![99], ..p256() }]),
        ("an unspecified algorithm", vec![VerificationKey { algorithms: vec![0], ..p256() }]),
        ("another family's algorithm", vec![key(Algorithm::Hs256, Material::P256(point()))]),
        ("a secret for a public key's algorithm", vec![key(Algorithm::Rs256, Material::Secret(bytes(SECRET)))]),
        ("two families' algorithms", vec![VerificationKey { algorithms: vec![5, 8], ..p256() }]),
        ("a point off the curve", vec![bad(Material::P256(off_curve))]),
        ("a compressed point", vec![bad(Material::P256([vec![2 + (bytes(P256_Y)[31] & 1)], bytes(P256_X)].concat()))]),
        ("a point of another curve", vec![key(Algorithm::Es384, Material::P384(point()))]),
        ("a short secret", vec![key(Algorithm::Hs256, Material::Secret(vec![1; 31]))]),
        ("a short Ed25519 key", vec![key(Algorithm::Eddsa, Material::Ed25519(vec![1; 31]))]),
        (
            "an Ed25519 key of small order",
            vec![key(Algorithm::Eddsa, Material::Ed25519([vec![1], vec![0; 31]].concat()))],
        ),
        ("no RSA key", vec![key(Algorithm::Rs256, Material::Rsa(vec![0x30, 0]))]),
        ("an unknown name", vec![VerificationKey { id: 999, ..p256() }]),
    ] {
        assert!(Plan::load(&good(keys).plan.encode_to_vec()).is_err(), "{what}");
    }
}

#[test]
fn refuses_a_plan_whose_step_cannot_run() {
    for (what, writer) in [
        ("no issuer", plan(vec![secret()], |_, step| step.issuers.clear())),
        ("an issuer that is not there", plan(vec![secret()], |_, step| step.issuers = vec![1])),
        ("an issuer twice", plan(vec![secret()], |_, step| step.issuers = vec![0, 0])),
        ("no source", plan(vec![secret()], |_, step| step.source = None)),
        (
            "a token to remove from a query",
            plan(vec![secret()], |_, step| {
                (step.source, step.remove) = (Some(Source::Query(2)), true);
            }),
        ),
        ("an issuer without a name", plan(vec![secret()], |issuer, _| issuer.issuer = 0)),
    ] {
        assert!(Plan::load(&writer.plan.encode_to_vec()).is_err(), "{what}");
    }
}
