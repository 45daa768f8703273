//! `/metrics`, as Prometheus itself reads it, and as its `promtool` checks it.

use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    process::{Command, Stdio},
};

use postern_tests::{Client, ControlPlane, Site, Upstream, control_plane::from_environment, process::Process, wait};
use serde_json::Value;
use tempfile::TempDir;

fn control_plane(directory: &TempDir) -> ControlPlane {
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
    ControlPlane::start(site.directory()).unwrap()
}

/// A Prometheus that reads the metrics of one control plane.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    fn start(directory: &TempDir, target: SocketAddr) -> Self {
        let configuration = directory.path().join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s }}\n\
             scrape_configs: [{{ job_name: postern, static_configs: [{{ targets: [\"{target}\"] }}] }}]\n"
        );
        fs::write(&configuration, text).unwrap();
        let mut command = Command::new(from_environment("POSTERN_PROMETHEUS").unwrap().join("prometheus"));
        command.arg("--config.file").arg(configuration).arg("--storage.tsdb.path").arg(directory.path().join("data"));
        command.arg("--web.listen-address=127.0.0.1:0");
        let mut process = Process::start("prometheus", &mut command).unwrap();
        let listening = |line: &str| {
            let (_, address) = line.split_once("msg=\"Listening on\" address=")?;
            address.split_whitespace().next()?.parse().ok()
        };
        let address = process.wait_for_line("its address", listening).unwrap();
        let is_ready = || Ok(Client::new(address).get("/-/ready")?.status == 200);
        wait::until_true("Prometheus to be ready", is_ready).unwrap();
        Self { address, _process: process }
    }

    fn get(&self, path: &str) -> Value {
        let answer = Client::new(self.address).get(path).unwrap();
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.body))
    }

    /// The values of a query, each with its labels; empty as long as there is nothing.
    fn query(&self, query: &str) -> Vec<Value> {
        self.get(&format!("/api/v1/query?query={query}"))["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// The type that Prometheus took a family to have.
    fn kind(&self, family: &str) -> Value {
        self.get("/api/v1/metadata")["data"][family][0]["type"].clone()
    }
}

#[test]
fn prometheus_reads_the_metrics_under_their_documented_names() {
    let directory = tempfile::tempdir().unwrap();
    let control_plane = control_plane(&directory);
    let prometheus = Prometheus::start(&directory, control_plane.http());
    let scraped = || Ok(prometheus.query("postern_revision").first().cloned());
    let (revision, _) = wait::until("the first scrape", scraped).unwrap();
    assert_eq!(revision["value"][1], "1", "{revision}");
    let target = &prometheus.get("/api/v1/targets")["data"]["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&Value::from("up"), &Value::from("")));
    for (query, series) in [
        ("postern_build_info{version!=\"\"}", 1),
        ("postern_applies_total{result=\"created\"}", 1),
        ("postern_rollouts_total", 4),
        ("postern_rollout_state", 5),
        ("postern_events_total", 1),
        ("postern_gate_seconds_bucket", 13),
        ("postern_gate_seconds_count", 1),
        ("postern_apply_seconds_bucket{le=\"+Inf\"}", 1),
        ("postern_applies", 0),
    ] {
        let found = prometheus.query(&query.replace('+', "%2B"));
        assert_eq!(found.len(), series, "{query}: {found:?}");
    }
    // A counter's family has no `_total` in OpenMetrics, which Prometheus has asked for.
    let kinds = ["postern_applies", "postern_nodes", "postern_apply_seconds"].map(|family| prometheus.kind(family));
    assert_eq!(kinds, ["counter", "gauge", "histogram"]);
}

#[test]
fn promtool_finds_no_fault_in_the_text() {
    let directory = tempfile::tempdir().unwrap();
    let control_plane = control_plane(&directory);
    let text = Client::new(control_plane.http()).get("/metrics").unwrap().body;
    let mut promtool = Command::new(from_environment("POSTERN_PROMETHEUS").unwrap().join("promtool"));
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stderr));
}
