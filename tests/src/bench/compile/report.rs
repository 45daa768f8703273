//! The figures of a run: the table, whether the time grows linearly, and the results as JSON. Measures nothing.

use std::{
    fmt::{self, Display, Formatter},
    path::Path,
};

use anyhow::Result;

use super::{
    super::figure::{median, write_json},
    GATEWAYS, NODES,
    measure::Times,
};

/// The most by which a policy's cost may grow from one case to the next, which has ten times as many, for the time to
/// count as linear.
const LINEAR: f64 = 1.5;

/// Medians.
pub(super) struct Report {
    rows: Vec<Row>,
}

struct Row {
    policies: usize,
    read: f64,
    full: f64,
    one_change: f64,
    recompiled: usize,
}

impl Report {
    pub(super) fn new(cases: &[(usize, Vec<Times>)]) -> Self {
        let row = |(policies, times): &(usize, Vec<Times>)| Row {
            policies: *policies,
            read: median(times.iter().map(|times| times.read)),
            full: median(times.iter().map(|times| times.full)),
            one_change: median(times.iter().map(|times| times.one_change)),
            recompiled: times.iter().map(|times| times.recompiled).max().unwrap_or_default(),
        };
        Self { rows: cases.iter().map(row).collect() }
    }

    /// Whether the time grows linearly, and a change compiles one group.
    pub(super) fn is_good(&self) -> bool {
        let alone = self.rows.iter().all(|row| row.recompiled == 1);
        let linear = match self.rows.as_slice() {
            [.., fewer, most] => most.per_policy() <= fewer.per_policy() * LINEAR,
            _ => false,
        };
        alone && linear
    }

    pub(super) fn write_json(&self, path: &Path) -> Result<()> {
        let figures = |row: &Row| {
            let figure = |metric, value, unit| (format!("policies-{}", row.policies), metric, value, unit);
            [
                figure("full_ms", row.full, "ms"),
                figure("one_change_ms", row.one_change, "ms"),
                figure("read_ms", row.read, "ms"),
                figure("recompiled_groups", u32::try_from(row.recompiled).map_or(f64::NAN, f64::from), "groups"),
            ]
        };
        write_json(path, self.rows.iter().flat_map(figures))
    }
}

impl Row {
    /// Microseconds for each policy.
    fn per_policy(&self) -> f64 {
        u32::try_from(self.policies).map_or(f64::NAN, |policies| self.full * 1000.0 / f64::from(policies))
    }
}

impl Display for Report {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:16}{:>10}{:>12}{:>14}{:>14}{:>12}",
            "", "read, ms", "full, ms", "µs a policy", "1 change, ms", "groups"
        )?;
        for row in &self.rows {
            let Row { policies, read, full, one_change, recompiled } = row;
            let (case, each, of) =
                (format!("policies-{policies}"), row.per_policy(), format!("{recompiled} of {GATEWAYS}"));
            writeln!(formatter, "{case:16}{read:>10.1}{full:>12.1}{each:>14.1}{one_change:>14.1}{of:>12}")?;
        }
        let answer = if self.is_good() { "reached" } else { "NOT REACHED" };
        writeln!(
            formatter,
            "\n{NODES} nodes in {GATEWAYS} groups; every plan through the gate\n\
             target: a policy costs at most {LINEAR} times as much among ten times as many, and a change compiles one group: {answer}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(full: [u64; 2], recompiled: usize) -> Report {
        let ms = Duration::from_millis;
        let times = |full| vec![Times { read: ms(1), full: ms(full), one_change: ms(2), recompiled }];
        Report::new(&[(100, times(full[0])), (1_000, times(full[1]))])
    }

    #[test]
    fn knows_what_is_linear_and_what_a_change_may_touch() {
        assert!(report([10, 100], 1).is_good());
        assert!(report([10, 149], 1).is_good());
        assert!(!report([10, 200], 1).is_good());
        assert!(!report([10, 100], 2).is_good());
    }
}
