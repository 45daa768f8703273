//! From when until when certificates are valid, read from their DER (RFC 5280, section 4.1.2.5). It does not know the
//! time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    server::ParsedCertificate,
};

use super::pem::Certificates;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When a certificate is valid, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

impl Validity {
    /// How long it is valid still. `None` if it has expired.
    pub fn left(&self, now: SystemTime) -> Option<Duration> {
        let left = self.not_after.checked_sub(seconds(now))?;
        u64::try_from(left).ok().map(Duration::from_secs)
    }

    /// Whether it is not yet valid.
    pub fn is_premature(&self, now: SystemTime) -> bool {
        seconds(now) < self.not_before
    }
}

fn seconds(now: SystemTime) -> i64 {
    now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

impl Certificates {
    /// The validity of each certificate, in their order. A certificate whose times cannot be read is left out.
    pub fn validity(&self) -> Vec<Validity> {
        self.der().iter().filter_map(|certificate| validity(certificate)).collect()
    }

    /// Whether the first certificate is for a host. A wildcard asks for a name of one more label.
    pub fn covers(&self, host: &str) -> bool {
        let name = host.strip_prefix('*').map_or_else(|| host.to_owned(), |rest| format!("postern-probe{rest}"));
        let Ok(name) = ServerName::try_from(name) else { return false };
        self.der().first().is_some_and(|certificate| {
            let parsed = ParsedCertificate::try_from(certificate);
            parsed.is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
        })
    }

    fn der(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.as_str().as_bytes()).flatten().collect()
    }
}

fn validity(certificate: &[u8]) -> Option<Validity> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    if let (VERSION, _, after) = element(rest)? {
        rest = after;
    }
    // The serial number, the algorithm and the issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (SEQUENCE, times, _) = element(rest)? else { return None };
    let (tag, not_before, rest) = element(times)?;
    let not_before = time(tag, not_before)?;
    let (tag, not_after, _) = element(rest)?;
    Some(Validity { not_before, not_after: time(tag, not_after)? })
}

/// The tag and content of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(*first), rest),
        _ => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            let add = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add(usize::from(*byte));
            (length.iter().try_fold(0, add)?, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { year + 2000 } else { year + 1900 }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let mut numbers = [0_i64; 5];
    for (place, number) in numbers.iter_mut().enumerate() {
        let start = place.checked_mul(2)?;
        *number = rest.get(start..start.checked_add(2)?)?.parse().ok()?;
    }
    let [month, day, hour, minute, second] = numbers;
    Some(days(year, month, day)? * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let before = BEFORE.get(usize::try_from(month - 1).ok()?)?;
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let past = year - 1;
    let leap_days = past / 4 - past / 100 + past / 400;
    let leap_day = i64::from(is_leap && month > 2);
    Some(past * 365 + leap_days + before + leap_day + day - 1 - 719_162)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_days() {
        for (date, expect) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 19), 20_776),
            ((1900, 3, 1), -25_508),
        ] {
            assert_eq!(days(date.0, date.1, date.2), Some(expect), "{date:?}");
        }
    }

    #[test]
    fn reads_both_forms_of_time() {
        assert_eq!(time(UTC_TIME, b"700101000001Z"), Some(1));
        assert_eq!(time(UTC_TIME, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(time(GENERALIZED_TIME, b"20500101000000Z"), Some(2_524_608_000));
        for odd in [&b"7001010000Z"[..], b"700101000001", b"701301000001Z", b"\xff", b""] {
            assert_eq!(time(UTC_TIME, odd), None);
        }
        assert_eq!(time(SEQUENCE, b"700101000001Z"), None);
    }

    #[test]
    fn takes_no_broken_certificate() {
        for odd in [&b""[..], b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x02\x30\x00", b"\x30\x89\xff"] {
            assert_eq!(validity(odd), None);
        }
    }
}
