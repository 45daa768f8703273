//! The figures of a run: the table, the target, and the results as JSON. Measures nothing.

use std::{
    fmt::{self, Display, Formatter},
    path::Path,
};

use anyhow::Result;

use super::{
    super::figure::{median, write_json},
    change::Change,
    measure::Times,
};

/// What the gate may take for a plan of [`TARGET_ROUTES`]: less than a person notices.
const TARGET_MS: f64 = 50.0;
const TARGET_ROUTES: usize = 1_000;

/// What a change of one route may take with so many routes, from the proposal to the ACK, and what of that may be ours.
const TARGETS: [(usize, f64, f64); 2] = [(1_000, 50.0, 20.0), (10_000, 250.0, 120.0)];

/// Medians, in milliseconds.
pub(super) struct Report {
    rows: Vec<Row>,
    changes: Vec<ChangeRow>,
}

struct Row {
    routes: usize,
    read: f64,
    compile: f64,
    gate: f64,
    ack: f64,
    total: f64,
}

/// One route changed.
struct ChangeRow {
    routes: usize,
    apply: f64,
    total: f64,
    stub: f64,
}

impl Report {
    pub(super) fn new(cases: &[(usize, Vec<Times>)], changes: &[(usize, Vec<Change>)]) -> Self {
        let row = |(routes, times): &(usize, Vec<Times>)| Row {
            routes: *routes,
            read: median(times.iter().map(|times| times.read)),
            compile: median(times.iter().map(|times| times.compile)),
            gate: median(times.iter().map(|times| times.gate)),
            ack: median(times.iter().map(|times| times.ack)),
            total: median(times.iter().map(|times| times.total)),
        };
        let change = |(routes, times): &(usize, Vec<Change>)| ChangeRow {
            routes: *routes,
            apply: median(times.iter().map(|times| times.apply)),
            total: median(times.iter().map(|times| times.total)),
            stub: median(times.iter().map(|times| times.stub)),
        };
        Self { rows: cases.iter().map(row).collect(), changes: changes.iter().map(change).collect() }
    }

    pub(super) fn is_good(&self) -> bool {
        let gate = self.rows.is_empty() || self.rows.iter().any(Row::meets_the_target);
        gate && TARGETS
            .iter()
            .all(|(routes, ..)| self.changes.iter().any(|row| row.routes == *routes && row.meets_its_target()))
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
        let changes = |row: &ChangeRow| {
            [("apply_ms", row.apply), ("apply_to_ack_ms", row.total), ("stub_ms", row.stub), ("own_ms", row.own())]
                .map(|(metric, value)| (format!("one-of-{}", row.routes), metric, value, "ms"))
        };
        write_json(path, self.rows.iter().flat_map(figures).chain(self.changes.iter().flat_map(changes)))
    }
}

impl Row {
    fn meets_the_target(&self) -> bool {
        self.routes == TARGET_ROUTES && self.gate <= TARGET_MS
    }
}

impl ChangeRow {
    /// Our share: the total without the Envoy's part.
    fn own(&self) -> f64 {
        self.total - self.stub
    }

    fn meets_its_target(&self) -> bool {
        let target = TARGETS.iter().find(|(routes, ..)| *routes == self.routes);
        target.is_none_or(|(_, total, own)| self.total <= *total && self.own() <= *own)
    }
}

impl Display for Report {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if !self.rows.is_empty() {
            let head = ["read", "compile", "(gate alone)", "publish to ACK", "apply to ACK"];
            let [read, compile, gate, ack, total] = head;
            writeln!(formatter, "{:14}{read:>10}{compile:>10}{gate:>14}{ack:>16}{total:>14}", "ms")?;
        }
        for Row { routes, read, compile, gate, ack, total } in &self.rows {
            let case = format!("routes-{routes}");
            writeln!(formatter, "{case:14}{read:>10.1}{compile:>10.1}{gate:>14.1}{ack:>16.1}{total:>14.1}")?;
        }
        let [apply, total, stub, own] = ["apply", "apply to ACK", "stub to ACK", "own share"];
        writeln!(formatter, "\n{:14}{apply:>10}{total:>14}{stub:>14}{own:>12}", "ms, one route")?;
        for row in &self.changes {
            let ChangeRow { routes, apply, total, stub } = row;
            let (case, own) = (format!("one-of-{routes}"), row.own());
            writeln!(formatter, "{case:14}{apply:>10.1}{total:>14.1}{stub:>14.1}{own:>12.1}")?;
        }
        let answer = if self.is_good() { "reached" } else { "NOT REACHED" };
        writeln!(formatter, "\ntargets: the gate takes at most {TARGET_MS} ms for {TARGET_ROUTES} routes;")?;
        for (routes, total, own) in TARGETS {
            writeln!(formatter, "one of {routes} routes: at most {total} ms, {own} ms of them ours;")?;
        }
        writeln!(formatter, "{answer}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn report(routes: usize, gates: &[u64], changes: &[(usize, u64, u64)]) -> Report {
        let times = |gate: &u64| Times { read: MS(1), compile: MS(2), gate: MS(*gate), ack: MS(3), total: MS(6) };
        let change = |(routes, total, stub): &(usize, u64, u64)| {
            (*routes, vec![Change { apply: MS(1), total: MS(*total), stub: MS(*stub) }])
        };
        let changes: Vec<_> = changes.iter().map(change).collect();
        Report::new(&[(routes, gates.iter().map(times).collect())], &changes)
    }

    const QUICK: [(usize, u64, u64); 2] = [(1_000, 40, 25), (10_000, 200, 100)];

    #[test]
    fn takes_the_median_and_knows_the_target() {
        assert!(report(1_000, &[900, 10, 12], &QUICK).is_good());
        assert_eq!(report(1_000, &[900, 10, 12], &QUICK).rows[0].gate, 12.0);
        assert!(!report(1_000, &[51], &QUICK).is_good());
        assert!(!report(10, &[1], &QUICK).is_good(), "the case of the target was not measured");
    }

    #[test]
    fn knows_the_targets_of_one_changed_route() {
        assert!(!report(1_000, &[1], &QUICK[..1]).is_good(), "a case was not measured");
        assert!(!report(1_000, &[1], &[QUICK[1], (1_000, 51, 40)]).is_good(), "too long");
        assert!(!report(1_000, &[1], &[QUICK[1], (1_000, 45, 24)]).is_good(), "too much of it ours");
    }
}
