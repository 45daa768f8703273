//! Projects certificates, keys and authorities to secrets (SDS). Listeners and clusters refer to them by name, so that
//! no configuration dump shows a key, and a new certificate does not change a listener.

use envoy_types::pb::envoy::{
    config::core::v3::{DataSource, data_source::Specifier},
    extensions::transport_sockets::tls::v3::{
        CertificateValidationContext, Secret, SubjectAltNameMatcher, TlsCertificate, secret,
        subject_alt_name_matcher::SanType,
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};
use postern_model::{Certificates, Gateway, HostCertificate, PrivateKey, Service, SubjectAltName, UpstreamTls};

use super::Resource;
use crate::attach::Scope;

/// The names of the secrets for connections to a listener, with its own certificate or with one for some hosts.
pub(super) fn of_door(gateway: &str, listener: &str, certificate: Option<&HostCertificate>) -> Names {
    let own = Names::of(&format!("gateway/{gateway}/{listener}"));
    // No two certificates share a host, so the first one names it whatever the order of certificates is.
    let Some((certificate, host)) = certificate.and_then(|it| Some((it, it.hosts.first()?))) else { return own };
    let names = Names::of(&format!("gateway/{gateway}/{listener}/{host}"));
    match &certificate.client_ca {
        Some(_) => names,
        None => Names { peers: own.peers, ..names },
    }
}

/// The names of a service's secrets.
pub(super) fn of_service(service: &str) -> Names {
    Names::of(&format!("service/{service}"))
}

/// The names of the two secrets of one end of a connection.
pub(super) struct Names {
    /// The secret with the certificate and key.
    pub(super) identity: String,
    /// The secret that validates the peer's certificate.
    pub(super) peers: String,
}

impl Names {
    fn of(owner: &str) -> Self {
        Self { identity: format!("{owner}/identity"), peers: format!("{owner}/peers") }
    }
}

/// All secrets for a group of nodes.
pub(super) fn secrets(scope: &Scope<'_>) -> Vec<Resource> {
    let listeners = scope.gateways.iter().copied().flat_map(listener_secrets);
    listeners.chain(scope.services.iter().copied().flat_map(service_secrets)).collect()
}

fn listener_secrets(gateway: &postern_model::Resource<Gateway>) -> Vec<Resource> {
    let mut found = Vec::new();
    for listener in &gateway.spec.listeners {
        let Some(tls) = &listener.tls else { continue };
        let names = of_door(&gateway.name, &listener.name, None);
        found.push(identity(&names.identity, &tls.certificate, &tls.key));
        // The handshake only verifies the client's identity. Which clients are allowed is decided by policies.
        found.extend(tls.client_ca.as_ref().map(|authorities| peers(&names.peers, authorities, Vec::new())));
        for certificate in &tls.certificates {
            let names = of_door(&gateway.name, &listener.name, Some(certificate));
            found.push(identity(&names.identity, &certificate.certificate, &certificate.key));
            let own = certificate.client_ca.as_ref();
            found.extend(own.map(|authorities| peers(&names.peers, authorities, Vec::new())));
        }
    }
    found
}

fn service_secrets(service: &postern_model::Resource<Service>) -> Vec<Resource> {
    let Some(tls) = &service.spec.tls else { return Vec::new() };
    let names = of_service(&service.name);
    let own = tls.identity.as_ref().map(|pair| identity(&names.identity, &pair.certificate, &pair.key));
    let peers = peers(&names.peers, &tls.ca, subjects(service, tls));
    own.into_iter().chain([peers]).collect()
}

fn subjects(service: &postern_model::Resource<Service>, tls: &UpstreamTls) -> Vec<SubjectAltNameMatcher> {
    match (tls.subject_alt_names.as_slice(), &tls.server_name) {
        ([], Some(name)) => vec![subject(SanType::Dns, name)],
        ([], None) => vec![subject(SanType::Uri, &service.spiffe_id())],
        (names, _) => names.iter().map(subject_alt_name).collect(),
    }
}

fn subject_alt_name(name: &SubjectAltName) -> SubjectAltNameMatcher {
    match name {
        SubjectAltName::Uri(uri) => subject(SanType::Uri, uri),
        SubjectAltName::Dns(name) => subject(SanType::Dns, name),
        SubjectAltName::Ip(address) => subject(SanType::IpAddress, &address.to_string()),
    }
}

fn subject(kind: SanType, name: &str) -> SubjectAltNameMatcher {
    let exact = StringMatcher { match_pattern: Some(MatchPattern::Exact(name.to_owned())), ..Default::default() };
    SubjectAltNameMatcher { san_type: kind.into(), matcher: Some(exact), ..Default::default() }
}

fn identity(name: &str, certificate: &Certificates, key: &PrivateKey) -> Resource {
    let certificate = TlsCertificate {
        certificate_chain: Some(inline(certificate.as_str().as_bytes())),
        private_key: Some(inline(key.pem())),
        ..Default::default()
    };
    resource(name, secret::Type::TlsCertificate(certificate))
}

fn peers(name: &str, authorities: &Certificates, subjects: Vec<SubjectAltNameMatcher>) -> Resource {
    let context = CertificateValidationContext {
        trusted_ca: Some(inline(authorities.as_str().as_bytes())),
        match_typed_subject_alt_names: subjects,
        ..Default::default()
    };
    resource(name, secret::Type::ValidationContext(context))
}

fn resource(name: &str, content: secret::Type) -> Resource {
    Resource::new(name, &Secret { name: name.to_owned(), r#type: Some(content) })
}

fn inline(bytes: &[u8]) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(bytes.to_vec())), ..Default::default() }
}
