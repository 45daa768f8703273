//! Nodes that refused something: they return to what they can run, a rollout goes back, and a refusal on one stream
//! does not count for another.

use postern_compile::{pipeline::compile, snapshot::ResourceType};
use postern_model::directory;
use postern_release::rollout::Strategy;
use postern_tests::{Client, Envoy, Site, Upstream, control_plane::wait_for_status, site::free_port, wait};
use serde_json::{Value, json};

use crate::{
    fleet::rollout_state,
    raw::{address, ads, listener, raw},
    refusals, rollouts,
    world::{Variant, envoy_of, node},
};

/// A cluster that every Envoy refuses.
pub fn bad_cluster() -> String {
    let cluster = json!({ "name": "bad", "type": "ORIGINAL_DST", "lb_policy": "ROUND_ROBIN", "connect_timeout": "1s" });
    raw("bad", "cluster.v3.Cluster", cluster)
}

#[test]
fn case_43_an_envoy_that_refused_one_of_its_first_clusters_serves_after_a_restart_too() {
    for variant in [Variant::StateOfTheWorld, Variant::Incremental] {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
        site.write("raw.yaml", &bad_cluster()).unwrap();
        let control_plane = refusals::InProcess::start();
        let publish = || {
            let files = directory::read(site.directory()).unwrap();
            control_plane.plane.commands().publish(compile(&files, &control_plane.code).unwrap()).wait().unwrap();
        };
        publish();
        let mut envoy = envoy_of(variant, control_plane.xds);
        let refused = |status: &Value| status["nodes"][0]["types"]["cluster"]["refused"]["resources"] == json!(["bad"]);
        wait_for_status(control_plane.http, "the refusal", refused).unwrap();
        let serves = || Ok(Client::new(site.listener()).get("/welcome")?.status == 200);
        wait::until_true("the gateway to serve", serves).unwrap();

        for _ in 0..2 {
            envoy.kill_and_restart().unwrap();
            wait::until_true("the gateway to serve after a restart", serves).unwrap();
            assert_eq!(envoy.stat("cluster_manager.cds.update_rejected").unwrap(), Some(0), "{variant:?}");
        }
        // The refusal is known until another version of it comes.
        let status = wait_for_status(control_plane.http, "the node", |status| status["nodes"][0].is_object()).unwrap();
        assert_eq!(node(&status)["types"]["cluster"]["refused"]["resources"], json!(["bad"]), "{variant:?}");
        site.replace("raw.yaml", "ROUND_ROBIN", "CLUSTER_PROVIDED").unwrap();
        publish();
        let mended = |status: &Value| {
            node(status)["revision"].is_string() && node(status)["types"]["cluster"]["refused"].is_null()
        };
        wait_for_status(control_plane.http, "the mended cluster", mended).unwrap();
    }
}

/// Routes to a cluster, which must exist.
fn routes(name: &str, cluster: &str) -> String {
    let routes = json!({
        "name": name,
        "validate_clusters": true,
        "virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": cluster } }],
        }],
    });
    raw(&format!("routes-{name}"), "route.v3.RouteConfiguration", routes)
}

#[test]
fn case_44_a_rollout_goes_back_when_a_node_refuses_the_part_of_a_type_that_it_uses() {
    for variant in [Variant::StateOfTheWorld, Variant::Incremental] {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
        let port = free_port().unwrap();
        let rds = json!({ "route_config_name": "used", "config_source": ads() });
        site.write("listener.yaml", &listener("raw", port, ("rds", rds), &[])).unwrap();
        site.write("unused.yaml", &routes("unused", "backend")).unwrap();
        site.write("used.yaml", &routes("used", "backend")).unwrap();
        let control_plane = rollouts::InProcess::start(Strategy::AllAtOnce);
        control_plane.apply(&site);
        let _envoy = envoy_of(variant, control_plane.xds);
        let completed = |status: &Value| status["nodes"][0].is_object() && rollout_state(status) == "completed";
        wait_for_status(control_plane.http, "the first revision", completed).unwrap();
        let mut client = Client::new(([127, 0, 0, 1], port).into());
        wait::until_true("the listener to serve", || Ok(client.get("/any")?.status == 200)).unwrap();

        site.replace("used.yaml", "backend", "nobody").unwrap();
        control_plane.apply(&site);
        let back = |status: &Value| rollout_state(status) == "rolledBack";
        let status = wait_for_status(control_plane.http, "the rollback", back).unwrap();
        let reason = status["rollout"]["reason"].as_str().unwrap();
        assert!(reason.contains("RDS") && reason.contains("nobody"), "{variant:?}: {reason}");
        assert_eq!(client.get("/any").unwrap().status, 200, "{variant:?}");
    }
}

