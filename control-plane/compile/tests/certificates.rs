//! Certificates and keys: which are accepted, the messages for the others, and where the keys go.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use postern_compile::{
    pipeline::compile,
    snapshot::{FilterCode, ResourceType, Selection},
};
use postern_model::File;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, PKCS_RSA_SHA256};

/// A self-signed certificate, and its key.
fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn file(name: &str, text: &str) -> File {
    File { name: name.to_owned(), bytes: text.as_bytes().to_vec() }
}

/// A text as a YAML block, indented by `columns`.
fn block(text: &str, columns: usize) -> String {
    let indent = " ".repeat(columns);
    let lines: String = text.lines().map(|line| format!("{indent}{line}\n")).collect();
    format!("|\n{lines}")
}

const SERVICE: &str = "---\napiVersion: postern/v1\nkind: Service\nmetadata: { name: s }\nspec:\n  endpoints: [{ address: 127.0.0.1, port: 1 }]\n";

/// A gateway with these fields of `tls`, each of which names a file.
fn gateway(fields: &[&str]) -> File {
    let tls: String = fields.iter().map(|field| format!("        {field}: {{ file: {field}.pem }}\n")).collect();
    file(
        "dir/gateway.yaml",
        &format!(
            "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: edge }}\nspec:\n  listeners:\n    - name: https\n      \
             port: 443\n      tls:\n{tls}  routes: [{{ name: r, service: s }}]\n{SERVICE}"
        ),
    )
}

fn errors(files: &[File]) -> Vec<String> {
    let errors = postern_model::read(files).err().map(|errors| errors.to_string()).unwrap_or_default();
    errors.lines().map(str::to_owned).collect()
}

fn check_pair(certificate: &str, key: &str, expect: &[&str]) {
    let files = [gateway(&["certificate", "key"]), file("dir/certificate.pem", certificate), file("dir/key.pem", key)];
    assert_eq!(errors(&files), expect);
}

#[test]
fn takes_files_and_text_alike() {
    let (certificate, key) = pair();
    let files =
        [gateway(&["certificate", "key"]), file("dir/certificate.pem", &certificate), file("dir/key.pem", &key)];
    let from_files = postern_model::read(&files).unwrap().gateways.remove(0).spec.clone();
    let text = String::from_utf8(files[0].bytes.clone()).unwrap();
    let text = text
        .replace("{ file: certificate.pem }\n", &block(&certificate, 10))
        .replace("{ file: key.pem }\n", &block(&key, 10));
    let inline = postern_model::read(&[file("gateway.yaml", &text)]).unwrap().gateways.remove(0).spec.clone();
    assert_eq!(from_files, inline);
    let tls = inline.listeners[0].tls.as_ref().unwrap();
    assert_eq!(tls.certificate.as_str(), certificate.replace("\r\n", "\n"));
}

#[test]
fn says_what_is_wrong_with_a_certificate_or_its_key() {
    let (certificate, key) = pair();
    let (other, other_key) = pair();
    let at = |line: usize, field: &str| {
        let column = if field == "key" { 14 } else { 22 };
        format!("dir/gateway.yaml:{line}:{column}: Gateway `edge`: spec.listeners[0].tls.{field}")
    };
    let (certificate_at, key_at) = (at(9, "certificate"), at(10, "key"));
    let mismatch = format!("{key_at}: the key does not fit the certificate");
    check_pair(&certificate, &other_key, &[&mismatch]);
    // The first certificate is the listener's own, and the others are its chain.
    check_pair(&format!("{other}{certificate}"), &key, &[&mismatch]);
    check_pair(&format!("{certificate}{other}"), &key, &[]);
    // One file for both is common, and each is found in it.
    check_pair(&format!("{key}{certificate}"), &format!("{certificate}{key}"), &[]);
    check_pair(
        &key,
        &certificate,
        &[
            &format!("{certificate_at}: expected certificates in PEM"),
            &format!("{key_at}: expected one private key in PEM, not encrypted"),
        ],
    );
    let broken = certificate.replace("-----END", "!!\n-----END");
    check_pair(&broken, &key, &[&format!("{certificate_at}: not valid PEM")]);
    let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check_pair(empty, &key, &[&format!("{certificate_at}: not a certificate of X.509 version 3")]);
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    check_pair(&certificate, &encrypted, &[&format!("{key_at}: expected one private key in PEM, not encrypted")]);
    check_pair(
        &certificate,
        &format!("{key}{other_key}"),
        &[&format!("{key_at}: expected one private key in PEM, not encrypted")],
    );
}

#[test]
fn takes_the_kinds_of_keys_that_envoy_takes() {
    let check = |key: &KeyPair, expect: bool| {
        let certificate = CertificateParams::new(vec![]).unwrap().self_signed(key).unwrap().pem();
        let found = errors(&[
            gateway(&["certificate", "key"]),
            file("dir/certificate.pem", &certificate),
            file("dir/key.pem", &key.serialize_pem()),
        ]);
        let message = "expected an RSA key of at least 2048 bits, or an ECDSA key on P-256 or P-384";
        assert_eq!(found.is_empty(), expect, "{found:?}");
        assert!(expect || found[0].ends_with(message), "{found:?}");
    };
    check(&KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap(), true);
    check(&KeyPair::generate_for(&PKCS_ED25519).unwrap(), false);
    // Making an RSA key takes seconds, and ring cannot make one; this one is from another test.
    let key = include_str!("fixtures/tls/rsa.key");
    check(&KeyPair::from_pkcs8_pem_and_sign_algo(key, &PKCS_RSA_SHA256).unwrap(), true);
}

