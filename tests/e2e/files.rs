//! A real Envoy that reads files, which Postern writes.

use std::ffi::OsStr;

use postern_tests::{ControlPlane, Envoy, Site, Upstream, site::repository, wait};

use crate::streamless;

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
    streamless::check_that_it_follows_without_a_stream(&envoy, &site, &upstream);
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
