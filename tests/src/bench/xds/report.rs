//! The figures of a run: the table, the targets, and the results as JSON. Measures nothing.

use std::{
    fmt::{self, Display, Formatter},
    path::Path,
    time::Duration,
};

use anyhow::Result;

use super::{
    super::{
        figure::{Figure, write_json},
        quantile::quantile,
    },
    case::{Case, Variant},
    measure::Figures,
};

/// The number of streams that the targets are for, the most memory a stream (kB) and the most CPU time a change (s).
const TARGET_STREAMS: u32 = 5000;
const MOST_MEMORY: f64 = 50.0;
const MOST_CPU: f64 = 0.3;
/// The number of streams that have a change this soon (ms, half of them), and are in sync this soon (s).
const PROMPT_STREAMS: u32 = 1000;
const MOST_DELAY: f64 = 35.0;
const MOST_FIRST_SYNC: f64 = 0.4;
/// Between these numbers of streams, the cost of one stays the same but for this part.
const FLAT: (u32, u32) = (1000, 10_000);
const MOST_GROWTH: f64 = 1.25;

/// A run's results, in the order of its cases.
pub(super) struct Report {
    rows: Vec<(Case, Result<Row, String>)>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    /// The memory of a stream, in kB.
    memory: f64,
    /// The CPU time of a change, in seconds.
    cpu: f64,
    /// The time of the first synchronization, in seconds.
    first_sync: f64,
    /// Milliseconds: when half of the streams have a change, nearly all, and the last one.
    p50: f64,
    p99: f64,
    all: f64,
}

impl Row {
    fn new(figures: &Figures) -> Self {
        let milliseconds = |times: &[Duration]| times.iter().map(|time| time.as_secs_f64() * 1e3).collect::<Vec<_>>();
        let delays = milliseconds(&figures.delays);
        Self {
            memory: figures.memory,
            cpu: figures.cpu.as_secs_f64(),
            first_sync: figures.first_sync.as_secs_f64(),
            p50: quantile(&delays, 0.5),
            p99: quantile(&delays, 0.99),
            all: quantile(&milliseconds(&figures.until_all), 0.5),
        }
    }

    /// All figures, with name and unit.
    fn metrics(&self) -> [(&'static str, f64, &'static str); 6] {
        [
            ("kb_per_stream", self.memory, "kB"),
            ("cpu_s_per_change", self.cpu, "s"),
            ("first_sync_s", self.first_sync, "s"),
            ("p50_ms", self.p50, "ms"),
            ("p99_ms", self.p99, "ms"),
            ("all_ms", self.all, "ms"),
        ]
    }
}

impl Report {
    pub(super) fn new(results: Vec<(Case, Result<Figures, String>)>) -> Self {
        Self { rows: results.into_iter().map(|(case, figures)| (case, figures.map(|it| Row::new(&it)))).collect() }
    }

    /// Whether every case was measured and no target was missed.
    pub(super) fn is_good(&self) -> bool {
        let measured = self.rows.iter().all(|(_, row)| row.is_ok());
        measured && self.targets().iter().all(|target| target.reached() != Some(false))
    }

    /// Writes an array of `{case, metric, value, unit}`. What was not measured is not there.
    pub(super) fn write_json(&self, path: &Path) -> Result<()> {
        write_json(path, self.figures())
    }

    fn figures(&self) -> impl Iterator<Item = Figure> {
        let measured = self.rows.iter().filter_map(|(case, row)| Some((case, row.as_ref().ok()?)));
        let figure = |case: &Case, (metric, value, unit)| (case.to_string(), metric, value, unit);
        measured.flat_map(move |(case, row)| row.metrics().map(|metric| figure(case, metric)))
    }

    fn row(&self, variant: Variant, streams: u32) -> Option<&Row> {
        let (_, row) = self.rows.iter().find(|(case, _)| *case == Case { variant, streams })?;
        row.as_ref().ok()
    }

    fn targets(&self) -> Vec<Target> {
        let of = |variant| {
            let at = |streams| Case { variant, streams };
            let case = at(TARGET_STREAMS);
            let row = self.row(variant, TARGET_STREAMS);
            let prompt = self.row(variant, PROMPT_STREAMS);
            let (small, large) = (self.row(variant, FLAT.0), self.row(variant, FLAT.1));
            let growth = |cost: fn(&Row) -> f64| Some(cost(large?) / cost(small?));
            let streams = f64::from(FLAT.1) / f64::from(FLAT.0);
            let flat = format!("a stream of {} beside one of {}", at(FLAT.1), at(FLAT.0));
            [
                Target::new(format!("{case}: kB a stream"), row.map(|row| row.memory), MOST_MEMORY),
                Target::new(format!("{case}: CPU seconds a change"), row.map(|row| row.cpu), MOST_CPU),
                Target::new(format!("{}: p50 ms", at(PROMPT_STREAMS)), prompt.map(|row| row.p50), MOST_DELAY),
                Target::new(
                    format!("{}: first sync s", at(PROMPT_STREAMS)),
                    prompt.map(|row| row.first_sync),
                    MOST_FIRST_SYNC,
                ),
                Target::new(format!("{flat}: memory"), growth(|row| row.memory), MOST_GROWTH),
                Target::new(format!("{flat}: CPU"), growth(|row| row.cpu).map(|it| it / streams), MOST_GROWTH),
            ]
        };
        [Variant::Sotw, Variant::Delta].into_iter().flat_map(of).collect()
    }
}

