//! Envoys and control planes restart, and requests are decided all the time.

use postern_tests::{Client, wait};

use crate::world::{KEY, World, node, running, users, users_with};

#[test]
fn serves_an_envoy_that_was_restarted() {
    let mut world = World::start();
    let before = world.control_plane.wait_for_status("ACKs", |status| running(status, "extensionConfig").is_some());
    world.envoy.kill_and_restart().unwrap();
    world.wait_until_serving();
    assert_eq!(world.send(&users()).status, 401);
    assert_eq!(world.send(&users_with(KEY)).status, 200);
    let status = world.control_plane.wait_for_status("the same node", |status| node(status)["connected"] == true);
    assert_eq!(
        running(&status.unwrap(), "extensionConfig"),
        running(&before.unwrap(), "extensionConfig"),
        "the same content must have the same version"
    );
}

#[test]
fn goes_on_serving_while_the_control_plane_is_killed_and_restarted() {
    let mut world = World::start();
    let acked = |status: &serde_json::Value| {
        ["cluster", "endpoints", "extensionConfig", "listener", "routeConfiguration"]
            .iter()
            .all(|kind| running(status, kind).is_some())
    };
    let before = world.control_plane.wait_for_status("all ACKs", acked).unwrap();
    let updates = |world: &World| world.envoy.stat("listener_manager.lds.update_success").unwrap();
    let updates_before = updates(&world);
    world.control_plane.kill();
    for _ in 0..50 {
        assert_eq!(world.send(&users()).status, 401);
        assert_eq!(world.send(&users_with(KEY)).status, 200);
    }
    world.control_plane.kill_and_restart().unwrap();
    let after = world.control_plane.wait_for_status("the node to be back", acked).unwrap();
    for kind in ["cluster", "endpoints", "extensionConfig", "listener", "routeConfiguration"] {
        assert_eq!(running(&after, kind), running(&before, kind), "versions must not depend on the process: {kind}");
    }
    assert_eq!(updates(&world), updates_before, "what Envoy has is not sent to it again");
    // And it takes changes from the new one.
    world.site.replace("policies.yaml", "nosniff", "after-the-restart").unwrap();
    wait::until_true("a change", || {
        let answer = world.client().send(&users_with(KEY))?;
        Ok(answer.header("x-content-type-options") == Some("after-the-restart"))
    })
    .unwrap();
    world.assert_no_vm_failure();
}

#[test]
fn serves_the_filter_by_its_digest() {
    let world = World::start();
    let status = world.control_plane.status().unwrap();
    let digest = status["filter"].as_str().unwrap();
    let mut client = Client::new(world.control_plane.http());
    let answer = client.get(&format!("/filter/{digest}.wasm")).unwrap();
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/wasm")));
    let code = std::fs::read(postern_tests::control_plane::from_environment("POSTERN_FILTER").unwrap()).unwrap();
    assert_eq!(answer.header("content-length"), Some(code.len().to_string().as_str()));
    let unknown = client.get(&format!("/filter/{}.wasm", "0".repeat(64))).unwrap();
    assert_eq!(unknown.status, 404);
    assert!(unknown.body.contains(digest), "{}", unknown.body);
}
