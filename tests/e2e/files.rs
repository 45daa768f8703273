//! A real Envoy that reads files, which Postern writes.

use std::ffi::OsStr;

use postern_tests::{Client, ControlPlane, Envoy, Request, Site, Upstream, site::repository, wait};

use crate::world::{KEY, assert_no_vm_failure, users, users_with};

#[test]
fn an_envoy_gets_everything_from_files_and_follows_changes() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
    let delivered = directory.path().join("delivered");
    let bootstrap = repository().join("envoy-config/files.yaml");
    let options =
        [OsStr::new("--deliver-to"), delivered.as_os_str(), OsStr::new("--deliver-node"), bootstrap.as_os_str()];
    let _control_plane = ControlPlane::start_with(site.directory(), &options).unwrap();
    wait::until_true("the files", || Ok(delivered.join("lds.json").exists())).unwrap();
    let envoy = Envoy::start_alone("files.yaml", &[("/var/lib/postern/edge", delivered.to_str().unwrap())]).unwrap();
    let mut client = Client::new(site.listener());
    wait::until_true("the gateway to serve", || Ok(client.get("/welcome")?.status == 200)).unwrap();
    assert_eq!(client.send(&users()).unwrap().status, 401);
    assert_eq!(client.send(&users_with(KEY)).unwrap().echoed("x-guarded-by"), ["postern"]);

    // A policy (ECDS), a route (RDS) and an endpoint (EDS).
    site.replace("policies.yaml", "x-guarded-by: postern", "x-guarded-by: files").unwrap();
    wait::until_true("the changed policy", || Ok(client.send(&users_with(KEY))?.echoed("x-guarded-by") == ["files"]))
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

    for stat in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
        assert_eq!(envoy.stat(stat).unwrap(), Some(0), "{stat}");
    }
    // Nothing came by a stream.
    assert_eq!(envoy.stats("control_plane.connected_state").unwrap(), []);
    assert_no_vm_failure(&envoy);
}

#[test]
fn refuses_to_deliver_for_a_node_that_it_cannot_read() {
    let directory = tempfile::tempdir().unwrap();
    let (node, delivered) = (directory.path().join("node.yaml"), directory.path().join("delivered"));
    let check = |options: &[&OsStr], code: i32, expect: &str| {
        let mut command = ControlPlane::command().unwrap();
        let output = command.args(["serve", "--config", "/nowhere"]).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expect), "`{expect}` is not in:\n{said}");
    };
    let [to, of] = ["--deliver-to", "--deliver-node"].map(OsStr::new);
    let options = [to, delivered.as_os_str(), of, node.as_os_str()];
    check(&options[2..], 2, "--deliver-to <DIR>");
    check(&options, 1, "node.yaml: No such file");
    std::fs::write(&node, "node: { id: a, clustr: b }").unwrap();
    check(
        &options,
        1,
        "node.yaml: node: clustr: unknown field `clustr` of `envoy.config.core.v3.Node`: did you mean `cluster`?",
    );
    std::fs::write(&node, "nodes: {}").unwrap();
    check(&options, 1, "node.yaml: node: expected a mapping, found nothing");
    std::fs::write(&node, "node: { id: a }").unwrap();
    check(&options, 1, "/nowhere");
}
