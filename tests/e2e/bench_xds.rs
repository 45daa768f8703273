//! `cargo xtask bench xds`, in small: that it measures, not what.

use std::{process::Command, time::Duration};

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
fn the_bench_of_xds_gives_every_metric_of_a_case() {
    let results = bench(&["--streams", "3", "--variant", "sotw", "--changes", "2"]);
    let metric = |result: &Value| (result["metric"].as_str().unwrap().to_owned(), result["value"].as_f64().unwrap());
    let metrics: Vec<_> = results.iter().map(metric).collect();
    let names: Vec<_> = metrics.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["kb_per_stream", "cpu_s_per_change", "first_sync_s", "p50_ms", "p99_ms", "all_ms"]);
    assert!(results.iter().all(|result| result["case"] == "sotw-3"), "{results:?}");
    let longest = Duration::from_secs(60).as_secs_f64();
    for (name, value) in metrics.iter().filter(|(name, _)| name != "kb_per_stream") {
        assert!(*value > 0.0 && *value < longest * 1e3, "{name}: {value}");
    }
}