/// A cluster whose endpoints come on a stream of their own.
fn cluster_with_a_stream(name: &str) -> String {
    let service = json!({ "envoy_grpc": { "cluster_name": "postern" } });
    let source = json!({
        "resource_api_version": "V3",
        "api_config_source": { "api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [service] },
    });
    let cluster = json!({
        "name": name,
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": { "eds_config": source },
    });
    raw(&format!("cluster-{name}"), "cluster.v3.Cluster", cluster)
}

/// Endpoints at these ports; a priority above 128 is refused.
fn endpoints(name: &str, ports: &[u16], priority: u32) -> String {
    let endpoints: Vec<_> = ports.iter().map(|port| json!({ "endpoint": { "address": address(*port) } })).collect();
    let locality = json!({ "priority": priority, "lb_endpoints": endpoints });
    let assignment = json!({ "cluster_name": name, "endpoints": [locality] });
    raw(&format!("endpoints-{name}"), "endpoint.v3.ClusterLoadAssignment", assignment)
}

#[test]
fn case_44_what_an_envoy_accepts_on_one_stream_does_not_undo_what_it_refused_on_another() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    let port = upstream.address().port();
    site.write("clusters.yaml", &["right", "left"].map(cluster_with_a_stream).concat()).unwrap();
    let control_plane = refusals::InProcess::start();
    let publish = |right: &str, left: &str| {
        site.write("endpoints.yaml", &[right, left].concat()).unwrap();
        let files = directory::read(site.directory()).unwrap();
        control_plane.plane.commands().publish(compile(&files, &control_plane.code).unwrap()).wait().unwrap();
    };
    let right = |priority| endpoints("right", &[port], priority);
    publish(&right(0), &endpoints("left", &[port], 0));
    let envoy = Envoy::whole(control_plane.xds).unwrap();
    let settled = |status: &Value| status["nodes"][0]["revision"].is_string();
    wait_for_status(control_plane.http, "all streams to be settled", settled).unwrap();
    // The aggregated stream, and one for each of the two.
    assert_eq!(control_plane.plane.fleet().open_streams(), 3);

    publish(&right(200), &endpoints("left", &[port], 0));
    let refusal = |status: &Value| status["nodes"][0]["types"]["endpoints"]["refused"]["resources"].clone();
    let words = |status: &Value| status["nodes"][0]["types"]["endpoints"]["refused"]["message"].clone();
    let status = wait_for_status(control_plane.http, "the refusal", |status| words(status).is_string()).unwrap();
    let (refused, message) = (refusal(&status), words(&status));
    let running = || control_plane.plane.fleet().report()[0].types[&ResourceType::Endpoints].running.clone();
    let before = running();
    publish(&right(200), &endpoints("left", &[port, port + 1], 0));
    wait::until_true("the other endpoints", || Ok(envoy.stat("cluster.left.membership_total")? == Some(2))).unwrap();
    wait::until_true("their ACK", || Ok(running() != before)).unwrap();
    let status = wait_for_status(control_plane.http, "the node", |status| status["nodes"][0].is_object()).unwrap();
    assert_eq!((refusal(&status), words(&status)), (refused, message), "{status}");

    publish(&right(1), &endpoints("left", &[port, port + 1], 0));
    wait_for_status(control_plane.http, "the mended endpoints", |status| words(status).is_null()).unwrap();
}
