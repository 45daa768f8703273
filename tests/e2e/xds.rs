//! xDS as a real Envoy speaks it, in both variants: nothing warms for long, nothing is sent twice, no request is lost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use envoy_types::pb::{envoy::config::cluster::v3::Cluster, google::protobuf};
use postern_base::digest::Digest;
use postern_compile::{
    pipeline::compile,
    snapshot::{Resource, ResourceType, Snapshot},
};
use postern_model::directory;
use postern_tests::{Client, Envoy, Request, Site, Upstream, site::free_port, wait};
use prost::Message;

use crate::{
    refusals::InProcess,
    updates::Load,
    world::{KEY, Variant, World, envoy_of, node, running, users, users_with},
};

const BOTH: [Variant; 2] = [Variant::StateOfTheWorld, Variant::Incremental];

/// The time within which a changed cluster must be warm. An Envoy that is not sent the endpoints again always gives up
/// after 15 s; one that is may be late once in a while, if the machine is busy.
const A_SECOND: Duration = Duration::from_secs(1);

#[test]
fn serves_an_envoy_over_incremental_xds_and_follows_changes() {
    let world = World::start_with(Variant::Incremental);
    assert_eq!(world.send(&users()).status, 401);
    assert_eq!(world.send(&users_with(KEY)).status, 200);
    world.site.replace("policies.yaml", "nosniff", "incremental").unwrap();
    wait::until_true("a change", || {
        let answer = world.client().send(&users_with(KEY))?;
        Ok(answer.header("x-content-type-options") == Some("incremental"))
    })
    .unwrap();
    let status = world.control_plane.wait_for_status("one revision", |status| {
        node(status)["revision"].is_string() && node(status)["revision"] == status["revision"]
    });
    assert!(node(&status.unwrap())["types"]["cluster"]["refused"].is_null());
    world.assert_no_vm_failure();
}

#[test]
fn case_22_a_changed_cluster_whose_endpoints_did_not_change_is_warm_at_once() {
    for variant in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
        let control_plane = InProcess::start();
        let compiled = || compile(&directory::read(site.directory()).unwrap(), &control_plane.code).unwrap();
        control_plane.plane.commands().publish(with_connect_timeout(&compiled(), 3)).wait().unwrap();
        let envoy = envoy_of(variant, control_plane.xds);
        let mut client = Client::new(site.listener());
        wait::until_true("the gateway to serve", || Ok(client.get("/welcome")?.status == 200)).unwrap();
        let warm_after = |seconds| {
            let start = Instant::now();
            control_plane.plane.commands().publish(with_connect_timeout(&compiled(), seconds)).wait().unwrap();
            let timeout = format!("\"connect_timeout\": \"{seconds}s\"");
            wait::until_true("the changed cluster to be active", || {
                let dump = Client::new(envoy.admin()).get("/config_dump?resource=dynamic_active_clusters")?.body;
                Ok(dump.contains(&timeout) && warming(&envoy) == Some(0))
            })
            .unwrap();
            start.elapsed()
        };
        let times = [4, 5, 6, 7, 8].map(warm_after);
        println!("{variant:?}: warm after {times:?}");
        assert!(times.iter().min() < Some(&A_SECOND), "{variant:?}: warm only after {times:?}");
        assert_eq!(client.get("/welcome").unwrap().status, 200);
    }
}

fn warming(envoy: &Envoy) -> Option<u64> {
    envoy.stat("cluster_manager.warming_clusters").unwrap()
}

/// A snapshot with another connect time-out in its clusters. Everything else stays as it was, endpoints and their
/// versions included.
fn with_connect_timeout(snapshot: &Snapshot, seconds: i64) -> Snapshot {
    let resources = ResourceType::ALL.into_iter().flat_map(|kind| {
        let whole = snapshot.whole(kind);
        let resources: Vec<_> = whole.resources.iter().map(|it| (kind, changed(kind, it, seconds))).collect();
        resources
    });
    let revision = Digest::of(seconds.to_string().as_bytes());
    Snapshot::assemble(revision, snapshot.plan().clone(), resources)
}

fn changed(kind: ResourceType, resource: &Arc<Resource>, seconds: i64) -> Resource {
    let (name, mut body) = (resource.name.clone(), resource.body.clone());
    if kind != ResourceType::Cluster {
        return Resource { name, version: resource.version.clone(), body, author: resource.author };
    }
    let mut cluster = Cluster::decode(body.value.as_slice()).unwrap();
    cluster.connect_timeout = Some(protobuf::Duration { seconds, nanos: 0 });
    body.value = cluster.encode_to_vec();
    Resource { name, version: Digest::of(&body.value), body, author: resource.author }
}

