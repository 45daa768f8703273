//! The filter decides: on generated listeners (whole) and on listeners of Envoy's own (overlay).

use postern_tests::{Client, ControlPlane, Envoy, Request, Site, Upstream, site::free_port, wait};

use crate::world::{KEY, World, assert_no_vm_failure, users, users_with};

#[test]
fn denies_without_a_key_and_with_a_wrong_one() {
    let world = World::start();
    for request in [users(), users_with("wrong")] {
        let answer = world.send(&request);
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("www-authenticate"), Some("ApiKey"));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.header("x-content-type-options"), None, "a denial does not pass the response chain");
        assert!(answer.body.contains("a valid API key is required"), "{}", answer.body);
    }
    world.assert_no_vm_failure();
}

#[test]
fn allows_the_right_key_and_edits_both_directions() {
    let world = World::start();
    let answer = world.send(&users_with(KEY));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.echoed("x-guarded-by"), ["postern"]);
    assert!(answer.echoed("x-api-key").is_empty(), "the key must not reach the upstream: {}", answer.body);
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn lets_a_route_without_a_chain_pass() {
    let world = World::start();
    let answer = world.send(&Request::get("/welcome"));
    assert_eq!(answer.status, 200);
    assert!(answer.echoed("x-guarded-by").is_empty());
    assert_eq!(answer.header("x-content-type-options"), None);
    // A prefix ends with a segment, and what no route matches is Envoy's to answer.
    assert_eq!(world.send(&Request::get("/userspace")).status, 404);
}

#[test]
fn leaves_its_decision_in_the_access_log() {
    let world = World::start();
    world.send(&users_with("wrong"));
    world.send(&users_with(KEY));
    let (decisions, _) = wait::until("two decisions in the access log", || {
        let decisions: Vec<_> =
            world.envoy.access_log().iter().filter_map(|line| line["decision"].as_str().map(str::to_owned)).collect();
        Ok((decisions.len() >= 2).then_some(decisions))
    })
    .unwrap();
    assert!(decisions[0].starts_with("verdict=deny step=apiKeyAuth reason=key_unknown route=users plan="));
    assert!(decisions[1].starts_with("verdict=allow consumer=mobile-app route=users plan="));
    // The label in the log leads back to the revision, and to the node that runs it.
    let (_, label) = decisions[1].rsplit_once("plan=").unwrap();
    let server = format!("http://{}", world.control_plane.http());
    let told =
        ControlPlane::command().unwrap().args(["revisions", "--plan", label, "--server", &server]).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].starts_with("REVISION") && lines[1].starts_with("1 "), "{told}");
    assert!(lines[1].contains(" now ") && lines[1].ends_with("mesh `default`"), "{told}");
    let log = world.envoy.log().join("\n") + &decisions.join("\n") + &world.control_plane.log().join("\n");
    assert!(!log.contains(KEY), "a credential was logged");
}

#[test]
fn guards_the_routes_of_an_envoy_with_its_own_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    std::fs::remove_file(site.path("gateway.yaml")).unwrap();
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    let port = free_port().unwrap();
    let ports = [
        ("port_value: 10000", format!("port_value: {port}")),
        ("port_value: 10001", format!("port_value: {}", upstream.address().port())),
    ];
    // The longer number first: the shorter is no part of it, but order must not matter to a reader either.
    let replace: Vec<_> = ports.iter().rev().map(|(from, to)| (*from, to.as_str())).collect();
    let envoy = Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap();
    let mut client = Client::new(([127, 0, 0, 1], port).into());
    assert_eq!(client.send(&users()).unwrap().status, 401);
    let allowed = client.send(&users_with(KEY)).unwrap();
    assert_eq!((allowed.status, allowed.echoed("x-guarded-by")), (200, vec!["postern".to_owned()]));
    for _ in 0..20 {
        assert_eq!(client.get("/welcome").unwrap().status, 200);
    }
    let unknown = || -> Vec<_> {
        let lines = envoy.log().into_iter().filter(|line| line.contains(r#""message":"route not found""#));
        lines.filter(|line| line.contains(r#""route":"welcome","action":"CONTINUE""#)).collect()
    };
    wait::until_true("Envoy's log", || Ok(!unknown().is_empty())).unwrap();
    assert!(unknown().len() < 20, "once a worker: {:?}", unknown());
    assert!(unknown()[0].contains("[info]"), "{:?}", unknown());
    control_plane
        .wait_for_status("the plan's ACK", |status| {
            status["nodes"][0]["types"]["extensionConfig"]["running"].is_string()
        })
        .unwrap();
    assert_no_vm_failure(&envoy);
}
