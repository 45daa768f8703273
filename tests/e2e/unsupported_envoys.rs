//! Envoys that are not supported, beside one that is: they are served nothing, are shown with the reason, and keep no
//! change from spreading.

use postern_tests::{Client, ControlPlane, Envoy, Release, Request, Site, Upstream, site::free_port, wait};
use serde_json::Value;

use crate::{
    fleet::{Stage, envoys, rollout_state},
    world::{KEY, users_with},
};

/// Each release that is not supported, and the reason that is shown.
const UNSUPPORTED: [(Release, &str, &str); 2] = [
    (Release::TooOld, "too-old", "Envoy 1.36.4 is older than 1.37, the oldest supported version"),
    (
        Release::WithoutWasm,
        "without-wasm",
        "Envoy 1.38.3 is built without the Wasm runtime V8 (extension `envoy.wasm.runtime.v8`), which the filter needs",
    ),
];

fn node<'a>(nodes: &'a Value, id: &str) -> Option<&'a Value> {
    nodes.as_array()?.iter().find(|node| node["id"] == id)
}

fn nodes(control_plane: &ControlPlane) -> Value {
    let answer = Client::new(control_plane.http()).get("/api/v1/nodes").unwrap();
    serde_json::from_str(&answer.body).unwrap()
}

/// The resources in an Envoy's `config_dump` that came from a control plane.
fn dynamic_resources(envoy: &Envoy) -> usize {
    let answer = Client::new(envoy.admin()).get("/config_dump?include_eds").unwrap();
    let dump: Value = serde_json::from_str(&answer.body).unwrap();
    let count = |name: &str| {
        let sections = dump["configs"].as_array().unwrap().iter();
        sections.filter_map(|section| section[name].as_array()).map(Vec::len).sum::<usize>()
    };
    count("dynamic_listeners") + count("dynamic_active_clusters") + count("dynamic_route_configs")
}

/// How many updates an Envoy refused.
fn refused(envoy: &Envoy) -> u64 {
    let stats = envoy.stats("update_rejected").unwrap();
    stats.iter().map(|(_, count)| count).sum()
}

#[test]
fn unsupported_envoys_are_served_nothing_and_veto_nothing() {
    let stage = Stage::new();
    let rollout = "apiVersion: postern/v1\nkind: Settings\nmetadata: { name: settings }\nspec:\n  rollout: { steps: [{ share: \
                   50 }] }\n";
    stage.site.write("settings.yaml", rollout).unwrap();
    let control_plane = ControlPlane::start(stage.site.directory()).unwrap();
    let start = |(release, id, _): &(Release, &str, &str)| {
        let id = format!("id: {id}");
        // It waits in vain for its listeners and clusters.
        let replace = [
            ("id: edge-1", id.as_str()),
            ("cds_config: { ", "cds_config: { initial_fetch_timeout: 1s, "),
            ("lds_config: { ", "lds_config: { initial_fetch_timeout: 1s, "),
        ];
        Envoy::start_release(*release, "whole.yaml", control_plane.xds(), &replace).unwrap()
    };
    // They come first, so that they are all that there is to choose from.
    let unsupported: Vec<_> = UNSUPPORTED.iter().map(start).collect();
    wait::until_true("both to be known", || {
        let nodes = nodes(&control_plane);
        Ok(UNSUPPORTED.iter().all(|(_, id, _)| node(&nodes, id).is_some()))
    })
    .unwrap();
    let _supported = envoys(control_plane.xds(), 2);
    let completed = |revision: u64| {
        move |status: &Value| status["rollout"]["candidate"] == revision && rollout_state(status) == "completed"
    };
    control_plane.wait_for_status("the first revision", completed(1)).unwrap();
    for (round, (from, to)) in [("nosniff", "one"), ("one", "two")].into_iter().enumerate() {
        stage.change(from, to);
        control_plane.wait_for_status("the next revision", completed(round as u64 + 2)).unwrap();
        assert!(stage.answers(to), "{to}");
    }

    let seen = nodes(&control_plane);
    for (envoy, (_, id, reason)) in unsupported.iter().zip(&UNSUPPORTED) {
        let node = node(&seen, id).unwrap();
        assert_eq!((&node["state"], &node["reason"]), (&"unsupported".into(), &(*reason).into()), "{node}");
        assert!(node["target"].is_null() && node["revision"].is_null(), "{node}");
        assert_eq!((dynamic_resources(envoy), refused(envoy)), (0, 0), "{id}");
    }
    for command in ["status", "nodes"] {
        let mut shown = ControlPlane::command().unwrap();
        let shown = shown.args([command, "--server", &format!("http://{}", control_plane.http())]).output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        for (_, _, reason) in UNSUPPORTED {
            assert!(text.contains(&format!("unsupported: {reason}")), "{command}: {text}");
        }
    }
    let metrics = Client::new(control_plane.http()).get("/metrics").unwrap().body;
    assert!(metrics.contains("postern_nodes{state=\"unsupported\"} 2\n"), "{metrics}");
    assert!(metrics.contains("postern_nodes{state=\"ready\"} 2\n"), "{metrics}");
}

/// An Envoy with listeners of its own has none of our filters then, and refuses every request where one belongs.
#[test]
fn an_unsupported_envoy_with_listeners_of_its_own_lets_no_request_pass() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    std::fs::remove_file(site.path("gateway.yaml")).unwrap();
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    for (release, id, _) in UNSUPPORTED {
        let (port, id) = (free_port().unwrap(), format!("id: {id}"));
        let (backend, listener) = (format!("port_value: {}", upstream.address().port()), format!("port_value: {port}"));
        let replace = [
            ("id: overlay-1", id.as_str()),
            ("port_value: 10001", backend.as_str()),
            ("port_value: 10000", listener.as_str()),
            ("config_source: { ads", "config_source: { initial_fetch_timeout: 1s, ads"),
        ];
        let envoy = Envoy::start_release(release, "overlay.yaml", control_plane.xds(), &replace).unwrap();
        let mut client = Client::new(([127, 0, 0, 1], port).into());
        wait::until_true("the listener", || Ok(client.get("/welcome").is_ok())).unwrap();
        for request in [users_with(KEY), users_with("guess"), Request::get("/welcome")] {
            assert_eq!(client.send(&request).unwrap().status, 500, "{release:?}: {request:?}");
        }
        assert_eq!(refused(&envoy), 0, "{release:?}");
    }
}