#[test]
fn case_21_routes_move_between_clusters_without_a_lost_request() {
    for variant in BOTH {
        let world = World::start_with(variant);
        let load = Load::start(&world, 2);
        let mut before = "backend".to_owned();
        for change in 1..=5 {
            let after = format!("moved-{change}-backend");
            world.site.replace("gateway.yaml", &before, &after).unwrap();
            wait::until_true("the routes to have moved, and the old cluster to be gone", || {
                let clusters = Client::new(world.envoy.admin()).get("/clusters")?.body;
                let has = |name: &str| clusters.lines().any(|line| line.starts_with(&format!("{name}::")));
                Ok(has(&after) && !has(&before))
            })
            .unwrap();
            before = after;
        }
        let (sent, unexpected) = load.stop();
        assert_eq!(unexpected, Vec::<String>::new(), "{variant:?}: of {sent} requests");
        assert!(sent > 50, "only {sent} requests were sent: there was no load");
    }
}

#[test]
fn case_30_nothing_is_sent_twice_when_the_control_plane_is_killed_during_a_push() {
    let mut world = World::start_with(Variant::Incremental);
    let settled = |status: &serde_json::Value| {
        node(status)["connected"] == true
            && node(status)["revision"].is_string()
            && node(status)["revision"] == status["revision"]
            && running(status, "routeConfiguration").is_some()
    };
    world.control_plane.wait_for_status("one revision", settled).unwrap();
    let load = Load::start(&world, 2);
    let updates = |world: &World| {
        let stats = world.envoy.stats("update_success").unwrap();
        let of = |part: &str| stats.iter().filter(|(name, _)| name.contains(part)).map(|(_, count)| count).sum::<u64>();
        [of("cluster_manager.cds"), of("listener_manager.lds"), of(".rds."), of("extension_config_discovery")]
    };
    let before = updates(&world);
    for round in 1..=3 {
        // Killed while the change may be read, published, on its way, accepted or not.
        world.site.write("policies.yaml", &policies(&world, round)).unwrap();
        world.control_plane.kill();
        world.control_plane.kill_and_restart().unwrap();
        let header = format!("round-{round}");
        wait::until_true("the change", || {
            let answer = world.client().send(&users_with(KEY))?;
            Ok(answer.header("x-content-type-options") == Some(header.as_str()))
        })
        .unwrap();
        world.control_plane.wait_for_status("the node to be back", settled).unwrap();
    }
    let (sent, unexpected) = load.stop();
    assert_eq!(unexpected, Vec::<String>::new(), "of {sent} requests");
    let [clusters, listeners, routes, extensions] = before;
    assert_eq!(updates(&world), [clusters, listeners, routes, extensions + 3], "each change once, and nothing else");
    world.assert_no_vm_failure();
}

fn policies(world: &World, round: u32) -> String {
    let text = world.site.read("policies.yaml").unwrap();
    let line = text.lines().find(|line| line.contains("x-content-type-options")).unwrap();
    text.replace(line, &format!("        set: {{ x-content-type-options: round-{round} }}"))
}

#[test]
fn case_35_before_a_plan_has_come_the_listener_waits_and_then_refuses() {
    let upstream = Upstream::start(0).unwrap();
    let (listener, nobody) = (free_port().unwrap(), free_port().unwrap());
    let port = |port: u16| format!("port_value: {port}");
    let source = "config_source: { ads: {}, resource_api_version: V3 }";
    // Envoy's own default is 15 seconds.
    let waiting = "config_source: { ads: {}, resource_api_version: V3, initial_fetch_timeout: 1s }";
    let replace = [
        ("port_value: 10000", port(listener)),
        ("port_value: 10001", port(upstream.address().port())),
        (source, waiting.to_owned()),
    ];
    let replace: Vec<_> = replace.iter().map(|(from, to)| (*from, to.as_str())).collect();
    // Nobody serves xDS there, and the Envoy is up once it has waited.
    let _envoy = Envoy::start("overlay.yaml", ([127, 0, 0, 1], nobody).into(), &replace).unwrap();
    let mut client = Client::new(([127, 0, 0, 1], listener).into());
    for path in ["/welcome", "/users/7"] {
        let answer = client.send(&Request::get(path)).unwrap();
        assert_eq!(answer.status, 500, "{path}: {answer:?}");
    }
}
