//! `Date` (RFC 9110, section 5.6.7), only in the form that senders must write, not in the two obsolete ones.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The seconds since 1970 of a date such as `Tue, 20 Apr 2021 02:07:55 GMT`. `None` if it is malformed or does not
/// exist.
pub(crate) fn read(text: &[u8]) -> Option<i64> {
    let text = str::from_utf8(text).ok()?;
    let (weekday, rest) = text.split_once(", ")?;
    let [day, month, year, clock, zone] = parts(rest, ' ')?;
    let [hour, minute, second] = parts(clock, ':')?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let (day, year) = (number(day, 2)?, number(year, 4)?);
    let [hour, minute, second] = [number(hour, 2)?, number(minute, 2)?, number(second, 2)?];
    let days = days_since_1970(year, i64::try_from(month).ok()?.saturating_add(1), day)?;
    let right_day = DAYS.get(usize::try_from(days.rem_euclid(7)).ok()?) == Some(&weekday);
    let fits = right_day && zone == "GMT" && hour < 24 && minute < 60 && second <= 60;
    let seconds = hour.saturating_mul(60).saturating_add(minute).saturating_mul(60).saturating_add(second);
    fits.then(|| days.saturating_mul(86_400).saturating_add(seconds))
}

/// Splits into exactly `N` parts. `None` if there are more or fewer.
fn parts<const N: usize>(text: &str, separator: char) -> Option<[&str; N]> {
    let parts: Vec<_> = text.split(separator).collect();
    parts.try_into().ok()
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let fits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// The days since 1970 of a date. `None` if it does not exist.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = |year: i64| year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    let length = |month| match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (year >= 1970 && (1..=length(month)).contains(&day)).then_some(())?;
    let before = year.saturating_sub(1);
    let leaps = before.div_euclid(4).saturating_sub(before.div_euclid(100)).saturating_add(before.div_euclid(400));
    // There were 477 leap days before 1970.
    let years = year.saturating_sub(1970).saturating_mul(365).saturating_add(leaps.saturating_sub(477));
    let months = (1..month).fold(0, |days: i64, month| days.saturating_add(length(month)));
    Some(years.saturating_add(months).saturating_add(day).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dates() {
        for (text, expect) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
            ("Tue, 20 Apr 2021 02:07:55 GMT", 1_618_884_475),
            ("Fri, 31 Dec 9999 23:59:60 GMT", 253_402_300_800),
        ] {
            assert_eq!(read(text.as_bytes()), Some(expect), "{text}");
        }
    }

    #[test]
    fn refuses_other_forms_and_days_that_are_none() {
        for text in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994  08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Mon, 29 Feb 1999 00:00:00 GMT",
            "Thu, 00 Jan 1970 00:00:00 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sun, 06 Nov 1994 08:49:+7 GMT",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(b"\xff"), None);
    }
}
