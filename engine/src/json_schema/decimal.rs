//! JSON numbers as they are written: exact, whatever their size. Only the arithmetic that schemas need.

use std::{borrow::Cow, cmp::Ordering};

/// The largest exponent. A larger one is taken for this one: no schema tells such numbers apart.
const MAX_EXPONENT: i64 = 1 << 40;

/// A decimal number: its digits, without zeros on either side, times a power of ten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal<'a> {
    negative: bool,
    digits: Cow<'a, [u8]>,
    exponent: i64,
}

/// A divisor of `multipleOf`: greater than 0, with at most 18 digits.
#[derive(Debug)]
pub(crate) struct Divisor {
    digits: u64,
    exponent: i64,
}

impl<'a> Decimal<'a> {
    /// Reads what is known to be a JSON number.
    pub(crate) fn read(text: &'a str) -> Self {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = match fraction {
            "" => Cow::Borrowed(whole.as_bytes()),
            _ => Cow::Owned([whole, fraction].concat().into_bytes()),
        };
        let exponent = read_exponent(exponent).saturating_sub(length(fraction.len()));
        Self::trimmed(negative, digits, exponent)
    }

    fn trimmed(negative: bool, digits: Cow<'a, [u8]>, exponent: i64) -> Self {
        let end = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last.saturating_add(1));
        let start = digits.iter().position(|digit| *digit != b'0').unwrap_or(0).min(end);
        let exponent = exponent.saturating_add(length(digits.len().saturating_sub(end)));
        let digits = match digits {
            Cow::Borrowed(digits) => Cow::Borrowed(digits.get(start..end).unwrap_or_default()),
            Cow::Owned(digits) => Cow::Owned(digits.get(start..end).unwrap_or_default().to_vec()),
        };
        match digits.is_empty() {
            true => Self { negative: false, digits, exponent: 0 },
            false => Self { negative, digits, exponent },
        }
    }

    /// Like `self`, with owned digits.
    pub(crate) fn into_owned(self) -> Decimal<'static> {
        Decimal { negative: self.negative, digits: Cow::Owned(self.digits.into_owned()), exponent: self.exponent }
    }

    /// Whether its value has no fraction, however it is written.
    pub(crate) fn is_integer(&self) -> bool {
        self.exponent >= 0
    }

    /// Whether it is a multiple of the divisor. The cost grows with its digits.
    pub(crate) fn is_multiple_of(&self, divisor: &Divisor) -> bool {
        if self.digits.is_empty() {
            return true;
        }
        // The last digit is not 0, so nothing that reaches further down is a multiple.
        let shift = self.exponent.saturating_sub(divisor.exponent);
        let Ok(shift) = u64::try_from(shift) else { return false };
        // Both factors have 18 digits at the most: ten times one fits into 64 bits, their product into 128.
        let digit = |rest: u64, digit: &u8| {
            let next = rest.saturating_mul(10).saturating_add(digit.saturating_sub(b'0').into());
            next.checked_rem(divisor.digits).unwrap_or(0)
        };
        let modulus = u128::from(divisor.digits);
        let remainder = |value: u128| value.checked_rem(modulus).unwrap_or(0);
        let mut product = u128::from(self.digits.iter().fold(0, digit));
        let (mut power, mut shift) = (remainder(10), shift);
        while shift > 0 {
            if shift & 1 == 1 {
                product = remainder(product.saturating_mul(power));
            }
            power = remainder(power.saturating_mul(power));
            shift >>= 1;
        }
        product == 0
    }

    /// The position of the first digit, counted from the point.
    fn magnitude(&self) -> i64 {
        self.exponent.saturating_add(length(self.digits.len()))
    }

    fn compare_size(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.magnitude().cmp(&other.magnitude()).then_with(|| self.digits.cmp(&other.digits)),
        }
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Divisor {
    /// Makes a divisor. `None` if it is not greater than 0, or has more than 18 digits.
    pub(crate) fn of(number: &Decimal<'_>) -> Option<Self> {
        let digits = str::from_utf8(&number.digits).ok().filter(|digits| digits.len() <= 18)?.parse().ok()?;
        (!number.negative).then_some(Self { digits, exponent: number.exponent })
    }
}

fn read_exponent(text: &str) -> i64 {
    let digits = text.trim_start_matches(['+', '-']);
    let size = digits.parse().unwrap_or(MAX_EXPONENT).min(MAX_EXPONENT);
    if text.starts_with('-') { size.saturating_neg() } else { size }
}

fn length(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(MAX_EXPONENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_order(ascending: &[&str]) {
        for (place, text) in ascending.iter().enumerate() {
            for (other_place, other) in ascending.iter().enumerate() {
                let found = Decimal::read(text).cmp(&Decimal::read(other));
                assert_eq!(found, place.cmp(&other_place), "{text} and {other}");
            }
        }
    }

    #[test]
    fn orders_numbers() {
        check_order(&[
            "-1e999", "-10", "-9.5", "-1", "-0.1", "0", "1e-999", "0.1", "0.11", "1", "9", "10", "1e2", "101",
        ]);
        check_order(&["9007199254740992", "9007199254740993", "1e16", "1e999999999999999999999999"]);
    }

    #[test]
    fn knows_one_number_in_many_writings() {
        for text in ["1", "1.0", "10e-1", "0.01E+2", "1.000e0"] {
            assert_eq!(Decimal::read(text), Decimal::read("1"), "{text}");
            assert!(Decimal::read(text).is_integer());
        }
        for text in ["0", "-0", "0.00", "0e99"] {
            assert_eq!(Decimal::read(text), Decimal::read("0"), "{text}");
            assert!(Decimal::read(text).is_integer());
        }
        assert!(!Decimal::read("1.5").is_integer() && !Decimal::read("1e-1").is_integer());
        assert!(Decimal::read("1.5e1").is_integer() && Decimal::read("1e999").is_integer());
    }

    fn check_multiple(number: &str, divisor: &str, expect: bool) {
        let divisor = Divisor::of(&Decimal::read(divisor)).unwrap();
        assert_eq!(Decimal::read(number).is_multiple_of(&divisor), expect, "{number}");
    }

    #[test]
    fn tells_multiples_exactly() {
        check_multiple("19.99", "0.01", true);
        check_multiple("0.3", "0.1", true);
        check_multiple("19.995", "0.01", false);
        check_multiple("4.5", "1.5", true);
        check_multiple("-9", "3", true);
        check_multiple("0", "7", true);
        check_multiple("1e308", "0.5", true);
        check_multiple("1e1000000", "7", false);
        check_multiple("7e1000000", "7", true);
        check_multiple("35", "10", false);
        check_multiple("30", "10", true);
        check_multiple("123456789012345678901234567890", "999999999999999999", false);
        check_multiple("999999999999999999000000000000", "999999999999999999", true);
    }

    #[test]
    fn divides_by_no_zero_and_by_nothing_long() {
        for text in ["0", "-1", "1234567890123456789"] {
            assert!(Divisor::of(&Decimal::read(text)).is_none(), "{text}");
        }
    }
}
