//! The figures of a run: the table, the target, and the results as JSON. Measures nothing.

use std::{
    fmt::{self, Display, Formatter},
    path::Path,
};

use anyhow::Result;

use super::{
    super::figure::{median, write_json},
    measure::Times,
};

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
            read: median(times.iter().map(|times| times.read)),
            compile: median(times.iter().map(|times| times.compile)),
            gate: median(times.iter().map(|times| times.gate)),
            ack: median(times.iter().map(|times| times.ack)),
            total: median(times.iter().map(|times| times.total)),
        };
        Self { rows: cases.iter().map(row).collect() }
    }

    pub(super) fn is_good(&self) -> bool {
        self.rows.iter().any(Row::meets_the_target)
    }

    pub(super) fn write_json(&self, path: &Path) -> Result<()> {
        let figures = |row: &Row| {
            [
                ("gate_ms", row.gate),
                ("apply_to_ack_ms", row.total),
                ("read_ms", row.read),
                ("compile_ms", row.compile),
                ("publish_to_ack_ms", row.ack),
            ]
            .map(|(metric, value)| (format!("routes-{}", row.routes), metric, value, "ms"))
        };
        write_json(path, self.rows.iter().flat_map(figures))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
