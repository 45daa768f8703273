//! Runs a small `cargo xtask bench xds`: checks that it measures, not the figures.

use std::process::Command;

use serde_json::Value;

/// Runs the bench and returns its results.
fn bench(arguments: &[&str]) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("results.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_postern-bench-xds"));
    let output = command.args(arguments).arg("--json").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn the_bench_of_xds_gives_every_metric_of_both_variants() {
    let results = bench(&["--streams", "3", "--changes", "2"]);
    let text = |result: &Value, field: &str| result[field].as_str().unwrap().to_owned();
    let names: Vec<_> = results.iter().map(|result| (text(result, "case"), text(result, "metric"))).collect();
    let metrics = ["kb_per_stream", "cpu_s_per_change", "first_sync_s", "p50_ms", "p99_ms", "all_ms"];
    let both = ["sotw-3", "delta-3"].into_iter();
    let expect: Vec<_> = both.flat_map(|case| metrics.map(|metric| (case.to_owned(), metric.to_owned()))).collect();
    assert_eq!(names, expect);
    for result in results.iter().filter(|result| result["metric"] != "kb_per_stream") {
        assert!(result["value"].as_f64().unwrap() > 0.0, "{result}");
    }
}
