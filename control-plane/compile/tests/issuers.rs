//! `Issuer` resources: which keys are in a plan, byte by byte, and the errors for the others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    missing_docs,
    reason = "test code"
)]

use std::sync::Arc;

use postern_compile::{
    keys::KeySets,
    pipeline::{compile, compile_bundle},
    snapshot::FilterCode,
};
use postern_model::{
    File, KeyUri,
    jwk::{KeySet, SetError},
};
use postern_proto::plan::v1::{Issuer, Plan, SignatureAlgorithm, verification_key::Material};
use prost::Message;
use serde_json::{Value, json};

/// Keys made by another implementation, each as a JWK and as in a plan: see `keys.py`.
fn fixture(name: &str) -> (Value, Vec<u8>) {
    let all: Value = serde_json::from_str(include_str!("fixtures/keys.json")).unwrap();
    (all[name]["jwk"].clone(), hex::decode(all[name]["material"].as_str().unwrap()).unwrap())
}

fn jwk(name: &str, more: Value) -> Value {
    let mut jwk = fixture(name).0;
    jwk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    jwk
}

fn document(spec: &Value) -> Vec<File> {
    let head = "apiVersion: postern/v1\nkind: Issuer\nmetadata: {name: main}\nspec:\n  ";
    vec![File { name: "i".into(), bytes: format!("{head}{spec}").into_bytes() }]
}

fn inline(keys: &[Value]) -> Value {
    json!({ "issuer": "https://issuer", "jwks": { "keys": keys } })
}

fn issuer(spec: &Value, sets: &KeySets) -> Issuer {
    // A plan has only those issuers that its steps name.
    let policy = "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {name: p}\n\
                  spec: {targetRef: {kind: Mesh}, request: [{policy: jwtValidation}]}\n";
    let mut files = document(spec);
    files.push(File { name: "p".into(), bytes: policy.into() });
    let bundle = postern_model::read(&files).unwrap_or_else(|errors| panic!("{errors}"));
    let snapshot = compile_bundle(&bundle, sets, &FilterCode::new(Vec::new(), None)).unwrap();
    Plan::decode(snapshot.plan().bytes()).unwrap().issuers.remove(0)
}

fn algorithms(issuer: &Issuer, key: usize) -> Vec<&'static str> {
    let names = issuer.keys[key].algorithms.iter();
    names.map(|number| &SignatureAlgorithm::try_from(*number).unwrap().as_str_name()[20..]).collect()
}

/// The errors without file and resource.
fn errors(spec: &Value) -> Vec<String> {
    let said = compile(&document(spec), &FilterCode::new(Vec::new(), None)).err().map(|errors| errors.to_string());
    let short = |line: &str| line.split_once("Issuer `main`: ").unwrap_or_else(|| panic!("{line}")).1.to_owned();
    said.unwrap_or_default().lines().map(short).collect()
}

fn check(spec: Value, expect: &[&str]) {
    assert_eq!(errors(&spec), expect, "for {spec}");
}

#[test]
fn keys_of_each_type_become_the_plans() {
    type Make = fn(Vec<u8>) -> Material;
    let cases: [(&str, Make, &[&str]); 7] = [
        ("rsa2048", Material::Rsa, &["RS256", "RS384", "RS512", "PS256"]),
        ("rsa3072", Material::Rsa, &["RS256", "RS384", "RS512", "PS256"]),
        ("rsa4096", Material::Rsa, &["RS256", "RS384", "RS512", "PS256"]),
        ("p256", Material::P256, &["ES256"]),
        ("p384", Material::P384, &["ES384"]),
        ("ed25519", Material::Ed25519, &["EDDSA"]),
        ("secret", Material::Secret, &["HS256"]),
    ];
    for (name, material, expect) in cases {
        let (jwk, bytes) = fixture(name);
        let set = json!({ "keys": [jwk] });
        for jwks in [set.clone(), json!(set.to_string())] {
            let issuer = issuer(&json!({ "issuer": "https://issuer", "jwks": jwks }), &KeySets::default());
            assert!(!issuer.keys_unavailable);
            assert_eq!(issuer.keys[0].material, Some(material(bytes.clone())), "{name}");
            assert_eq!(algorithms(&issuer, 0), expect, "{name}");
        }
    }
}

