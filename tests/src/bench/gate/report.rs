//! The figures of a run: the table, the target, and the results as JSON. Measures nothing.

use std::{
    fmt::{self, Display, Formatter},
    fs,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::json;

use super::measure::Times;

/// What the gate may take for a plan of [`TARGET_ROUTES`]: less than a person notices.
const TARGET_MS: f64 = 50.0;
const TARGET_ROUTES: usize = 1_000;

/// Medians, in milliseconds.
pub(super) struct Report {
    rows: Vec<Row>,
}

struct Row {
    routes: usize,
    read: f64,
    compile: f64,
    gate: f64,
    ack: f64,
    total: f64,
}

impl Report {
    pub(super) fn new(cases: &[(usize, Vec<Times>)]) -> Self {
        let row = |(routes, times): &(usize, Vec<Times>)| Row {
            routes: *routes,
            read: median(times, |times| times.read),
            compile: median(times, |times| times.compile),
            gate: median(times, |times| times.gate),
            ack: median(times, |times| times.ack),
            total: median(times, |times| times.total),
        };
        Self { rows: cases.iter().map(row).collect() }
    }

    pub(super) fn is_good(&self) -> bool {
        self.rows.iter().any(Row::meets_the_target)
    }

    pub(super) fn write_json(&self, path: &Path) -> Result<()> {
        let entries: Vec<_> = self
            .rows
            .iter()
            .flat_map(|row| {
                let case = format!("routes-{}", row.routes);
                [
                    ("gate_ms", row.gate),
                    ("apply_to_ack_ms", row.total),
                    ("read_ms", row.read),
                    ("compile_ms", row.compile),
                    ("publish_to_ack_ms", row.ack),
                ]
                .map(|(metric, value)| json!({ "case": case, "metric": metric, "value": value, "unit": "ms" }))
            })
            .collect();
        let text = serde_json::to_string_pretty(&entries)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
    }
}

impl Row {
    fn meets_the_target(&self) -> bool {
        self.routes == TARGET_ROUTES && self.gate <= TARGET_MS
    }
}

impl Display for Report {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let head = ["read", "compile", "(gate", "alone)", "publish to ACK", "apply to ACK"];
        let [read, compile, gate, alone, ack, total] = head;
        writeln!(formatter, "{:14}{read:>10}{compile:>10}{:>14}{ack:>16}{total:>14}", "ms", format!("{gate} {alone}"))?;
        for row in &self.rows {
            let Row { routes, read, compile, gate, ack, total } = row;
            let case = format!("routes-{routes}");
            writeln!(formatter, "{case:14}{read:>10.1}{compile:>10.1}{gate:>14.1}{ack:>16.1}{total:>14.1}")?;
        }
        let answer = if self.is_good() { "reached" } else { "NOT REACHED" };
        writeln!(formatter, "\ntarget: the gate takes at most {TARGET_MS} ms for {TARGET_ROUTES} routes: {answer}")
    }
}

/// In milliseconds, to a thousandth.
fn median(times: &[Times], part: impl Fn(&Times) -> Duration) -> f64 {
    let mut values: Vec<_> = times.iter().map(|times| part(times).as_secs_f64() * 1000.0).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
    (middle * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(routes: usize, gates: &[u64]) -> Report {
        let ms = Duration::from_millis;
        let times = |gate: &u64| Times { read: ms(1), compile: ms(2), gate: ms(*gate), ack: ms(3), total: ms(6) };
        Report::new(&[(routes, gates.iter().map(times).collect())])
    }

    #[test]
    fn takes_the_median_and_knows_the_target() {
        assert!(report(1_000, &[900, 10, 12]).is_good());
        assert_eq!(report(1_000, &[900, 10, 12]).rows[0].gate, 12.0);
        assert!(!report(1_000, &[51]).is_good());
        assert!(!report(10, &[1]).is_good(), "the case of the target was not measured");
    }
}
