//! The reference of the metrics, `docs/metrics.md`: what `/metrics` of a control plane without any node says of itself.

use std::{fmt::Write as _, sync::Arc};

use postern_compile::snapshot::FilterCode;

use super::exposition;
use crate::control_plane::ControlPlane;

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask docs` from what `/metrics` says. Do not edit. -->

# Metrics

`GET /metrics` of `postern serve` answers in Prometheus' text format or, for an `Accept` that names it, as OpenMetrics. The number of
label values is bounded, whatever users and nodes do. Counters start at 0 with the process.

| metric | type | meaning |
|---|---|---|
";

/// The whole page, as Markdown.
pub fn metrics_page() -> String {
    let plane = ControlPlane::new(FilterCode::new(Vec::new(), None));
    let text = exposition::text(Arc::new(plane)).unwrap_or_default();
    let mut page = INTRODUCTION.to_owned();
    for (name, kind, about) in described(&text) {
        let _ = writeln!(page, "| `{name}` | {kind} | {} |", about.replace('|', "\\|"));
    }
    page
}

/// The name, type and description of each metric, in the order of the text.
fn described(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let about = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    about.filter_map(move |(name, about)| {
        let (_, kind) = kinds.clone().find(|(other, _)| *other == name)?;
        Some((name, kind, about))
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_page_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(written == metrics_page(), "docs/metrics.md is not current: run `cargo xtask docs`");
    }

    #[test]
    fn every_metric_is_described() {
        let page = metrics_page();
        for name in ["postern_nodes", "postern_key_set_age_seconds", "postern_uptime_seconds"] {
            assert!(page.contains(&format!("| `{name}` | gauge | ")), "{name}: {page}");
        }
    }
}