#[test]
fn alg_and_algorithms_restrict() {
    let keys = [jwk("rsa2048", json!({ "kid": "a", "alg": "PS256" })), jwk("rsa3072", json!({ "kid": "b" }))];
    let mut spec = inline(&keys);
    assert_eq!(algorithms(&issuer(&spec, &KeySets::default()), 0), ["PS256"]);
    spec["algorithms"] = json!(["PS256", "RS512"]);
    let restricted = issuer(&spec, &KeySets::default());
    assert_eq!(algorithms(&restricted, 0), ["PS256"]);
    assert_eq!(algorithms(&restricted, 1), ["RS512", "PS256"]);
    spec["algorithms"] = json!(["RS256"]);
    check(spec, &["spec.jwks.keys[0]: `algorithms` leaves none that this key is made for"]);
    let edwards = issuer(&inline(&[jwk("ed25519", json!({ "alg": "Ed25519" }))]), &KeySets::default());
    assert_eq!(algorithms(&edwards, 0), ["EDDSA"]);
}

#[test]
fn reports_keys_that_cannot_check_signatures() {
    let one = |key: Value, expect: &[&str]| check(inline(&[key]), expect);
    one(jwk("rsa1024", json!({})), &["spec.jwks.keys[0].n: expected 2048 to 4096 bits, found 1024"]);
    one(jwk("rsa2048", json!({ "e": "AQ" })), &["spec.jwks.keys[0].e: expected an odd number of 3 to 4294967295"]);
    one(jwk("rsa2048", json!({ "e": "AQAA" })), &["spec.jwks.keys[0].e: expected an odd number of 3 to 4294967295"]);
    one(jwk("rsa2048", json!({ "e": "AQAAAAE" })), &["spec.jwks.keys[0].e: expected an odd number of 3 to 4294967295"]);
    one(jwk("rsa2048", json!({ "e": "AQAB=" })), &["spec.jwks.keys[0].e: expected base64url without padding"]);
    one(jwk("p521", json!({})), &["spec.jwks.keys[0].crv: `P-521` is not supported here: expected `P-256` or `P-384`"]);
    one(
        jwk("p256", json!({ "crv": "P256" })),
        &["spec.jwks.keys[0].crv: `P256` is not supported here: expected `P-256` or `P-384`"],
    );
    one(
        jwk("p256", json!({ "crv": "P-384" })),
        &["spec.jwks.keys[0].x: expected 48 bytes, found 32", "spec.jwks.keys[0].y: expected 48 bytes, found 32"],
    );
    one(
        jwk("ed25519", json!({ "crv": "X25519" })),
        &["spec.jwks.keys[0].crv: `X25519` is not supported here: expected `Ed25519`"],
    );
    one(jwk("short", json!({})), &["spec.jwks.keys[0].k: expected 32 to 1024 bytes, found 31"]);
    one(
        jwk("rsa2048", json!({ "use": "enc" })),
        &["spec.jwks.keys[0].use: expected `sig`, found `enc`: this key checks no signatures"],
    );
    one(
        jwk("rsa2048", json!({ "key_ops": ["encrypt"] })),
        &["spec.jwks.keys[0].key_ops: `verify` is not among them: this key checks no signatures"],
    );
    one(
        jwk("rsa2048", json!({ "alg": "ES256" })),
        &["spec.jwks.keys[0].alg: `ES256` is not supported here: expected `RS256` or `RS384` or `RS512` or `PS256`"],
    );
    one(
        jwk("secret", json!({ "alg": "none" })),
        &["spec.jwks.keys[0].alg: `none` is not supported here: expected `HS256`"],
    );
    one(
        json!({ "kty": "PQC" }),
        &["spec.jwks.keys[0].kty: `PQC` is not supported here: expected `RSA` or `EC` or `OKP` or `oct`"],
    );
    one(
        json!({ "kid": "" }),
        &["spec.jwks.keys[0].kty: missing required member `kty`", "spec.jwks.keys[0].kid: expected 1 to 256 bytes"],
    );
    // Of the right size, but not points on their curves.
    let off = "spec.jwks.keys[0]: its numbers make no key of this type";
    one(jwk("p256", json!({ "y": "A".repeat(43) })), &[off]);
    one(jwk("p384", json!({ "y": "A".repeat(64) })), &[off]);
    one(jwk("ed25519", json!({ "x": "AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" })), &[off]);
    one(json!("key"), &["spec.jwks.keys[0]: expected a mapping"]);
}

#[test]
fn reports_all_keys_at_once_where_they_stand() {
    let spec =
        "issuer: https://issuer\n  jwks:\n    keys:\n      - kty: RSA\n        e: AQAB\n      - {kty: oct, k: AAAA}";
    let files = document(&Value::Null);
    let head = String::from_utf8(files[0].bytes.clone()).unwrap().replace("null", spec);
    let said = postern_model::read(&[File { name: "i".into(), bytes: head.into_bytes() }]).unwrap_err().to_string();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "i:8:9: Issuer `main`: spec.jwks.keys[0].n: missing required member `n`",
            "i:10:23: Issuer `main`: spec.jwks.keys[1].k: expected 32 to 1024 bytes, found 3",
        ]
    );
}

