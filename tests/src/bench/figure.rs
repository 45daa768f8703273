//! What benchmarks share: the median of times, and the output of `--json`.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use serde_json::json;

use super::quantile::quantile;

/// One figure: its case, metric, value and unit.
pub(super) type Figure = (String, &'static str, f64, &'static str);

/// Writes an array of `{case, metric, value, unit}`, each value to four decimals.
pub(super) fn write_json(path: &Path, figures: impl IntoIterator<Item = Figure>) -> Result<()> {
    let entry = |(case, metric, value, unit): Figure| {
        let value = (value * 1e4).round() / 1e4;
        json!({ "case": case, "metric": metric, "value": value, "unit": unit })
    };
    let entries: Vec<_> = figures.into_iter().map(entry).collect();
    let text = serde_json::to_string_pretty(&entries)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// The median, in milliseconds.
pub(super) fn median(times: impl Iterator<Item = Duration>) -> f64 {
    quantile(&times.map(|time| time.as_secs_f64() * 1e3).collect::<Vec<_>>(), 0.5)
}
