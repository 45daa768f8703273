//! The formats of text that are checked, each by the standard that defines it.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A format that a schema can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// RFC 3339, section 5.6: `date-time`.
    DateTime,
    /// RFC 3339: `full-date`.
    Date,
    /// RFC 9562, section 4.
    Uuid,
    Ipv4,
    Ipv6,
}

impl Format {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DateTime => "date-time",
            Self::Date => "date",
            Self::Uuid => "uuid",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }

    pub(crate) fn fits(self, text: &str) -> bool {
        match self {
            Self::DateTime => is_date_time(text),
            Self::Date => date(text).is_some_and(str::is_empty),
            Self::Uuid => is_uuid(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
        }
    }
}

fn is_date_time(text: &str) -> bool {
    let Some(time) = date(text).and_then(|rest| rest.strip_prefix(['T', 't'])) else { return false };
    let Some((clock, zone)) = clock(time) else { return false };
    let offset = match zone {
        "Z" | "z" => Some(0),
        _ => offset(zone),
    };
    offset.is_some_and(|offset| {
        // A leap second is the last of a day of UTC.
        clock.second < 60 || minute_of_day(&clock).saturating_sub(offset).rem_euclid(24 * 60) == 24 * 60 - 1
    })
}

struct Clock {
    hour: i32,
    minute: i32,
    second: i32,
}

fn minute_of_day(clock: &Clock) -> i32 {
    clock.hour.saturating_mul(60).saturating_add(clock.minute)
}

/// Reads a date that exists. Returns what follows it.
fn date(text: &str) -> Option<&str> {
    let (year, rest) = number(text, 4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2)?;
    let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    (1..=days).contains(&day).then_some(rest)
}

/// Reads a time. Returns it with what follows.
fn clock(text: &str) -> Option<(Clock, &str)> {
    let (hour, rest) = number(text, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = number(rest.strip_prefix(':')?, 2)?;
    let rest = match rest.strip_prefix('.') {
        None => rest,
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
            (rest.len() < fraction.len()).then_some(rest)?
        }
    };
    (hour < 24 && minute < 60 && second <= 60).then_some((Clock { hour, minute, second }, rest))
}

/// Reads an offset, in minutes ahead of UTC.
fn offset(text: &str) -> Option<i32> {
    let west = text.starts_with('-');
    let (hour, rest) = number(text.strip_prefix(['+', '-'])?, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let size = minute_of_day(&Clock { hour, minute, second: 0 });
    (rest.is_empty() && hour < 24 && minute < 60).then_some(if west { size.saturating_neg() } else { size })
}

/// Reads a number of exactly this many digits. Returns it with what follows.
fn number(text: &str, digits: usize) -> Option<(i32, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let number = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()?;
    Some((number, rest))
}

fn is_uuid(text: &str) -> bool {
    let dash = |place: usize| matches!(place, 8 | 13 | 18 | 23);
    let fits = |(place, byte): (usize, u8)| if dash(place) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: Format, fit: &[&str], unfit: &[&str]) {
        for text in fit {
            assert!(format.fits(text), "{text}");
        }
        for text in unfit {
            assert!(!format.fits(text), "{text}");
        }
    }

    #[test]
    fn knows_times() {
        check(
            Format::DateTime,
            &[
                "1985-04-12T23:20:50.52Z",
                "1996-12-19T16:39:57-08:00",
                "1990-12-31T23:59:60Z",
                "1990-12-31T15:59:60-08:00",
                "2024-02-29t00:00:00z",
                "2000-02-29T00:00:00+23:59",
            ],
            &[
                "",
                "1985-04-12",
                "1985-04-12 23:20:50Z",
                "1985-04-12T23:20:50",
                "1985-04-12T23:20:50.Z",
                "1985-04-12T24:00:00Z",
                "1985-04-12T23:60:00Z",
                "1985-04-12T23:20:60Z",
                "1990-12-31T23:59:61Z",
                "1985-13-12T23:20:50Z",
                "1985-04-31T23:20:50Z",
                "1985-04-00T23:20:50Z",
                "1900-02-29T00:00:00Z",
                "985-04-12T23:20:50Z",
                "1985-4-12T23:20:50Z",
                "+985-04-12T23:20:50Z",
                "1985-04-12T23:20:50+0100",
                "1985-04-12T23:20:50+24:00",
                "1985-04-12T23:20:50Zx",
                "1985-04-12T23:20:5٠Z",
            ],
        );
        check(Format::Date, &["2024-02-29", "1999-12-31"], &["2023-02-29", "2024-2-9", "2024-02-29T", "20240229", ""]);
    }

    #[test]
    fn knows_identifiers_and_addresses() {
        check(
            Format::Uuid,
            &["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
            &[
                "2eb8aa08-aa98-11ea-b4aa-73b441d1638",
                "2eb8aa08aa9811eab4aa73b441d16380",
                "2eb8aa08-aa98-11ea-b4aa-73b441d1638g",
                "",
            ],
        );
        check(Format::Ipv4, &["192.0.2.1"], &["192.0.2", "192.0.2.256", "192.0.02.1", "0x7f.1.1.1", " 192.0.2.1", ""]);
        check(Format::Ipv6, &["::1", "2001:db8::192.0.2.1"], &["::1%eth0", "1::2::3", "12345::", "192.0.2.1", ""]);
    }
}
