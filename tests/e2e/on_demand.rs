//! What an Envoy asks for when a request needs it: clusters on demand.

use postern_tests::{Client, ControlPlane, Request, Site, Upstream, site::free_port, wait};
use serde_json::json;

use crate::{
    raw::{ads, listener},
    world::{Variant, envoy_of},
};

/// A listener that sends a request to the cluster that it names, which the Envoy asks for if it has none of that name.
fn by_header(port: u16) -> String {
    let on_demand = json!({
        "name": "envoy.filters.http.on_demand",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.on_demand.v3.OnDemand",
            "odcds": { "source": ads(), "timeout": "10s" },
        },
    });
    let routes = json!({
        "name": "by-header",
        "virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster_header": "x-cluster" } }],
        }],
    });
    listener("by-header", port, ("route_config", routes), &[on_demand])
}

#[test]
fn case_41_an_envoy_that_asks_for_a_cluster_on_demand_keeps_all_others() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
    let port = free_port().unwrap();
    site.write("raw.yaml", &by_header(port)).unwrap();
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    let envoy = envoy_of(Variant::Incremental, control_plane.xds());
    let (mut gateway, mut raw) = (Client::new(site.listener()), Client::new(([127, 0, 0, 1], port).into()));
    wait::until_true("the gateway to serve", || Ok(gateway.get("/welcome")?.status == 200)).unwrap();
    let to = |cluster: &str| Request::get("/any").header("x-cluster", cluster);
    wait::until_true("the other listener", || Ok(raw.send(&to("backend"))?.status == 200)).unwrap();

    // There is no such cluster: the request waits until the Envoy is told so.
    assert_eq!(raw.send(&to("nobody")).unwrap().status, 503);
    for _ in 0..20 {
        assert_eq!(gateway.get("/welcome").unwrap().status, 200, "{:?}", envoy.log().last());
        assert_eq!(raw.send(&to("backend")).unwrap().status, 200);
    }
    // And changes of all others still come.
    site.replace("gateway.yaml", "backend", "moved").unwrap();
    wait::until_true("the change", || {
        let clusters = Client::new(envoy.admin()).get("/clusters")?.body;
        let has = |name: &str| clusters.lines().any(|line| line.starts_with(&format!("{name}::")));
        Ok(has("moved") && !has("backend"))
    })
    .unwrap();
    assert_eq!(gateway.get("/welcome").unwrap().status, 200);
}
