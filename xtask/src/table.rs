//! Owns the table at the end of a test run: what each part took, and what came of it. Runs nothing of its own.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::run::{seconds, step};
use crate::tally::Counts;

/// One part of a test run.
struct Part {
    name: String,
    took: Duration,
    /// The results; `None` for what is no test, such as a build.
    counts: Option<Counts>,
}

/// The parts of a test run, in the order in which they ran.
#[derive(Default)]
pub(crate) struct Table {
    parts: Vec<Part>,
}

impl Table {
    /// Adds a part that is over.
    pub(crate) fn add(&mut self, name: &str, took: Duration, counts: Option<Counts>) {
        self.parts.push(Part { name: name.to_owned(), took, counts });
    }

    /// Does a [`step`] that is no test, and adds it if it succeeds.
    pub(crate) fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let value = step(name, work)?;
        self.add(name, start.elapsed(), None);
        Ok(value)
    }

    /// Does a [`step`] that tests something, and adds it with its results if it gives any.
    pub(crate) fn check(&mut self, name: &str, work: impl FnOnce() -> Result<Counts>) -> Result<()> {
        let start = Instant::now();
        let counts = step(name, work)?;
        self.add(name, start.elapsed(), Some(counts));
        Ok(())
    }

    /// All results together.
    pub(crate) fn total(&self) -> Counts {
        self.parts.iter().filter_map(|part| part.counts).sum()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.parts.iter().map(|part| part.name.chars().count()).max().unwrap_or_default();
        write!(formatter, "{:<width$}{:>12}  result", "part", "time")?;
        for Part { name, took, counts } in &self.parts {
            let counts = counts.map_or("–".to_owned(), |counts| counts.to_string());
            write!(formatter, "\n{name:<width$}{:>12}  {counts}", seconds(*took))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: Counts = Counts { passed: 3, failed: 0, skipped: 1 };

    #[test]
    fn shows_one_line_for_each_part() {
        let mut table = Table::default();
        table.add("set-up", Duration::from_millis(61_240), None);
        table.add("e2e (tests/e2e)", Duration::from_millis(950), Some(PASSED));
        let expected = "part                   time  result\n\
                        set-up               61.2 s  –\n\
                        e2e (tests/e2e)       0.9 s  3 passed, 0 failed, 1 skipped";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn adds_up_the_results_of_what_tests() {
        let mut table = Table::default();
        table.add("set-up", Duration::ZERO, None);
        table.check("tidy", || Ok(PASSED)).unwrap();
        table.check("fuzz", || Ok(Counts { passed: 1, failed: 1, skipped: 0 })).unwrap();
        assert_eq!(table.total().to_string(), "4 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn adds_nothing_for_a_step_that_fails() {
        let mut table = Table::default();
        assert!(table.step("set-up", || anyhow::bail!("no compiler") as Result<()>).is_err());
        assert_eq!(table.to_string(), "part        time  result");
    }
}