#[test]
fn wants_authorities_for_client_certificates() {
    let (certificate, key) = pair();
    let mut files =
        vec![gateway(&["certificate", "key"]), file("dir/certificate.pem", &certificate), file("dir/key.pem", &key)];
    let text = String::from_utf8(files[0].bytes.clone()).unwrap();
    let with = |line: &str| file("dir/gateway.yaml", &text.replace("  routes:", &format!("        {line}\n  routes:")));
    files[0] = with("clientCertificate: request");
    assert_eq!(
        errors(&files),
        ["dir/gateway.yaml:11:28: Gateway `edge`: spec.listeners[0].tls.clientCertificate: it goes with `clientCa`"]
    );
    files[0] = with("clientCa: { file: key.pem }");
    assert_eq!(
        errors(&files),
        ["dir/gateway.yaml:11:19: Gateway `edge`: spec.listeners[0].tls.clientCa: expected certificates in PEM"]
    );
    files[0] = with("clientCa: { file: certificate.pem }");
    assert_eq!(errors(&files), Vec::<String>::new());
}

#[test]
fn reads_how_connections_to_a_service_are_secured() {
    let (certificate, key) = pair();
    let check = |tls: &str, expect: &[&str]| {
        let service = format!("{SERVICE}  tls: {tls}\n");
        let files = [file("s", &service), file("ca.pem", &certificate), file("own.key", &key)];
        assert_eq!(errors(&files), expect, "for `{tls}`");
    };
    check("{ ca: { file: ca.pem } }", &[]);
    check("{ ca: { file: ca.pem }, certificate: { file: ca.pem }, key: { file: own.key } }", &[]);
    check(
        "{ ca: { file: ca.pem }, serverName: a.example, subjectAltNames: ['spiffe://m/s', a.example, 10.0.0.1, '::1'] }",
        &[],
    );
    let place = "s:7:8: Service `s`: spec.tls";
    check("{}", &[&format!("{place}.ca: missing required field `ca`")]);
    check(
        "{ ca: { file: ca.pem }, key: { file: own.key } }",
        &["s:7:37: Service `s`: spec.tls.certificate: a key goes with its certificate"],
    );
    check(
        "{ ca: { file: ca.pem }, certificate: { file: ca.pem } }",
        &["s:7:45: Service `s`: spec.tls.key: a certificate goes with its key"],
    );
    check(
        "{ ca: { file: ca.pem }, serverName: '*.example', subjectAltNames: ['*.example', 'a b', '://'] }",
        &[
            "s:7:44: Service `s`: spec.tls.serverName: expected a DNS name: what is asked for is one host",
            "s:7:75: Service `s`: spec.tls.subjectAltNames[0]: expected a URI such as `spiffe://default/users`, a DNS name or an \
         IP address, found `*.example`",
            "s:7:88: Service `s`: spec.tls.subjectAltNames[1]: expected a URI such as `spiffe://default/users`, a DNS name or an \
         IP address, found `a b`",
            "s:7:95: Service `s`: spec.tls.subjectAltNames[2]: expected a URI such as `spiffe://default/users`, a DNS name or an \
         IP address, found `://`",
        ],
    );
}

#[test]
fn shows_keys_to_nobody_and_sends_them_as_secrets_only() {
    let (certificate, key) = pair();
    let service =
        "  tls: { ca: { file: certificate.pem }, certificate: { file: certificate.pem }, key: { file: key.pem } }\n";
    let mut gateway = gateway(&["certificate", "key", "clientCa"]);
    gateway.bytes.extend(service.as_bytes());
    // A file with both: the key must not go where the certificate goes.
    let both = format!("{certificate}{key}");
    let files = [
        gateway,
        file("dir/certificate.pem", &both),
        file("dir/key.pem", &both),
        file("dir/clientCa.pem", &certificate),
    ];
    let bundle = postern_model::read(&files).unwrap();
    let secret: String = key.lines().nth(1).unwrap().to_owned();
    let shown = format!("{bundle:?}{}", serde_json::to_string(&bundle.gateways[0].spec).unwrap());
    assert!(
        shown.contains("BEGIN CERTIFICATE") && !shown.contains(&secret) && !shown.contains("PRIVATE KEY"),
        "{shown}"
    );

    let snapshot = compile(&files, &FilterCode::new(Vec::new(), None)).unwrap();
    let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let mut names = Vec::new();
    for kind in ResourceType::ALL {
        for resource in snapshot.select(kind, &Selection::Everything).resources {
            let has_key = holds(&resource.body.value, &secret);
            assert_eq!(
                has_key,
                kind == ResourceType::Secret && resource.name.ends_with("/identity"),
                "{}",
                resource.name
            );
            if kind == ResourceType::Secret {
                names.push(resource.name.clone());
                assert_eq!(
                    String::from_utf8_lossy(&resource.body.value).matches("BEGIN").count(),
                    if has_key { 2 } else { 1 },
                    "nothing else comes along"
                );
            }
        }
    }
    assert_eq!(
        names,
        ["gateway/edge/https/identity", "gateway/edge/https/peers", "service/s/identity", "service/s/peers"]
    );
}
