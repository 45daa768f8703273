//! The set-up of tests with several Envoys: a site that they all serve, and what `/status` shows of them.

use std::net::SocketAddr;

use postern_tests::{Client, Envoy, Site, Upstream, wait};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{KEY, users_with};

/// Several Envoys with the same resources: they share the gateway's port, and the kernel shares the requests out.
pub fn envoys(xds: SocketAddr, number: usize) -> Vec<Envoy> {
    let start = |index: usize| {
        let id = format!("id: edge-{}", index + 1);
        Envoy::start("whole.yaml", xds, &[("id: edge-1", &id)]).unwrap()
    };
    (0..number).map(start).collect()
}

pub fn rollout_state(status: &Value) -> &str {
    status["rollout"]["state"].as_str().unwrap_or_default()
}

/// The plan that each node runs.
pub fn versions(status: &Value) -> Vec<String> {
    let nodes = status["nodes"].as_array().unwrap();
    let running = |node: &Value| node["types"]["extensionConfig"]["running"].as_str().unwrap_or_default().to_owned();
    nodes.iter().map(running).collect()
}

/// Whether a rollout is over, and this number of nodes run something.
pub fn completed(number: usize) -> impl Fn(&Value) -> bool {
    move |status| {
        let running = versions(status).iter().filter(|version| !version.is_empty()).count();
        running == number && rollout_state(status) == "completed"
    }
}

pub struct Stage {
    pub site: Site,
    _upstream: Upstream,
    _directory: TempDir,
}

impl Stage {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
        Self { site, _upstream: upstream, _directory: directory }
    }

    pub fn change(&self, from: &str, to: &str) {
        self.site.replace("policies.yaml", from, to).unwrap();
    }

    /// Whether requests are eventually decided so. An Envoy acknowledges a filter before all of its workers have it.
    pub fn answers(&self, value: &str) -> bool {
        let decides = || {
            let answer = Client::new(self.site.listener()).send(&users_with(KEY))?;
            Ok(answer.header("x-content-type-options") == Some(value))
        };
        wait::until_true(value, decides).is_ok()
    }
}
