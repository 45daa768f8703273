//! The figures of a run: the table, the targets, and the results as JSON. Measures nothing.

use std::{
    fmt::{self, Display, Formatter},
    path::Path,
};

use anyhow::Result;

use super::{cases::Case, figure::write_json, measure::Measurement, quantile::quantile};

/// The case that the table compares the others with.
const YARDSTICK: &str = "ext_authz-three";

/// A run's results, in the order of its cases.
pub(super) struct Report {
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    figures: Result<Figures, String>,
}

/// Microseconds of CPU a request.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    /// The whole cost.
    total: f64,
    /// The median of the cost above the reference of the same round. References have none.
    added: Option<f64>,
    /// A quarter of the rounds is below the first, and a quarter above the second: of `added`, or `total` without it.
    quartiles: (f64, f64),
}

impl Report {
    pub(super) fn new(measurements: Vec<(Case, Measurement)>) -> Self {
        let row = |(case, measurement): &(Case, Measurement)| {
            let figures = figures(case, measurement, &measurements);
            Row { name: case.name, figures }
        };
        Self { rows: measurements.iter().map(row).collect() }
    }

    /// Whether every case was measured and no target was missed.
    pub(super) fn is_good(&self) -> bool {
        let measured = self.rows.iter().all(|row| row.figures.is_ok());
        measured && TARGETS.iter().all(|target| self.reached(target) != Some(false))
    }

    /// Writes an array of `{case, metric, value, unit}`: `added_cpu_us`, and `cpu_us` for the references. What was not
    /// measured is not there.
    pub(super) fn write_json(&self, path: &Path) -> Result<()> {
        let entry = |row: &Row| {
            let figures = row.figures.as_ref().ok()?;
            let (metric, value) = match figures.added {
                Some(added) => ("added_cpu_us", added),
                None => ("cpu_us", figures.total),
            };
            Some((row.name.to_owned(), metric, value, "us"))
        };
        write_json(path, self.rows.iter().filter_map(entry))
    }

    fn added(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name)?.figures.as_ref().ok()?.added
    }

    fn ratio(&self, target: &Target) -> Option<f64> {
        let less = if target.less.is_empty() { 0.0 } else { self.added(target.less)? };
        Some((self.added(target.of)? - less) / self.added(target.to)?)
    }

    /// `None` when a case of the target was not measured.
    fn reached(&self, target: &Target) -> Option<bool> {
        self.ratio(target).map(|ratio| ratio <= target.most)
    }
}

fn figures(case: &Case, measurement: &Measurement, all: &[(Case, Measurement)]) -> Result<Figures, String> {
    let totals = match measurement {
        Measurement::Rounds(totals) => totals,
        Measurement::Failed(reason) => return Err(reason.clone()),
    };
    let total = quantile(totals, 0.5);
    let Some(reference) = case.reference else {
        return Ok(Figures { total, added: None, quartiles: quartiles(totals) });
    };
    let base = all.iter().find(|(case, _)| case.name == reference).map(|(_, measurement)| measurement);
    let Some(Measurement::Rounds(base)) = base else {
        return Err(format!("its reference `{reference}` was not measured"));
    };
    let added: Vec<_> = totals.iter().zip(base).map(|(total, base)| total - base).collect();
    Ok(Figures { total, added: Some(quantile(&added, 0.5)), quartiles: quartiles(&added) })
}

fn quartiles(values: &[f64]) -> (f64, f64) {
    (quantile(values, 0.25), quantile(values, 0.75))
}

/// A quotient of added costs that must not be larger than `most`.
struct Target {
    of: &'static str,
    /// The case to subtract from `of`; empty for none.
    less: &'static str,
    to: &'static str,
    most: f64,
}

const TARGETS: [Target; 6] = [
    Target { of: "wasm-three", less: "", to: "ext_authz-three", most: 0.35 },
    Target { of: "wasm-three", less: "", to: "ext_proc-three", most: 0.35 },
    Target { of: "wasm-three", less: "wasm-noop", to: "native-three", most: 3.0 },
    Target { of: "wasm-three-10000-routes", less: "", to: "wasm-three-10-routes", most: 1.1 },
    Target { of: "wasm-jwt", less: "", to: "native-jwt", most: 1.3 },
    Target { of: "wasm-five", less: "", to: "ext_authz-five", most: 0.5 },
];

impl Display for Target {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let less = if self.less.is_empty() { String::new() } else { format!(" minus {}", self.less) };
        write!(formatter, "{}{less}: at most {} of {}", self.of, self.most, self.to)
    }
}

impl Display for Report {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let [request, added, quartiles, ratio] = ["µs/request", "added", "quartiles", "of ext_authz"];
        writeln!(formatter, "{:26}{request:>10}{added:>9}{quartiles:>18}{ratio:>14}", "case")?;
        for row in &self.rows {
            match &row.figures {
                Ok(figures) => self.write_figures(formatter, row.name, figures)?,
                Err(reason) => writeln!(formatter, "{:26}not measured: {reason}", row.name)?,
            }
        }
        writeln!(formatter)?;
        for target in &TARGETS {
            let answer = match (self.ratio(target), self.reached(target)) {
                (Some(ratio), Some(true)) => format!("reached, {ratio:.2}"),
                (Some(ratio), _) => format!("NOT REACHED, {ratio:.2}"),
                (None, _) => "not measured".to_owned(),
            };
            writeln!(formatter, "target: {target}: {answer}")?;
        }
        Ok(())
    }
}

impl Report {
    fn write_figures(&self, formatter: &mut Formatter<'_>, name: &str, figures: &Figures) -> fmt::Result {
        let shown =
            |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |value| format!("{value:.digits$}"));
        let ratio = figures.added.zip(self.added(YARDSTICK)).map(|(added, yardstick)| added / yardstick);
        let (low, high) = figures.quartiles;
        let (added, quartiles, ratio) = (shown(figures.added, 1), format!("{low:.1} to {high:.1}"), shown(ratio, 2));
        writeln!(formatter, "{name:26}{:>10.1}{added:>9}{quartiles:>18}{ratio:>14}", figures.total)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::cases, *};

    fn report(rounds: &[(&str, &[f64])]) -> Report {
        let case = |name: &str| cases::all().into_iter().find(|case| case.name == name).unwrap();
        let measured = |(name, rounds): &(&str, &[f64])| (case(name), Measurement::Rounds(rounds.to_vec()));
        Report::new(rounds.iter().map(measured).collect())
    }

    #[test]
    fn takes_the_median_over_the_same_rounds_reference() {
        let report = report(&[("no-filter", &[50.0, 80.0, 52.0]), ("wasm-noop", &[60.0, 91.0, 64.0])]);
        assert_eq!(report.added("wasm-noop"), Some(11.0));
        assert!(report.is_good());
    }

    #[test]
    fn a_missed_target_and_a_case_without_a_reference_are_not_good() {
        let missed = [("no-filter", &[0.0][..]), ("wasm-three", &[36.0]), ("ext_authz-three", &[100.0])];
        assert!(!report(&missed).is_good());
        assert!(!report(&[("wasm-noop", &[1.0])]).is_good());
    }

    #[test]
    fn takes_quartiles() {
        assert_eq!(quartiles(&[1.0, 2.0, 3.0, 4.0, 5.0]), (2.0, 4.0));
    }
}
