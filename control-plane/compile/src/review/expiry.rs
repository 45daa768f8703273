//! Certificates that have expired or soon will. Findings change with time, so they are made when somebody asks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postern_engine::cel::{Timestamp, format_timestamp};
use postern_model::{Bundle, Certificates, Diagnostic, Resource, Validity};

use crate::lint::Finding;

const DAY: Duration = Duration::from_secs(86_400);
/// A certificate expires soon if it has less than this left, or less than a fifth of its life.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// The certificates of a bundle, with their positions.
#[derive(Debug, Default)]
pub struct Expiring(Vec<Expiry>);

/// When a certificate expires.
#[derive(Debug)]
pub struct Expiry {
    /// The mesh of its resource.
    pub mesh: String,
    /// Its position, with an empty message.
    pub at: Diagnostic,
    /// The first certificate of a chain that expires or, of several authorities, the last.
    pub validity: Validity,
}

impl Expiring {
    /// All certificates: of listeners, of authorities for their clients, and for connections to services.
    pub fn of(bundle: &Bundle) -> Self {
        let mut all = Self::default();
        for gateway in &bundle.gateways {
            for (index, listener) in gateway.spec.listeners.iter().enumerate() {
                let Some(tls) = &listener.tls else { continue };
                let path = format!("spec.listeners[{index}].tls");
                all.chain(gateway, format!("{path}.certificate"), &tls.certificate);
                all.authorities(gateway, format!("{path}.clientCa"), tls.client_ca.as_ref());
                for (index, certificate) in tls.certificates.iter().enumerate() {
                    let path = format!("{path}.certificates[{index}]");
                    all.chain(gateway, format!("{path}.certificate"), &certificate.certificate);
                    all.authorities(gateway, format!("{path}.clientCa"), certificate.client_ca.as_ref());
                }
            }
        }
        for service in &bundle.services {
            let Some(tls) = &service.spec.tls else { continue };
            all.authorities(service, "spec.tls.ca".to_owned(), Some(&tls.ca));
            if let Some(own) = &tls.identity {
                all.chain(service, "spec.tls.certificate".to_owned(), &own.certificate);
            }
        }
        all
    }

    /// Each certificate.
    pub fn iter(&self) -> impl Iterator<Item = &Expiry> {
        self.0.iter()
    }

    /// The findings at a time, by file and line.
    pub fn findings(&self, now: SystemTime) -> Vec<Finding> {
        let mut found: Vec<_> = self.0.iter().filter_map(|expiry| expiry.finding(now)).collect();
        found.sort();
        found
    }

    fn chain<T>(&mut self, resource: &Resource<T>, field: String, certificates: &Certificates) {
        let first = certificates.validity().into_iter().min_by_key(|validity| validity.not_after);
        self.add(resource, &field, first);
    }

    fn authorities<T>(&mut self, resource: &Resource<T>, field: String, certificates: Option<&Certificates>) {
        let all = certificates.map(Certificates::validity).unwrap_or_default();
        self.add(resource, &field, all.into_iter().max_by_key(|validity| validity.not_after));
    }

    fn add<T>(&mut self, resource: &Resource<T>, field: &str, validity: Option<Validity>) {
        let at = resource.diagnose(field, "");
        self.0.extend(validity.map(|validity| Expiry { mesh: resource.mesh.clone(), at, validity }));
    }
}

impl Expiry {
    fn finding(&self, now: SystemTime) -> Option<Finding> {
        let Validity { not_before, not_after } = self.validity;
        let finding = |code, message| Some(Finding { at: Diagnostic { message, ..self.at.clone() }, code });
        let Some(left) = self.validity.left(now) else {
            let since = now.duration_since(time(not_after)).unwrap_or_default();
            return finding("certificate-expired", format!("expired on {}, {} ago", date(not_after), span(since)));
        };
        if self.validity.is_premature(now) {
            return finding("certificate-not-yet-valid", format!("is valid from {} on", date(not_before)));
        }
        let life = time(not_after).duration_since(time(not_before)).unwrap_or_default();
        let soon = left < SOON.min(life / 5);
        soon.then(|| finding("certificate-expires", format!("expires on {}, in {}", date(not_after), span(left))))?
    }
}

fn time(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn date(seconds: i64) -> String {
    Timestamp::new(seconds, 0).map_or_else(|| format!("{seconds} s after 1970"), format_timestamp)
}

/// A length of time in its largest unit.
fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    let (count, unit) = match seconds {
        0..3_600 => (seconds / 60, "minute"),
        3_600..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / DAY.as_secs(), "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}