#[test]
fn reports_json_in_a_string_at_the_string() {
    let text = |jwks: &str| json!({ "issuer": "https://issuer", "jwks": jwks });
    check(text("{"), &["spec.jwks: not JSON: line 1, column 1 of it"]);
    check(text("[]"), &["spec.jwks: the key set has no list `keys`"]);
    check(text(r#"{"keys": []}"#), &["spec.jwks: expected 1 to 64 keys, found 0"]);
    check(
        text(r#"{"keys": [{"kty": "oct", "k": "AAAA"}]}"#),
        &["spec.jwks: keys[0].k: expected 32 to 1024 bytes, found 3"],
    );
}

#[test]
fn reports_sets_that_are_ambiguous() {
    let (a, b) = (jwk("rsa2048", json!({ "kid": "a" })), jwk("rsa3072", json!({ "kid": "a" })));
    check(inline(&[a.clone(), b]), &["spec.jwks.keys[1].kid: keys[0] has the same for the same algorithm"]);
    // Keys with one `kid` and different algorithms are distinct.
    check(inline(&[a.clone(), jwk("p256", json!({ "kid": "a" }))]), &[]);
    let with_secret = inline(&[a, jwk("secret", json!({ "kid": "b" }))]);
    check(with_secret, &["spec.jwks: secrets cannot stand beside public keys: one could be taken for the other"]);
    let mut mixed = inline(&[jwk("secret", json!({}))]);
    mixed["algorithms"] = json!(["HS256", "RS256"]);
    check(
        mixed,
        &["spec.algorithms: `HS256` cannot stand beside the others: a public key could be taken for a secret"],
    );
}

#[test]
fn reports_the_rest_of_the_resource() {
    check(
        json!({}),
        &["spec: expected exactly one of `jwks`, `jwksUri`", "spec.issuer: missing required field `issuer`"],
    );
    check(
        json!({ "issuer": "", "audiences": ["a", ""], "jwksUri": "http://issuer.example/keys" }),
        &[
            "spec.audiences[1]: expected at least 1 character",
            "spec.issuer: expected at least 1 character",
            "spec.jwksUri: expected `https`: over `http`, anyone on the way could replace the keys",
        ],
    );
    let published = |more: Value| {
        let mut spec = json!({ "issuer": "a", "jwksUri": "https://issuer.example/keys" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    check(published(json!({})), &[]);
    check(published(json!({ "refresh": "500ms" })), &["spec.refresh: expected `1s` to `1d`"]);
    check(published(json!({ "refresh": "2d" })), &["spec.refresh: expected `1s` to `1d`"]);
    check(
        published(json!({ "algorithms": ["HS256"] })),
        &["spec.algorithms: a shared secret is not published: put it into `jwks`"],
    );
    check(
        published(json!({ "jwks": { "keys": [fixture("p256").0] } })),
        &["spec: expected exactly one of `jwks`, `jwksUri`"],
    );
    let mut spec = inline(&[fixture("p256").0]);
    spec["refresh"] = json!("5m");
    check(spec, &["spec.refresh: there is nothing to refresh: it goes with `jwksUri`"]);
    check(json!({ "issuer": "a", "jwks": [1] }), &["spec.jwks: expected a mapping, or JSON in a string, found a list"]);
}

#[test]
fn never_shows_a_secret_or_a_private_key() {
    const SECRET: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U";
    let keys = [
        json!({ "kty": "oct", "k": format!("{SECRET}=") }),
        json!({ "kty": "oct", "k": [SECRET] }),
        json!({ "kty": "oct", "k": &SECRET[..20] }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": SECRET, "d": SECRET }),
        jwk("rsa2048", json!({ "d": SECRET, "p": SECRET, "q": SECRET })),
        jwk("p256", json!({ "d": SECRET })),
    ];
    for key in keys {
        for jwks in [json!({ "keys": [key] }), json!(json!({ "keys": [key] }).to_string())] {
            let said = errors(&json!({ "issuer": "a", "jwks": jwks })).join("\n");
            assert!(!said.is_empty() && !said.contains(&SECRET[..20]), "{said}");
        }
    }
    let cut = json!({ "keys": [{ "kty": "oct", "k": SECRET }] }).to_string();
    let said = errors(&json!({ "issuer": "a", "jwks": &cut[..cut.len() - 1] })).join("\n");
    assert!(!said.is_empty() && !said.contains(&SECRET[..20]), "{said}");
    let good = postern_model::read(&document(&inline(&[json!({ "kty": "oct", "k": SECRET })]))).unwrap();
    let shown = format!("{good:?} {}", serde_json::to_string(&good.issuers[0].spec).unwrap());
    assert!(!shown.contains(&SECRET[..20]) && !shown.contains("secretsecret"), "{shown}");
    assert!(!shown.contains("115,101,99"), "{shown}");
}

fn read_set(keys: &[Value]) -> Result<(usize, Vec<String>), SetError> {
    let (set, skipped) = KeySet::read(json!({ "keys": keys, "more": 1 }).to_string().as_bytes())?;
    Ok((set.keys().len(), skipped.iter().map(ToString::to_string).collect()))
}

#[test]
fn leaves_unusable_keys_of_a_published_set_out() {
    let good = jwk("p256", json!({ "kid": "a" }));
    let outcome = read_set(&[
        json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA" }),
        jwk("rsa2048", json!({ "use": "enc" })),
        good.clone(),
        jwk("secret", json!({})),
        good,
        jwk("p384", json!({ "d": "AAAA" })),
        json!(null),
    ]);
    assert_eq!(
        outcome,
        Ok((
            1,
            vec![
                "keys[0]: kty: `AKP` is not supported here: expected `RSA` or `EC` or `OKP` or `oct`".into(),
                "keys[1]: use: expected `sig`, found `enc`: this key checks no signatures".into(),
                "keys[3]: a shared secret that is published is none".into(),
                "keys[4]: another key has the same `kid` `a`".into(),
                "keys[5]: d: a private key: whoever reads it can sign, so only its public part belongs here".into(),
                "keys[6]: expected a mapping".into(),
            ]
        ))
    );
}

#[test]
fn takes_no_set_without_a_usable_key() {
    assert!(matches!(read_set(&[]), Err(SetError::Unusable(_))));
    let said = read_set(&[jwk("secret", json!({}))]).unwrap_err().to_string();
    assert_eq!(said, "the key set has no usable key; keys[0]: a shared secret that is published is none");
    for (bytes, expect) in [
        (&b"<html>"[..], "the key set is not JSON: line 1, column 1"),
        (b"", "the key set is not JSON: line 1, column 0"),
        (b"\xff\xfe", "the key set is not JSON: line 1, column 1"),
        (b"[]", "the key set has no list `keys`"),
        (b"{\"keys\": {}}", "the key set has no list `keys`"),
    ] {
        assert_eq!(KeySet::read(bytes).unwrap_err().to_string(), expect);
    }
    assert!(KeySet::read("[".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn bounds_the_keys_of_a_published_set() {
    let keys: Vec<_> = (0..100).map(|index| jwk("p256", json!({ "kid": index.to_string() }))).collect();
    let (count, skipped) = read_set(&keys).unwrap();
    assert_eq!((count, skipped.len()), (64, 36));
    assert_eq!(skipped[0], "keys[64]: only the first 64 usable keys are used");
    assert!(errors(&inline(&keys))[0].contains("expected 1 to 64 keys, found 100"));
}

fn published(name: &str) -> KeySets {
    let set = KeySet::read(json!({ "keys": [fixture(name).0] }).to_string().as_bytes()).unwrap().0;
    [(KeyUri::try_from("https://issuer/keys".to_owned()).unwrap(), Arc::new(set))].into_iter().collect()
}

#[test]
fn a_published_set_is_an_input_that_the_revision_covers() {
    let spec = json!({ "issuer": "a", "jwksUri": "https://issuer/keys" });
    assert!(issuer(&spec, &KeySets::default()).keys_unavailable);
    let lowered = issuer(&spec, &published("p256"));
    assert!(!lowered.keys_unavailable);
    assert_eq!(lowered.keys[0].material, Some(Material::P256(fixture("p256").1)));
    // A set without a key for an accepted algorithm counts as empty.
    let restricted = json!({ "issuer": "a", "jwksUri": "https://issuer/keys", "algorithms": ["RS256"] });
    assert!(issuer(&restricted, &published("p256")).keys_unavailable);

    let bundle = postern_model::read(&document(&spec)).unwrap();
    let revision = |sets: &KeySets| {
        compile_bundle(&bundle, sets, &FilterCode::new(Vec::new(), None)).unwrap().revision().to_string()
    };
    let revisions = [KeySets::default(), published("p256"), published("p384")].map(|sets| revision(&sets));
    assert_eq!(revision(&published("p256")), revisions[1]);
    assert!(revisions[0] != revisions[1] && revisions[1] != revisions[2]);
}
