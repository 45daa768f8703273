//! TLS of a listener: its certificate, certificates for some hosts (SNI), and what clients must show.

use postern_base::{diagnostic::Path, diagnostic::quote, yaml::Node};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    pem::{self, Certificates, PrivateKey},
    report::Report,
};

/// The schema of a listener's `tls`.
pub(super) const SCHEMA: Object = Object {
    fields: &[
        CERTIFICATE,
        KEY,
        CLIENT_CA,
        Field::optional("clientCertificate", WISH, WISH_ABOUT).or("require"),
        Field::optional(
            "certificates",
            Kind::List { item: &Kind::Object(&BY_HOST), at_least: 1 },
            "Certificates for some hosts, by the name that a client asks for in the handshake (SNI). `certificate` is the \
             default for all others. A connection serves only the hosts of its certificate: a request for another host \
             gets 421.",
        ),
    ],
    exactly_one_of: &[],
};

const BY_HOST: Object = Object {
    fields: &[
        Field::required(
            "hosts",
            Kind::List { item: &Kind::Host, at_least: 1 },
            "The hosts: names, or wildcards such as `*.example.com`. The most specific one counts.",
        ),
        CERTIFICATE,
        KEY,
        Field::optional(
            "clientCa",
            Kind::Pem,
            "The authorities for clients' certificates on connections for these hosts; those of the listener by default.",
        ),
        Field::optional("clientCertificate", WISH, WISH_ABOUT),
    ],
    exactly_one_of: &[],
};

const CERTIFICATE: Field =
    Field::required("certificate", Kind::Pem, "The certificate, and those that it was issued with.");
const KEY: Field = Field::required("key", Kind::Pem, "The key of that certificate: RSA, or ECDSA on P-256 or P-384.");
const CLIENT_CA: Field = Field::optional(
    "clientCa",
    Kind::Pem,
    "The authorities, one of which must have issued a client's certificate; clients need none if left out.",
);
const WISH: Kind = Kind::Choice(&["require", "request"]);
const WISH_ABOUT: &str = "`request` lets clients without a certificate in as well. One that does not fit `clientCa` is \
                          refused in either case.";

/// TLS of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenerTls {
    /// The certificate, followed by its chain.
    pub certificate: Certificates,
    /// The private key of the certificate.
    pub key: PrivateKey,
    /// The authorities for clients' certificates. `None` means that clients are not asked for one.
    pub client_ca: Option<Certificates>,
    /// Whether clients need a certificate, if there are authorities.
    #[serde(default)]
    pub client_certificate: ClientCertificate,
    /// Certificates for some hosts, which no two of them share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<HostCertificate>,
}

/// A certificate for some hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostCertificate {
    /// Host names and `*.` wildcards, in lower case: at least one.
    #[serde(deserialize_with = "lower_case")]
    pub hosts: Vec<String>,
    /// The certificate, followed by its chain.
    pub certificate: Certificates,
    /// The private key of the certificate.
    pub key: PrivateKey,
    /// The authorities for clients' certificates. `None` means those of the listener.
    pub client_ca: Option<Certificates>,
    /// Whether clients need a certificate. `None` means as the listener says, or that they do if `client_ca` is given
    /// here.
    pub client_certificate: Option<ClientCertificate>,
}

/// Whether a client must present a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClientCertificate {
    /// A client without one is refused.
    #[default]
    Require,
    /// A client without one is accepted.
    Request,
}

/// What a listener asks clients for on a connection.
#[derive(Debug, Clone, Copy)]
pub struct Clients<'a> {
    /// The authorities. `None` means that clients are not asked for a certificate.
    pub authorities: Option<&'a Certificates>,
    /// Whether a client without a certificate is refused.
    pub required: bool,
}

impl ListenerTls {
    /// What is asked of clients on connections with this certificate; `None` stands for the default one.
    pub fn clients<'a>(&'a self, certificate: Option<&'a HostCertificate>) -> Clients<'a> {
        let own = certificate.and_then(|certificate| certificate.client_ca.as_ref());
        let inherited = if own.is_some() { ClientCertificate::Require } else { self.client_certificate };
        let wish = certificate.and_then(|certificate| certificate.client_certificate).unwrap_or(inherited);
        let authorities = own.or(self.client_ca.as_ref());
        Clients { authorities, required: authorities.is_some() && wish == ClientCertificate::Require }
    }
}

/// Reports what the schema cannot express.
pub(super) fn rules(tls: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    pem::pair_rules(tls, path, report);
    let has_authorities = authorities(tls, path, false, report);
    let list = path.field("certificates");
    let mut seen = Vec::new();
    for (index, certificate) in tls.get("certificates").map_or(&[][..], Node::items).iter().enumerate() {
        let place = list.item(index);
        pem::pair_rules(certificate, &place, report);
        authorities(certificate, &place, has_authorities, report);
        hosts(certificate, &place, &mut seen, report);
    }
}

/// Returns whether there are authorities.
fn authorities(tls: &Node, path: &Path<'_>, inherited: bool, report: &mut Report<'_>) -> bool {
    match (tls.get("clientCa"), tls.get("clientCertificate")) {
        (Some(authorities), _) => pem::authority_rules(authorities, &path.field("clientCa"), report),
        (None, Some(wish)) if !inherited => {
            report.error(wish.at, &path.field("clientCertificate"), "it goes with `clientCa`");
        }
        _ => {}
    }
    tls.get("clientCa").is_some()
}

fn hosts(certificate: &Node, path: &Path<'_>, seen: &mut Vec<String>, report: &mut Report<'_>) {
    let list = path.field("hosts");
    for (index, host) in certificate.get("hosts").map_or(&[][..], Node::items).iter().enumerate() {
        let Some(text) = host.text() else { continue };
        let name = text.to_ascii_lowercase();
        let message = if name == "*" {
            "the certificate for all other hosts is `tls.certificate`".to_owned()
        } else if name.parse::<std::net::IpAddr>().is_ok() {
            "a client names no address in the handshake: expected a host name".to_owned()
        } else if seen.contains(&name) {
            format!("{} has a certificate already", quote(text))
        } else {
            seen.push(name);
            continue;
        };
        report.error(host.at, &list.item(index), message);
    }
}

fn lower_case<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::<String>::deserialize(deserializer)?;
    Ok(hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect())
}
