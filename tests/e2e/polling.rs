//! A real Envoy that polls, with every resource by REST-JSON.

use postern_tests::{Client, ControlPlane, Envoy, Request, Site, Upstream, wait};

use crate::world::{KEY, assert_no_vm_failure, users, users_with};

#[test]
fn a_polling_envoy_gets_everything_and_follows_changes() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    let port = format!("port_value: {}", control_plane.http().port());
    let envoy = Envoy::start_alone(
        "polling.yaml",
        &[("port_value: 18001", &port), ("refresh_delay: 1s", "refresh_delay: 0.1s")],
    )
    .unwrap();
    let mut client = Client::new(site.listener());
    wait::until_true("the gateway to serve", || Ok(client.get("/welcome")?.status == 200)).unwrap();
    assert_eq!(client.send(&users()).unwrap().status, 401);
    assert_eq!(client.send(&users_with(KEY)).unwrap().echoed("x-guarded-by"), ["postern"]);

    // A policy (ECDS), a route (RDS) and an endpoint (EDS).
    site.replace("policies.yaml", "x-guarded-by: postern", "x-guarded-by: polling").unwrap();
    wait::until_true("the changed policy", || Ok(client.send(&users_with(KEY))?.echoed("x-guarded-by") == ["polling"]))
        .unwrap();
    site.replace("gateway.yaml", "/welcome", "/hello").unwrap();
    wait::until_true("the changed route", || Ok(client.send(&Request::get("/hello"))?.status == 200)).unwrap();
    let other = Upstream::start(0).unwrap();
    let port = |upstream: &Upstream| format!("port: {}\n", upstream.address().port());
    site.replace("gateway.yaml", &port(&upstream), &port(&other)).unwrap();
    wait::until_true("the changed endpoint", || {
        let name = format!("backend::127.0.0.1:{}::", other.address().port());
        Ok(Client::new(envoy.admin()).get("/clusters")?.body.contains(&name))
    })
    .unwrap();

    // Nothing was refused.
    for stat in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
        assert_eq!(envoy.stat(stat).unwrap(), Some(0), "{stat}");
    }
    // Nothing came by a stream.
    assert_eq!(envoy.stats("control_plane.connected_state").unwrap(), []);
    assert_no_vm_failure(&envoy);
}
