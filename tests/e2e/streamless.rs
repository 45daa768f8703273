//! Checks that all Envoys must pass that get their resources by other ways than an aggregated stream.

use postern_tests::{Client, Envoy, Request, Site, Upstream, wait};

use crate::world::{KEY, assert_no_vm_failure, users, users_with};

/// Like [`check_that_it_follows`], and also checks that nothing came by a stream.
pub fn check_that_it_follows_without_a_stream(envoy: &Envoy, site: &Site, upstream: &Upstream) {
    check_that_it_follows(envoy, site, upstream);
    assert_eq!(envoy.stats("control_plane.connected_state").unwrap(), [], "something came by a stream");
}

/// Waits until an Envoy serves the quickstart in front of this upstream, and follows changes of every kind.
pub fn check_that_it_follows(envoy: &Envoy, site: &Site, upstream: &Upstream) {
    let mut client = Client::new(site.listener());
    wait::until_true("the gateway to serve", || Ok(client.get("/welcome")?.status == 200)).unwrap();
    assert_eq!(client.send(&users()).unwrap().status, 401);
    assert_eq!(client.send(&users_with(KEY)).unwrap().echoed("x-guarded-by"), ["postern"]);

    // A policy (ECDS), a route (RDS) and an endpoint (EDS).
    site.replace("policies.yaml", "x-guarded-by: postern", "x-guarded-by: changed").unwrap();
    wait::until_true("the changed policy", || Ok(client.send(&users_with(KEY))?.echoed("x-guarded-by") == ["changed"]))
        .unwrap();
    site.replace("gateway.yaml", "/welcome", "/hello").unwrap();
    wait::until_true("the changed route", || Ok(client.send(&Request::get("/hello"))?.status == 200)).unwrap();
    let other = Upstream::start(0).unwrap();
    let port = |upstream: &Upstream| format!("port: {}\n", upstream.address().port());
    site.replace("gateway.yaml", &port(upstream), &port(&other)).unwrap();
    wait::until_true("the changed endpoint", || {
        let name = format!("backend::127.0.0.1:{}::", other.address().port());
        Ok(Client::new(envoy.admin()).get("/clusters")?.body.contains(&name))
    })
    .unwrap();

    for stat in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
        assert_eq!(envoy.stat(stat).unwrap(), Some(0), "{stat}");
    }
    assert_no_vm_failure(envoy);
}
