//! What most tests need: an upstream, the quickstart's resources, a control plane that serves them, and an Envoy.

use std::{net::SocketAddr, path::Path};

use anyhow::Result;
use postern_tests::{Client, ControlPlane, Envoy, Received, Request, Site, Upstream, wait};
use serde_json::Value;
use tempfile::TempDir;

pub const KEY: &str = "demo-key";

/// The variants of xDS that an Envoy can speak.
#[derive(Debug, Clone, Copy)]
pub enum Variant {
    StateOfTheWorld,
    Incremental,
}

/// An Envoy that gets everything from the control plane at an address, in a variant of xDS.
pub fn envoy_of(variant: Variant, xds: SocketAddr) -> Envoy {
    let replace = match variant {
        Variant::StateOfTheWorld => &[][..],
        Variant::Incremental => &[("api_type: GRPC", "api_type: DELTA_GRPC")],
    };
    Envoy::start("whole.yaml", xds, replace).unwrap()
}

pub struct World {
    pub envoy: Envoy,
    pub control_plane: ControlPlane,
    pub site: Site,
    pub upstream: Upstream,
    _directory: TempDir,
}

impl World {
    /// Everything started, and the first policies in force.
    pub fn start() -> Self {
        Self::start_with(Variant::StateOfTheWorld)
    }

    /// Like [`Self::start`], with an Envoy that speaks this variant of xDS.
    pub fn start_with(variant: Variant) -> Self {
        Self::start_by(variant, |policies, _| ControlPlane::start(policies))
    }

    /// Like [`Self::start`], with a control plane that keeps its state in a directory.
    pub fn start_with_state() -> Self {
        Self::start_by(Variant::StateOfTheWorld, |policies, state| ControlPlane::start_with_state(policies, state, &[]))
    }

    fn start_by(variant: Variant, start: impl FnOnce(&Path, &Path) -> Result<ControlPlane>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
        let control_plane = start(site.directory(), &directory.path().join("state")).unwrap();
        let envoy = envoy_of(variant, control_plane.xds());
        let world = Self { envoy, control_plane, site, upstream, _directory: directory };
        world.wait_until_serving();
        world
    }

    /// Waits until the gateway answers.
    pub fn wait_until_serving(&self) {
        let mut client = self.client();
        wait::until_true("the gateway to serve", || Ok(client.get("/welcome")?.status == 200)).unwrap();
    }

    pub fn client(&self) -> Client {
        Client::new(self.site.listener())
    }

    pub fn send(&self, request: &Request) -> Received {
        self.client().send(request).unwrap()
    }

    /// Asserts, by Envoy's own counters, that no Wasm VM failed or was restarted.
    pub fn assert_no_vm_failure(&self) {
        assert_no_vm_failure(&self.envoy);
    }
}

pub fn assert_no_vm_failure(envoy: &Envoy) {
    let stats = envoy.stats("wasm").unwrap();
    assert!(stats.iter().any(|(name, value)| name.ends_with(".active") && *value > 0), "no VM runs: {stats:?}");
    let failures = |(name, value): &&(String, u64)| {
        *value > 0 && ["fail", "reload", "crash", "runtime_error"].iter().any(|part| name.contains(part))
    };
    assert_eq!(stats.iter().filter(failures).collect::<Vec<_>>(), Vec::<&(String, u64)>::new());
    let trapped: Vec<_> = envoy.log().into_iter().filter(|line| line.contains("Function: proxy_on")).collect();
    assert_eq!(trapped, Vec::<String>::new());
}

pub fn users() -> Request {
    Request::get("/users/7")
}

pub fn users_with(key: impl AsRef<[u8]>) -> Request {
    users().header("x-api-key", key)
}

/// The one node that `/status` lists.
pub fn node(status: &Value) -> &Value {
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 1, "{status}");
    &nodes[0]
}

/// The version that a node runs of a type.
pub fn running<'a>(status: &'a Value, kind: &str) -> Option<&'a str> {
    status["nodes"].as_array()?.first()?["types"][kind]["running"].as_str()
}
