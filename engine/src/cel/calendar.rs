//! The calendar in UTC, by its cycle of 400 years that starts in March.

use std::num::Saturating;

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// Counted from 1.
    pub(super) month: i64,
    /// Counted from 1.
    pub(super) day: i64,
}

impl Date {
    /// Days since 1970-01-01.
    pub(super) fn days(self) -> i64 {
        let year = Saturating(if self.month <= 2 { self.year.saturating_sub(1) } else { self.year });
        let era = Saturating(year.0.div_euclid(400));
        let year_of_era = Saturating(year.0.rem_euclid(400));
        let month =
            Saturating(if self.month > 2 { self.month.saturating_sub(3) } else { self.month.saturating_add(9) });
        let day_of_year =
            Saturating((Saturating(153) * month + Saturating(2)).0 / 5) + Saturating(self.day) - Saturating(1);
        let leaps = Saturating(year_of_era.0 / 4) - Saturating(year_of_era.0 / 100);
        let day_of_era = year_of_era * Saturating(365) + leaps + day_of_year;
        (era * Saturating(146_097) + day_of_era - Saturating(719_468)).0
    }

    pub(super) fn of_days(days: i64) -> Self {
        let shifted = days.saturating_add(719_468);
        let era = Saturating(shifted.div_euclid(146_097));
        let day = Saturating(shifted.rem_euclid(146_097));
        let leaps = Saturating(day.0 / 1_460) - Saturating(day.0 / 36_524) + Saturating(day.0 / 146_096);
        let year_of_era = Saturating((day - leaps).0 / 365);
        let before = year_of_era * Saturating(365) + Saturating(year_of_era.0 / 4) - Saturating(year_of_era.0 / 100);
        let day_of_year = day - before;
        let month = Saturating((Saturating(5) * day_of_year + Saturating(2)).0 / 153);
        let first = Saturating((Saturating(153) * month + Saturating(2)).0 / 5);
        let month = if month.0 < 10 { month + Saturating(3) } else { month - Saturating(9) };
        let carry = Saturating(i64::from(month.0 <= 2));
        let year = year_of_era + era * Saturating(400) + carry;
        Self { year: year.0, month: month.0, day: (day_of_year - first + Saturating(1)).0 }
    }

    /// Days since the first of January.
    pub(super) fn day_of_year(self) -> i64 {
        self.days().saturating_sub(Self { month: 1, day: 1, ..self }.days())
    }
}
