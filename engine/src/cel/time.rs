//! Points and spans of time: their ranges, RFC 3339 and the notation of durations.

use super::calendar::Date;

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z (langdef, "Overflow").
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;

/// The units of durations. One that starts with another's name comes before it. The sign for micro is in Unicode twice.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS),
    ("m", 60 * NANOS),
    ("h", 3_600 * NANOS),
];

/// A point in time from the year 1 to the year 9999, to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
}

/// A span of time in nanoseconds: about 292 years in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(i64);

impl Timestamp {
    /// The point at this number of seconds since 1970-01-01T00:00:00Z; `None` if it is out of range.
    pub fn new(seconds: i64, nanoseconds: u32) -> Option<Self> {
        let fits = (FIRST_SECOND..=LAST_SECOND).contains(&seconds) && i64::from(nanoseconds) < NANOS;
        fits.then_some(Self { seconds, nanoseconds })
    }

    /// Seconds since 1970-01-01T00:00:00Z, rounded down.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds since that second.
    pub fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Reads `2000-01-01T00:00:00.5Z` or `2000-01-01T00:00:00+01:00` (RFC 3339). `None` if it is of another form or out
    /// of range.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.split_once(['T', 't'])?;
        let date = parse_date(date)?;
        let (clock, rest) = time.split_at_checked(8)?;
        let second_of_day = parse_clock(clock)?;
        let (nanoseconds, zone) = parse_fraction(rest)?;
        let offset = parse_offset(zone)?;
        let seconds = date.days().checked_mul(DAY)?.checked_add(second_of_day)?.checked_sub(offset)?;
        Self::new(seconds, nanoseconds)
    }

    /// The point that is later by a duration; `None` if it is out of range.
    pub(super) fn plus(self, duration: Duration) -> Option<Self> {
        let nanos = i128::from(self.seconds).checked_mul(i128::from(NANOS))?;
        let nanos = nanos.checked_add(i128::from(self.nanoseconds))?.checked_add(i128::from(duration.0))?;
        let seconds = i64::try_from(nanos.div_euclid(i128::from(NANOS))).ok()?;
        Self::new(seconds, u32::try_from(nanos.rem_euclid(i128::from(NANOS))).ok()?)
    }

    /// How much later this is than another point.
    pub(super) fn since(self, other: Self) -> Option<Duration> {
        let seconds = self.seconds.checked_sub(other.seconds)?;
        let nanos = i64::from(self.nanoseconds).checked_sub(i64::from(other.nanoseconds))?;
        let total = i128::from(seconds).checked_mul(i128::from(NANOS))?.checked_add(i128::from(nanos))?;
        i64::try_from(total).ok().map(Duration)
    }

    pub(super) fn date(self) -> Date {
        Date::of_days(self.days())
    }

    /// Days since 1970-01-01.
    pub(super) fn days(self) -> i64 {
        self.seconds.div_euclid(DAY)
    }

    pub(super) fn second_of_day(self) -> i64 {
        self.seconds.rem_euclid(DAY)
    }
}

impl Duration {
    /// A span of this number of nanoseconds.
    pub const fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// Its nanoseconds.
    pub const fn nanoseconds(self) -> i64 {
        self.0
    }

    /// Reads `1h30m`, `-1.5s`, `100ms` or `0`. `None` if it is of another form or out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        if rest == "0" {
            return Some(Self(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (amount, after) = parse_amount(rest)?;
            total = total.checked_add(amount)?;
            rest = after;
        }
        let signed = if text.starts_with('-') { total.checked_neg()? } else { total };
        i64::try_from(signed).ok().map(Self)
    }

    pub(super) fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub(super) fn minus(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    pub(super) fn negated(self) -> Option<Self> {
        self.0.checked_neg().map(Self)
    }
}

/// One number with its unit, in nanoseconds, and what follows.
fn parse_amount(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (unit, rest) = UNITS.iter().find_map(|(name, size)| Some((i128::from(*size), rest.strip_prefix(name)?)))?;
    let whole = parse_digits(whole)?.checked_mul(unit)?;
    // More digits than nanoseconds of the largest unit have cannot change the result.
    let fraction: String = fraction.chars().take(18).collect();
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = parse_digits(&fraction)?.checked_mul(unit)?.checked_div(scale)?;
    Some((whole.checked_add(part)?, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// The number that digits spell. No digits are zero.
fn parse_digits(digits: &str) -> Option<i128> {
    if digits.is_empty() { Some(0) } else { digits.parse().ok() }
}

/// A number of exactly this many digits.
fn fixed(text: &str, digits: usize) -> Option<i64> {
    let fits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| fits)
}

fn parse_date(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let date = Date { year: fixed(year, 4)?, month: fixed(month, 2)?, day: fixed(day, 2)? };
    // A day that the calendar does not have comes back as another one.
    let exists = (1..=12).contains(&date.month) && Date::of_days(date.days()) == date;
    (parts.next().is_none() && exists).then_some(date)
}

fn parse_clock(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let minute = parse_minutes(hours, minutes)?;
    let second = fixed(seconds, 2).filter(|second| *second < 60)?;
    minute.checked_mul(60)?.checked_add(second).filter(|_| parts.next().is_none())
}

fn parse_minutes(hours: &str, minutes: &str) -> Option<i64> {
    let hours = fixed(hours, 2).filter(|hour| *hour < 24)?;
    let minutes = fixed(minutes, 2).filter(|minute| *minute < 60)?;
    hours.checked_mul(60)?.checked_add(minutes)
}

/// The nanoseconds after a clock, and what follows. Digits past the ninth are cut off.
fn parse_fraction(text: &str) -> Option<(u32, &str)> {
    let Some(text) = text.strip_prefix('.') else { return Some((0, text)) };
    let (digits, rest) = split_digits(text);
    let nine: String = digits.chars().chain(std::iter::repeat_n('0', 9)).take(9).collect();
    nine.parse().ok().filter(|_| !digits.is_empty()).map(|nanos| (nanos, rest))
}

/// How many seconds a zone is ahead of UTC.
fn parse_offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
    let seconds = parse_minutes(hours, minutes)?.checked_mul(60)?;
    if zone.starts_with('-') { seconds.checked_neg() } else { Some(seconds) }
}
