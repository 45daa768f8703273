//! Certificates and private keys in PEM. Only the certificates or the key are kept of a text, since the text around a
//! certificate can contain its key.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use postern_base::{diagnostic::Path, yaml::Node};
use rustls::{
    Error, SignatureAlgorithm,
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::ParsedCertificate,
    sign::{CertifiedKey, SigningKey},
};
use serde::{Deserialize, Serialize};

use super::{report::Report, secret::Secret};

const CERTIFICATE: &str = "CERTIFICATE";
/// The characters of a full line in PEM (RFC 7468, section 2).
const LINE: usize = 64;

/// A message that does not repeat the text, since that may be a key.
type Fault = &'static str;

/// One or more certificates in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Certificates(String);

impl Certificates {
    /// The certificates in PEM.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Certificates {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        Ok(Self(certificates(&text)?.iter().map(|certificate| encode(CERTIFICATE, certificate)).collect()))
    }
}

/// A private key in PEM. `Debug` does not show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct PrivateKey(Secret);

impl PrivateKey {
    /// The key in PEM.
    pub fn pem(&self) -> &[u8] {
        &self.0.0
    }
}

impl TryFrom<String> for PrivateKey {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        let key = private_key(&text)?;
        let label = match key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        Ok(Self(Secret(encode(label, key.secret_der()).into_bytes())))
    }
}

/// Reports faults of a certificate, of its key, and that they do not belong together.
pub(super) fn pair_rules(pair: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let text = |name| pair.get(name).and_then(|node| Some((node, node.text()?)));
    let chain = text("certificate").and_then(|(node, text)| {
        certificates(text).map_err(|fault| report.error(node.at, &path.field("certificate"), fault)).ok()
    });
    let key = text("key").and_then(|(node, text)| {
        signing_key(text).map_err(|fault| report.error(node.at, &path.field("key"), fault)).ok()
    });
    if let (Some(chain), Some(key), Some((node, _))) = (chain, key, text("key"))
        && CertifiedKey::new(chain, key).keys_match().is_err()
    {
        report.error(node.at, &path.field("key"), "the key does not fit the certificate");
    }
}

/// Reports faults of authorities' certificates.
pub(super) fn authority_rules(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    if let Some(Err(fault)) = node.text().map(certificates) {
        report.error(node.at, path, fault);
    }
}

const NOT_A_CERTIFICATE: Fault = "not a certificate of X.509 version 3";
const NOT_A_KEY: Fault = "expected one private key in PEM, not encrypted";
const UNSUPPORTED_KEY: Fault = "expected an RSA key of at least 2048 bits, or an ECDSA key on P-256 or P-384";

fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|_| "not valid PEM")?;
    if found.is_empty() {
        return Err("expected certificates in PEM");
    }
    match found.iter().any(|certificate| ParsedCertificate::try_from(certificate).is_err()) {
        true => Err(NOT_A_CERTIFICATE),
        false => Ok(found),
    }
}

fn private_key(text: &str) -> Result<PrivateKeyDer<'static>, Fault> {
    let found: Result<Vec<_>, _> = PrivateKeyDer::pem_slice_iter(text.as_bytes()).collect();
    match found.map_err(|_| "not valid PEM")?.as_slice() {
        [key] => Ok(key.clone_key()),
        _ => Err(NOT_A_KEY),
    }
}

/// The key. An error if Envoy cannot sign with a key of its type, as far as we know.
fn signing_key(text: &str) -> Result<Arc<dyn SigningKey>, Fault> {
    let key = any_supported_type(&private_key(text)?).map_err(|_: Error| UNSUPPORTED_KEY)?;
    match key.algorithm() {
        SignatureAlgorithm::RSA | SignatureAlgorithm::ECDSA => Ok(key),
        _ => Err(UNSUPPORTED_KEY),
    }
}

fn encode(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(LINE) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}
