//! A plan that gets past every check. Envoy refuses it, reports that, and goes on with the previous one.

use std::{fs, net::SocketAddr, sync::Arc};

use postern::{
    control_plane::ControlPlane,
    serve::{Sockets, serve},
};
use postern_base::node::NodeIdentity;
use postern_compile::{
    attach::{Scope, attach},
    gate::{AdmittedPlan, Gate},
    pipeline,
    snapshot::{FilterCode, Snapshot},
    wasm::{Filter, Limits},
};
use postern_model::directory;
use postern_tests::{
    Client, Envoy, Site, Upstream,
    control_plane::{from_environment, wait_for_status},
    wait,
};
use tokio::runtime::Runtime;

use crate::world::{KEY, assert_no_vm_failure, node, users, users_with};

/// The control plane in this process, so that a test can bypass the gate.
pub struct InProcess {
    pub plane: Arc<ControlPlane>,
    pub code: FilterCode,
    pub xds: SocketAddr,
    pub http: SocketAddr,
    _runtime: Runtime,
}

impl InProcess {
    pub fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let code = FilterCode::new(fs::read(from_environment("POSTERN_FILTER").unwrap()).unwrap(), None);
        let gate = Gate::of_filter(Filter::compile(code.bytes()).unwrap(), Limits::default());
        let code = code.gated(gate);
        let plane = Arc::new(ControlPlane::new(code.clone()));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = runtime.block_on(Sockets::bind(any, any)).unwrap();
        let (xds, http) = (sockets.xds_address().unwrap(), sockets.http_address().unwrap());
        runtime.spawn(serve(Arc::clone(&plane), sockets));
        Self { plane, code, xds, http, _runtime: runtime }
    }

    pub fn publish(&self, site: &Site) {
        self.plane
            .commands()
            .publish(pipeline::compile(&directory::read(site.directory()).unwrap(), &self.code).unwrap())
            .wait()
            .unwrap();
    }

    /// Publishes a site's resources with a plan that no gate has seen.
    pub fn force(&self, site: &Site, plan: &[u8], revision: &str) {
        let bundle = postern_model::read(&directory::read(site.directory()).unwrap()).unwrap();
        let plan = AdmittedPlan::forced_past_the_gate(plan);
        let revision = postern_base::digest::Digest::of(revision.as_bytes());
        let scope = Scope::of(&bundle, &NodeIdentity::default());
        self.plane
            .commands()
            .publish(Snapshot::build(&scope, &attach(&scope), plan, &self.code, revision))
            .wait()
            .unwrap();
    }
}

#[test]
fn reports_envoys_refusal_of_a_corrupt_plan_and_keeps_the_old_one_serving() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    let control_plane = InProcess::start();
    control_plane.publish(&site);
    let envoy = Envoy::whole(control_plane.xds).unwrap();
    let mut client = Client::new(site.listener());
    wait::until_true("the gateway to serve", || Ok(client.get("/welcome")?.status == 200)).unwrap();
    let running = |status: &serde_json::Value| node(status)["types"]["extensionConfig"]["running"].clone();
    let good = wait_for_status(control_plane.http, "the plan's ACK", |status| running(status).is_string()).unwrap();

    // A format that no engine knows, and bytes that are no plan at all.
    for (plan, reason) in [
        (&b"\x08\x63"[..], "plan format 99 is not supported, this engine loads formats 3 to 4"),
        (&b"\xff\xff\xff\xff"[..], "the plan cannot be decoded"),
    ] {
        control_plane.force(&site, plan, reason);
        let refused = |status: &serde_json::Value| {
            let refused = &node(status)["types"]["extensionConfig"]["refused"];
            refused["reason"].as_str().is_some_and(|text| text.contains(reason))
        };
        let status = wait_for_status(control_plane.http, "the NACK", refused).unwrap();
        let message = node(&status)["types"]["extensionConfig"]["refused"]["message"].as_str().unwrap();
        assert!(message.contains("Unable to create Wasm plugin postern"), "{message}");
        wait::until_true("the filter's own words in Envoy's log", || {
            Ok(envoy.log().iter().any(|line| line.contains("plan refused: ") && line.contains(reason)))
        })
        .unwrap();
        assert_eq!(client.send(&users()).unwrap().status, 401);
        assert_eq!(client.send(&users_with(KEY)).unwrap().status, 200);
        let status =
            wait_for_status(control_plane.http, "the last good version", |status| running(status) == running(&good));
        assert!(status.is_ok(), "{status:?}");
    }
    let discovery = envoy.stats("extension_config_discovery").unwrap();
    let rejected = discovery.iter().find(|(name, _)| name.ends_with(".update_rejected")).map(|(_, count)| *count);
    assert_eq!(rejected, Some(2), "Envoy's own count: {discovery:?}");

    // The next good revision is taken, and the refusal is history.
    site.replace("policies.yaml", "nosniff", "after-the-nack").unwrap();
    control_plane.publish(&site);
    wait::until_true("the next good plan", || {
        Ok(client.send(&users_with(KEY))?.header("x-content-type-options") == Some("after-the-nack"))
    })
    .unwrap();
    wait_for_status(control_plane.http, "a clear status", |status| {
        node(status)["types"]["extensionConfig"]["refused"].is_null()
    })
    .unwrap();
    assert_no_vm_failure(&envoy);
}
