//! Owns the counting of test results from the lines that `cargo test` prints, and from when it prints them. Runs nothing and
//! has no clock. These lines are read because libtest's JSON is not stable, and nextest, one more program to install, runs no
//! documentation tests.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

/// Results of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

/// One test program, or the documentation tests of one crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    /// The program, and the source of its root.
    pub(crate) name: String,
    /// The results; `None` if the program ended before it printed them.
    pub(crate) counts: Option<Counts>,
    /// The time from its start to the start of the next one. That of documentation tests includes their building.
    pub(crate) took: Duration,
    began: Duration,
}

/// What has been read so far.
#[derive(Default)]
pub(crate) struct Tally {
    suites: Vec<Suite>,
}

impl Counts {
    /// Whether any test ran.
    pub(crate) fn ran(self) -> bool {
        self.passed + self.failed > 0
    }

    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`.
    fn read(line: &str) -> Option<Self> {
        let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let number = |word| numbers.split("; ").find_map(|part| part.strip_suffix(word)?.trim().parse().ok());
        Some(Self { passed: number(" passed")?, failed: number(" failed")?, skipped: number(" ignored")? })
    }
}

impl Suite {
    fn begin(name: String, at: Duration) -> Self {
        Self { name, counts: None, took: Duration::ZERO, began: at }
    }
}

impl Tally {
    /// Reads one line of output, printed at this time since the start.
    pub(crate) fn read(&mut self, line: &str, at: Duration) {
        if let Some(name) = suite_name(line) {
            self.end(at);
            self.suites.push(Suite::begin(name, at));
        } else if let Some(counts) = Counts::read(line) {
            match self.suites.last_mut() {
                // Documentation tests may give two results: those compiled together, and those apart.
                Some(suite) => suite.counts = Some(suite.counts.unwrap_or_default() + counts),
                None => self.suites.push(Suite { counts: Some(counts), ..Suite::begin("tests".to_owned(), at) }),
            }
        }
    }

    /// Ends the last suite at this time since the start.
    pub(crate) fn end(&mut self, at: Duration) {
        if let Some(suite) = self.suites.last_mut() {
            suite.took = at.saturating_sub(suite.began);
        }
    }

    /// A test program that crashed has no result: it is one failure. Only where cargo failed, since a program without
    /// the usual harness gives no result either.
    pub(crate) fn count_crashes(&mut self) {
        for suite in &mut self.suites {
            suite.counts.get_or_insert(Counts { failed: 1, ..Counts::default() });
        }
    }

    /// All results together.
    pub(crate) fn total(&self) -> Counts {
        self.suites.iter().filter_map(|suite| suite.counts).sum()
    }

    /// The suites with at least one test.
    pub(crate) fn suites(&self) -> impl Iterator<Item = &Suite> {
        self.suites.iter().filter(|suite| suite.counts.is_some_and(|counts| counts != Counts::default()))
    }
}

/// Reads `Running tests/delivery.rs (target/debug/deps/delivery-0123456789abcdef)` and `Doc-tests postern_engine`.
fn suite_name(line: &str) -> Option<String> {
    let line = line.strip_prefix("   ")?.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{name} (documentation)"));
    }
    let (source, program) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
    let (_, file) = program.rsplit_once("/deps/")?;
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    Some(format!("{name} ({})", source.trim_start_matches("unittests ")))
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line, Duration::ZERO));
        tally
    }

    fn check(output: &str, total: &str, suites: &[&str]) {
        let tally = tally(output);
        assert_eq!(tally.total().to_string(), total);
        let shown = |suite: &Suite| format!("{}: {}", suite.name, suite.counts.unwrap_or_default());
        assert_eq!(tally.suites().map(shown).collect::<Vec<_>>(), suites);
    }

    #[test]
    fn times_a_suite_until_the_next_one_starts() {
        let mut tally = Tally::default();
        let lines = [
            (2, "     Running tests/a.rs (target/debug/deps/a-01)"),
            (5, "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.90s"),
            (6, "   Doc-tests b"),
            (9, "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s"),
        ];
        lines.iter().for_each(|(at, line)| tally.read(line, Duration::from_secs(*at)));
        tally.end(Duration::from_secs(10));
        let times: Vec<_> = tally.suites().map(|suite| (suite.name.as_str(), suite.took.as_secs())).collect();
        assert_eq!(times, [("a (tests/a.rs)", 4), ("b (documentation)", 4)]);
    }

    #[test]
    fn adds_the_results_of_all_suites() {
        let output = "
     Running unittests src/lib.rs (target/debug/deps/postern_engine-0123456789abcdef)

running 3 tests
test route::denies ... ok
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.01s

     Running tests/delivery.rs (/elsewhere/debug/deps/delivery-0123456789abcdef)
test result: FAILED. 10 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s

   Doc-tests postern_engine
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running unittests src/main.rs (target/debug/deps/postern-0123456789abcdef)
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let suites = [
            "postern_engine (src/lib.rs): 3 passed, 0 failed, 0 skipped",
            "delivery (tests/delivery.rs): 10 passed, 2 failed, 1 skipped",
            "postern_engine (documentation): 1 passed, 0 failed, 1 skipped",
        ];
        check(output, "14 passed, 2 failed, 2 skipped", &suites);
    }

    #[test]
    fn counts_no_line_that_only_looks_like_a_result() {
        check(
            "test result: ok.\ntest results ... ok\n note: test result: ok. 1 passed; 0 failed; 0 ignored",
            "0 passed, 0 failed, 0 skipped",
            &[],
        );
        assert!(!tally("").total().ran());
    }

    #[test]
    fn counts_a_crashed_suite_as_one_failure() {
        let mut tally =
            tally("     Running tests/a.rs (target/debug/deps/a-01)\nrunning 3 tests\nerror: test failed\n");
        assert_eq!(tally.total(), Counts::default());
        tally.count_crashes();
        assert_eq!(tally.total(), Counts { failed: 1, ..Counts::default() });
    }
}
