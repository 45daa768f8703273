//! Numbers with units, as users write them: durations, sizes and percentages.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The longest accepted duration: a year.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Parses `250ms`, `1s`, `5m`, `1h` or `1d`: an integer and a unit. `None` for anything else, or more than a year.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let time = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        "h" => Duration::from_secs(number.checked_mul(3_600)?),
        "d" => Duration::from_secs(number.checked_mul(86_400)?),
        _ => return None,
    };
    (time <= LONGEST).then_some(time)
}

/// Parses `65536`, `64KiB` or `1MiB`: an integer with an optional unit, in bytes. `None` for anything else, or 4 GiB
/// and more.
pub fn size(text: &str) -> Option<u32> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    u32::try_from(number.checked_mul(factor)?).ok()
}

/// Deserializes a duration.
pub(super) fn deserialize_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    duration(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("not a length of time"))
}

/// Like [`deserialize_duration`], for an optional field.
pub(super) fn deserialize_some_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    deserialize_duration(deserializer).map(Some)
}

/// Deserializes a size, which may be a number or a string with a unit.
pub(super) fn deserialize_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Bytes(u32),
        Text(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Bytes(bytes) => Ok(bytes),
        Written::Text(text) => size(&text).ok_or_else(|| D::Error::custom("not a size")),
    }
}

/// Like [`deserialize_size`], for an optional field.
pub(super) fn deserialize_some_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    deserialize_size(deserializer).map(Some)
}

/// The size in bytes, from a number or a string. `None` if it is not a size.
pub(super) fn written_size(value: &serde_json::Value) -> Option<u32> {
    deserialize_size(value).ok()
}

/// A percentage with at most four decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent {
    /// The percentage in parts per million.
    pub of_a_million: u32,
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let percent = f64::deserialize(deserializer)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(D::Error::custom("not a share in a hundred"));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000,000")]
        let of_a_million = (percent * 10_000.0).round() as u32;
        Ok(Self { of_a_million })
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (f64::from(self.of_a_million) / 10_000.0).serialize(serializer)
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lengths_of_time() {
        let check = |text, expect: Option<u64>| assert_eq!(duration(text), expect.map(Duration::from_millis), "{text}");
        check("250ms", Some(250));
        check("1s", Some(1_000));
        check("5m", Some(300_000));
        check("1h", Some(3_600_000));
        check("1d", Some(86_400_000));
        for wrong in ["", "1", "s", "1 s", "-1s", "1.5s", "1w", "99999999999d", "400d"] {
            check(wrong, None);
        }
    }

    #[test]
    fn reads_sizes() {
        let check = |text, expect| assert_eq!(size(text), expect, "{text}");
        check("10", Some(10));
        check("10B", Some(10));
        check("64KiB", Some(65_536));
        check("1MiB", Some(1_048_576));
        for wrong in ["", "KiB", "1KB", "1 KiB", "4GiB", "-1"] {
            check(wrong, None);
        }
    }
}
