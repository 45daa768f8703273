//! TLS to a service: how we verify it, and how we authenticate to it.

use std::net::IpAddr;

use postern_base::{
    diagnostic::{Path, quote},
    yaml::Node,
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    format,
    pem::{self, Certificates, PrivateKey},
    report::Report,
};

/// The schema of `tls`.
pub(super) const SCHEMA: Object = Object {
    fields: &[
        Field::required("ca", Kind::Pem, "The authorities, one of which must have issued the service's certificate."),
        Field::optional("serverName", Kind::Host, "The name that the service is asked for by (SNI); none if left out."),
        Field::optional(
            "subjectAltNames",
            Kind::List { item: &Kind::Text, at_least: 1 },
            "Whom the service's certificate must be for, one of them: URIs, DNS names or IP addresses. If left out: \
             `serverName` or, without one, `spiffe://<mesh>/<name of the Service>`.",
        ),
        Field::optional("certificate", Kind::Pem, "The certificate that we show, and those that it was issued with."),
        Field::optional("key", Kind::Pem, "The key of that certificate: RSA, or ECDSA on P-256 or P-384."),
    ],
    exactly_one_of: &[],
};

/// TLS of connections to a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct UpstreamTls {
    /// The authorities. One of them must have issued the service's certificate.
    pub ca: Certificates,
    /// The server name (SNI). `None` means that none is sent.
    pub server_name: Option<String>,
    /// Accepted names in the certificate. Empty means `server_name`, or the SPIFFE identity of the service.
    pub subject_alt_names: Vec<SubjectAltName>,
    /// Our own certificate. `None` means that we present none.
    pub identity: Option<KeyPair>,
}

/// A certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyPair {
    /// The certificate, followed by its chain.
    pub certificate: Certificates,
    /// The private key of the certificate.
    pub key: PrivateKey,
}

/// A name in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub enum SubjectAltName {
    /// A URI, such as a SPIFFE identity.
    Uri(String),
    /// A DNS name.
    Dns(String),
    /// An IP address.
    Ip(IpAddr),
}

impl TryFrom<String> for SubjectAltName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if let Ok(address) = text.parse() {
            Ok(Self::Ip(address))
        } else if text.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
            && printable
        {
            Ok(Self::Uri(text))
        } else if text != "*" && !text.starts_with("*.") && format::host(&text).is_ok() {
            Ok(Self::Dns(text))
        } else {
            Err(format!(
                "expected a URI such as `spiffe://default/users`, a DNS name or an IP address, found {}",
                quote(&text)
            ))
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    ca: Certificates,
    server_name: Option<String>,
    #[serde(default)]
    subject_alt_names: Vec<SubjectAltName>,
    certificate: Option<Certificates>,
    key: Option<PrivateKey>,
}

impl TryFrom<Written> for UpstreamTls {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { ca, server_name, subject_alt_names, certificate, key } = written;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(KeyPair { certificate, key }),
            (None, None) => None,
            _ => return Err("a certificate and its key go together"),
        };
        Ok(Self { ca, server_name, subject_alt_names, identity })
    }
}

/// Reports faults that the schema cannot express.
pub(super) fn rules(tls: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    if let Some(ca) = tls.get("ca") {
        pem::authority_rules(ca, &path.field("ca"), report);
    }
    if let Some(name) = tls.get("serverName")
        && name.text().is_some_and(|name| name.starts_with('*') || name.parse::<IpAddr>().is_ok())
    {
        report.error(name.at, &path.field("serverName"), "expected a DNS name: what is asked for is one host");
    }
    let names = path.field("subjectAltNames");
    for (index, name) in tls.get("subjectAltNames").map_or(&[][..], Node::items).iter().enumerate() {
        if let Some(Err(message)) = name.text().map(|text| SubjectAltName::try_from(text.to_owned())) {
            report.error(name.at, &names.item(index), message);
        }
    }
    match (tls.get("certificate"), tls.get("key")) {
        (Some(certificate), None) => {
            report.error(certificate.at, &path.field("key"), "a certificate goes with its key")
        }
        (None, Some(key)) => report.error(key.at, &path.field("certificate"), "a key goes with its certificate"),
        _ => pem::pair_rules(tls, path, report),
    }
}
