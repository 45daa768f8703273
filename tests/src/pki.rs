//! A public key infrastructure for tests: authorities, and certificates with identities of a mesh, made anew each time.

use std::{fs, path::Path, time::SystemTime};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

/// An authority. Whoever trusts it trusts whatever it issues.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority of this name, with a key of its own.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Its own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate with a key of its own, for clients and servers.
    pub fn issue(&self, subject: &Subject) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        for uri in &subject.uris {
            params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
        }
        for name in &subject.names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        if let Some((from, until)) = subject.valid {
            (params.not_before, params.not_after) = (from.into(), until.into());
        }
        let key = KeyPair::generate()?;
        Ok(Identity { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// The subject of a certificate.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// The URIs, in the order of the certificate.
    uris: Vec<String>,
    names: Vec<String>,
    valid: Option<(SystemTime, SystemTime)>,
}

impl Subject {
    /// A service of a mesh: its identity is the first URI.
    pub fn service(mesh: &str, service: &str) -> Self {
        Self { uris: vec![format!("spiffe://{mesh}/{service}")], ..Self::default() }
    }

    /// Adds a tag, as a further URI.
    #[must_use]
    pub fn tag(mut self, name: &str, value: &str) -> Self {
        self.uris.push(format!("postern://tag/{name}/{}", percent_encoded(value)));
        self
    }

    /// A server with this DNS name.
    pub fn host(name: &str) -> Self {
        Self::default().dns(name)
    }

    /// Sets when the certificate is valid; it is for centuries by default.
    #[must_use]
    pub fn valid(mut self, from: SystemTime, until: SystemTime) -> Self {
        self.valid = Some((from, until));
        self
    }

    /// Adds a DNS name.
    #[must_use]
    pub fn dns(mut self, name: &str) -> Self {
        self.names.push(name.to_owned());
        self
    }
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Identity {
    /// Writes `NAME.crt` and `NAME.key` into a directory.
    pub fn write(&self, directory: &Path, name: &str) -> Result<()> {
        fs::write(directory.join(format!("{name}.crt")), &self.certificate).context("the certificate")?;
        fs::write(directory.join(format!("{name}.key")), &self.key).context("the key")
    }
}

/// Percent-encodes all but the unreserved characters (RFC 3986, section 2.3).
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_identity_and_tags_into_uris() {
        let subject = Subject::service("default", "web").tag("version", "v1").tag("zone", "us east/1");
        let expect = ["spiffe://default/web", "postern://tag/version/v1", "postern://tag/zone/us%20east%2F1"];
        assert_eq!(subject.uris, expect);
    }
}
