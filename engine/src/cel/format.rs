//! How `string()` writes numbers and times. The language definition leaves doubles open; they come out as in JSON.

use super::time::{Duration, Timestamp};

/// The shortest digits that read back as the same number, with an exponent if it is below -7 or above 20.
pub fn double(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !number.is_finite() || (-7..21).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// RFC 3339 in UTC, with as many digits of the second as are needed.
pub fn timestamp(timestamp: Timestamp) -> String {
    let date = timestamp.date();
    let second = timestamp.second_of_day();
    let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
    let fraction = fraction(timestamp.nanoseconds());
    format!("{:04}-{:02}-{:02}T{hours:02}:{minutes:02}:{seconds:02}{fraction}Z", date.year, date.month, date.day)
}

/// Seconds, such as `-1.5s`.
pub fn duration(duration: Duration) -> String {
    let nanos = duration.nanoseconds();
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let below = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    format!("{sign}{}{}s", nanos / 1_000_000_000, fraction(below))
}

fn fraction(nanoseconds: u32) -> String {
    if nanoseconds == 0 {
        return String::new();
    }
    let digits = format!(".{nanoseconds:09}");
    digits.trim_end_matches('0').to_owned()
}