/// A value that must not be larger than `most`; `None` if it was not measured.
struct Target {
    what: String,
    value: Option<f64>,
    most: f64,
}

impl Target {
    fn new(what: String, value: Option<f64>, most: f64) -> Self {
        Self { what, value, most }
    }

    fn reached(&self) -> Option<bool> {
        self.value.map(|value| value <= self.most)
    }
}

impl Display for Target {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "target: {}, at most {}: ", self.what, self.most)?;
        match (self.value, self.reached()) {
            (Some(value), Some(true)) => write!(formatter, "reached, {value:.2}"),
            (Some(value), _) => write!(formatter, "NOT REACHED, {value:.2}"),
            (None, _) => write!(formatter, "not measured"),
        }
    }
}

impl Display for Report {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let [memory, cpu, each] = ["kB/stream", "CPU s/change", "µs/stream"];
        let [sync, p50, p99, all] = ["sync s", "p50 ms", "p99 ms", "all ms"];
        writeln!(formatter, "{:12}{memory:>10}{cpu:>14}{each:>11}{sync:>8}{p50:>8}{p99:>8}{all:>8}", "case")?;
        for (case, row) in &self.rows {
            let name = case.to_string();
            match row {
                Ok(row) => {
                    let Row { memory, cpu, first_sync, p50, p99, all } = row;
                    let each = cpu * 1e6 / f64::from(case.streams);
                    write!(formatter, "{name:12}{memory:>10.1}{cpu:>14.3}{each:>11.1}{first_sync:>8.2}")?;
                    writeln!(formatter, "{p50:>8.0}{p99:>8.0}{all:>8.0}")?;
                }
                Err(reason) => writeln!(formatter, "{name:12}not measured: {reason}")?,
            }
        }
        writeln!(formatter)?;
        self.targets().iter().try_for_each(|target| writeln!(formatter, "{target}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(memory: f64, cpu_ms: u64) -> Figures {
        let delays: Vec<_> = (1..=60).map(Duration::from_millis).collect();
        let (cpu, first_sync) = (Duration::from_millis(cpu_ms), Duration::from_millis(400));
        Figures { memory, cpu, first_sync, delays, until_all: vec![Duration::from_millis(100); 3] }
    }

    fn report(rows: &[(u32, Figures)]) -> Report {
        let row = |(streams, figures): &(u32, Figures)| {
            (Case { variant: Variant::Sotw, streams: *streams }, Ok(figures.clone()))
        };
        Report::new(rows.iter().map(row).collect())
    }

    #[test]
    fn gives_every_metric_of_every_case() {
        let report = report(&[(100, figures(40.0, 300))]);
        let expect = [
            ("kb_per_stream", 40.0, "kB"),
            ("cpu_s_per_change", 0.3, "s"),
            ("first_sync_s", 0.4, "s"),
            ("p50_ms", 30.5, "ms"),
            ("p99_ms", 59.41, "ms"),
            ("all_ms", 100.0, "ms"),
        ];
        let found = report.figures().map(|(case, metric, value, unit)| {
            assert_eq!(case, "sotw-100");
            (metric, (value * 1e4).round() / 1e4, unit)
        });
        assert_eq!(found.collect::<Vec<_>>(), expect);
    }

    #[test]
    fn is_good_when_all_that_was_measured_is() {
        assert!(report(&[(5000, figures(50.0, 300))]).is_good());
        assert!(!report(&[(5000, figures(50.1, 300))]).is_good());
        assert!(!report(&[(5000, figures(50.0, 301))]).is_good());
    }

    #[test]
    fn a_change_or_a_first_sync_that_takes_long_is_not_good() {
        let prompt = figures(40.0, 80);
        assert!(report(&[(1000, prompt.clone())]).is_good());
        let delays = vec![Duration::from_millis(36)];
        assert!(!report(&[(1000, Figures { delays, ..prompt.clone() })]).is_good());
        let first_sync = Duration::from_millis(401);
        assert!(!report(&[(1000, Figures { first_sync, ..prompt })]).is_good());
    }

    #[test]
    fn costs_that_grow_with_the_number_of_streams_are_not_good() {
        assert!(report(&[(1000, figures(40.0, 80)), (10_000, figures(50.0, 1000))]).is_good());
        assert!(!report(&[(1000, figures(40.0, 80)), (10_000, figures(51.0, 1000))]).is_good());
        assert!(!report(&[(1000, figures(40.0, 80)), (10_000, figures(50.0, 1001))]).is_good());
    }

    #[test]
    fn a_case_that_was_not_measured_is_not_good() {
        let failed = Report::new(vec![(Case { variant: Variant::Delta, streams: 10 }, Err("why".to_owned()))]);
        assert!(!failed.is_good());
        assert!(failed.to_string().contains("delta-10    not measured: why"), "{failed}");
    }
}
