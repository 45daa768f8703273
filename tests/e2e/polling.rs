//! A real Envoy that polls, with every resource by REST-JSON.

use postern_tests::{ControlPlane, Envoy, Site, Upstream};

use crate::streamless;

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
    streamless::check_that_it_follows_without_a_stream(&envoy, &site, &upstream);
}
