//! Slips: what a mistake would open stays closed, and what is open is reported.

use std::{fs, net::SocketAddr};

use axum::http;
use postern_tests::{Client, ControlPlane, Envoy, Request, Site, Upstream, site::free_port, wait};
use serde_json::{Value, json};

use crate::{
    operations::Shop,
    world::{KEY, World, assert_no_vm_failure, users, users_with},
};

/// The status of an answer over HTTP/2, in the clear.
fn status_by_h2(gateway: SocketAddr, path: &str) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(gateway).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get(format!("http://{gateway}{path}")).body(()).unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        answer.await.unwrap().status().as_u16()
    })
}

/// The status of a request without a key, by both protocols.
#[track_caller]
fn check_users(gateway: SocketAddr, status: u16) {
    assert_eq!(Client::new(gateway).send(&users()).unwrap().status, status);
    assert_eq!(status_by_h2(gateway, "/users/7"), status);
}

fn refused(status: &Value) -> String {
    let lines = status["refusedChange"].as_array().into_iter().flatten();
    lines.filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn wait_until_refused(control_plane: &ControlPlane, expect: &str) {
    control_plane.wait_for_status(expect, |status| refused(status).contains(expect)).unwrap();
}

/// Waits until a change of the directory is held, because `users` would lose its guard.
#[track_caller]
fn wait_until_held(control_plane: &ControlPlane) {
    let held = |status: &Value| status["held"]["routes"].to_string().contains("users");
    control_plane.wait_for_status("the held change", held).unwrap();
}

#[test]
fn a_target_that_names_no_route_is_refused_and_the_guard_stays() {
    let world = World::start();
    check_users(world.site.listener(), 401);
    world.site.replace("policies.yaml", "name: users }", "name: user }").unwrap();
    wait_until_refused(&world.control_plane, "unknown route `user`: did you mean `users`?");
    check_users(world.site.listener(), 401);
    let refusal = refused(&world.control_plane.status().unwrap());
    assert!(refusal.contains("policies.yaml:6:") && refusal.contains("spec.targetRef.name"), "{refusal}");

    let output = ControlPlane::command().unwrap().arg("validate").arg(world.site.directory()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `users`?"), "{output:?}");

    // With the word that the route may be missing, it is the guard of `users` that would go.
    world.site.replace("policies.yaml", "name: user }", "name: user, optional: true }").unwrap();
    wait_until_held(&world.control_plane);
    check_users(world.site.listener(), 401);

    world.site.replace("policies.yaml", "name: user, optional: true }", "name: users, optional: true }").unwrap();
    let mended = |status: &Value| refused(status).is_empty() && status["held"].is_null();
    world.control_plane.wait_for_status("the corrected policy", mended).unwrap();
    check_users(world.site.listener(), 401);
}

#[test]
fn a_directory_that_says_nothing_any_more_is_refused() {
    let world = World::start();
    let files = ["policies.yaml", "consumers.yaml", "gateway.yaml"];
    // The policy alone first: the route would be open.
    fs::remove_file(world.site.path("policies.yaml")).unwrap();
    wait_until_held(&world.control_plane);
    check_users(world.site.listener(), 401);
    for file in files {
        world.site.write(file, "# nothing\n").unwrap();
    }
    wait_until_refused(&world.control_plane, "this change declares no resources");
    check_users(world.site.listener(), 401);
    assert_eq!(world.send(&users_with(KEY)).status, 200);
    // Nobody said `--allow-unguarded`, so that a strict restart without a store has nothing to serve.
    let addresses = ["--xds", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let mut command = ControlPlane::command().unwrap();
    let output =
        command.args(["serve", "--strict", "--config"]).arg(world.site.directory()).args(addresses).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("declares no resources"), "{output:?}");
}

#[test]
fn a_directory_may_be_followed_wherever_it_leads_if_somebody_said_so() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    let control_plane = ControlPlane::start_with(site.directory(), &["--allow-unguarded".as_ref()]).unwrap();
    let envoy = Envoy::whole(control_plane.xds()).unwrap();
    envoy.wait_until_serving(site.listener(), &Request::get("/welcome")).unwrap();
    check_users(site.listener(), 401);
    fs::remove_file(site.path("policies.yaml")).unwrap();
    let mut client = Client::new(site.listener());
    wait::until_true("the open route", || Ok(client.send(&users())?.status == 200)).unwrap();
    let warned = |status: &Value| status["warnings"].to_string().contains("route `users` has no authentication");
    control_plane.wait_for_status("the warning", warned).unwrap();
}

#[test]
fn commands_that_remove_the_last_guard_need_a_word() {
    let shop = Shop::open(&[&["--id", "edge-1"]], &[]);
    let gateway = shop.served.listener();
    let said = shop.fails(&["delete", "RoutePolicy/users-api"]);
    assert!(said.contains("`users`") && said.contains("--allow-unguarded"), "{said}");
    let said = shop.fails(&["delete", "RoutePolicy/users-api", "--dry-run"]);
    assert!(said.contains("--allow-unguarded"), "{said}");
    fs::remove_file(shop.edited.path("policies.yaml")).unwrap();
    assert!(shop.says(&["apply", shop.edited()]).contains("nothing to do"), "`apply` removes nothing");
    let said = shop.fails(&["sync", shop.edited(), "--yes"]);
    assert!(said.contains("`users`") && said.contains("nothing was changed"), "{said}");
    let mut client = Client::new(shop.control_plane.http());
    let post = |path: &str, body: Value| {
        Request::new("POST", path).header("content-type", "application/json").body(body.to_string())
    };
    for body in [json!({ "files": [] }), json!({ "files": [{ "name": "a.yaml", "text": "# nothing\n" }] })] {
        let answer = client.send(&post("/api/v1/sync", body)).unwrap();
        assert!(answer.status == 409 && answer.body.contains("declares no resources"), "{answer:?}");
    }
    check_users(gateway, 401);
    assert_eq!(shop.control_plane.status().unwrap()["rollout"]["candidate"], 1, "nothing was changed");

    let output = shop.run(&["sync", shop.edited(), "--yes", "--allow-unguarded", "--wait"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("[unguarded-route]"), "{output:?}");
    assert!(said.contains("gateway.yaml:11:") && said.contains("route `users` has no authentication"), "{said}");
    check_users(gateway, 200);
    let status = shop.says(&["status"]);
    assert!(status.contains("warning   ") && status.contains("route `users` has no authentication"), "{status}");

    // Back to the guard, and not away from it again without the word.
    shop.says(&["rollback", "1", "--wait"]);
    check_users(gateway, 401);
    assert!(!shop.says(&["status"]).contains("warning"), "the quickstart is silent");
    let said = shop.fails(&["rollback", "2"]);
    assert!(said.contains("`users`") && said.contains("--allow-unguarded"), "{said}");
    check_users(gateway, 401);
    let body = json!({ "revision": 2, "allowUnguarded": true });
    assert_eq!(client.send(&post("/api/v1/rollback", body)).unwrap().status, 200);
    let mut users_client = Client::new(gateway);
    wait::until_true("the open route", || Ok(users_client.send(&users())?.status == 200)).unwrap();
}

#[test]
fn settings_can_deny_what_is_unguarded() {
    let shop = Shop::open(&[], &[]);
    let settings = "apiVersion: postern/v1\nkind: Settings\nmetadata: { name: s }\nspec: { unguarded: deny }\n";
    shop.edited.write("settings.yaml", settings).unwrap();
    shop.says(&["apply", shop.edited()]);
    // A guard that a request can avoid does not count, and the error stands at the step.
    let policies = shop.edited.read("policies.yaml").unwrap();
    let open =
        policies.replace("params: { header: x-api-key }", "params: { header: x-api-key }\n      onFailure: continue");
    shop.edited.write("policies.yaml", &open).unwrap();
    let said = shop.fails(&["apply", shop.edited(), "--allow-unguarded"]);
    assert!(said.contains("policies.yaml:10:") && said.contains("spec.request[0].onFailure"), "{said}");
    assert!(said.contains("lets requests pass that it cannot decide"), "{said}");
    shop.edited.write("policies.yaml", &policies).unwrap();
    shop.edited.replace("gateway.yaml", "      public:", "      # public:").unwrap();
    let said = shop.fails(&["apply", shop.edited()]);
    assert!(said.contains("route `welcome` has no authentication"), "{said}");
}

/// The mesh's step has a condition and is in shadow, and the route's says neither: it holds for every request.
#[test]
fn a_merge_opens_nothing() {
    let world = World::start();
    let mesh = "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: { name: mesh }\nspec:\n  \
                targetRef: { kind: Mesh }\n  request:\n    - policy: apiKeyAuth\n      mode: shadow\n      \
                onFailure: continue\n      when: request.headers['user-agent'] == 'old'\n      params: { header: x-api-key }\n";
    let policies = world.site.read("policies.yaml").unwrap();
    let before = world.control_plane.status().unwrap()["rollout"]["candidate"].clone();
    world.site.write("policies.yaml", &format!("{policies}{mesh}")).unwrap();
    world
        .control_plane
        .wait_for_status("the mesh's policy", |status| {
            status["rollout"]["candidate"] != before && status["rollout"]["state"] == "completed"
        })
        .unwrap();
    check_users(world.site.listener(), 401);
    let explained = |options: &[&str]| {
        let mut command = ControlPlane::command().unwrap();
        let output = command.args(["explain", "--route", "users"]).args(options).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let config = world.site.directory().to_str().unwrap();
    let said = explained(&["--config", config]);
    assert!(said.contains("not inherited") && said.contains("RoutePolicy `mesh` (mesh)"), "{said}");

    // Whoever asks for the condition gets it, and is told that the route is open: `diff` and `explain` show the merge.
    let asks = policies.replace("- policy: apiKeyAuth", "- policy: apiKeyAuth\n      inherit: [when]");
    let directory = tempfile::tempdir().unwrap();
    for file in ["gateway.yaml", "consumers.yaml"] {
        fs::copy(world.site.path(file), directory.path().join(file)).unwrap();
    }
    fs::write(directory.path().join("policies.yaml"), format!("{asks}{mesh}")).unwrap();
    let said = explained(&["--config", directory.path().to_str().unwrap()]);
    assert!(said.contains("inherited from"), "{said}");
    let mut command = ControlPlane::command().unwrap();
    let server = world.control_plane.http().to_string();
    let output = command.args(["diff", "--server", &server]).arg(directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("when: inherited from RoutePolicy `mesh`"), "{said}\n{output:?}");
}

/// Permissions are enforced, whatever policies are only tried out beside them.
#[test]
fn a_policy_in_shadow_does_not_switch_permissions_off() {
    let world = World::start();
    let permission = "---\napiVersion: postern/v1\nkind: TrafficPermission\nmetadata: { name: t }\nspec:\n  \
                      targetRef: { kind: HTTPRoute, name: users }\n  from: [{ targetRef: { kind: Mesh }, action: ALLOW }]\n";
    let policies = world.site.read("policies.yaml").unwrap().replace("spec:\n", "spec:\n  mode: shadow\n");
    world.site.write("policies.yaml", &format!("{policies}{permission}")).unwrap();
    let mut client = world.client();
    wait::until_true("the permission", || Ok(client.send(&users_with(KEY))?.status == 403)).unwrap();
    check_users(world.site.listener(), 403);
}

/// An Envoy with routes of its own. Only it knows them, so it counts requests that no chain guards, and targets that no
/// request ever used.
#[test]
fn in_overlay_the_filter_counts_what_a_slip_leaves_open() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    fs::remove_file(site.path("gateway.yaml")).unwrap();
    site.replace("policies.yaml", "name: users }", "name: user }").unwrap();
    let control_plane = ControlPlane::start_with(site.directory(), &["--allow-unguarded".as_ref()]).unwrap();
    // Nothing is known of routes here, but that no node has come that could have them.
    let warned = |status: &Value| status["warnings"].to_string().contains("nothing declares route `user`");
    control_plane.wait_for_status("the warning", warned).unwrap();

    let port = free_port().unwrap();
    let routes: String = (0..300)
        .map(|number| {
            format!("- {{ name: \"r {number}\", match: {{ path: /r{number} }}, route: {{ cluster: backend }} }}\n                        ")
        })
        .collect();
    let replace = [
        ("port_value: 10001", format!("port_value: {}", upstream.address().port())),
        ("port_value: 10000", format!("port_value: {port}")),
        ("- name: welcome", format!("{routes}- name: welcome")),
    ];
    let replace: Vec<_> = replace.iter().map(|(from, to)| (*from, to.as_str())).collect();
    let envoy = Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap();
    let gateway = SocketAddr::from(([127, 0, 0, 1], port));
    check_users(gateway, 200);
    control_plane.wait_for_status("a node", |status| !warned(status)).unwrap();
    let count = |name: &str| envoy.stat(&format!("wasmcustom.postern.{name}")).unwrap();
    assert_eq!(count("unguarded.users"), Some(2), "both requests");
    assert_eq!(count("target.user"), Some(0), "a policy names it, and nothing ever came on it");

    let mut client = Client::new(gateway);
    for number in 0..300 {
        assert_eq!(client.get(&format!("/r{number}")).unwrap().status, 200);
    }
    assert_eq!(count("unguarded.r_0"), Some(1), "names are made fit for a counter");
    let counters = envoy.stats("wasmcustom.postern.unguarded").unwrap();
    assert!(counters.len() > 256 && counters.iter().map(|(_, value)| value).sum::<u64>() == 302, "{counters:?}");
    assert!(count("unguarded._other").is_some_and(|other| other > 0), "the number of counters has an end");

    // The slip is mended: the route is guarded, and its target is used. That of the slip is no longer waited for.
    site.replace("policies.yaml", "name: user }", "name: users }").unwrap();
    wait::until_true("the guard", || Ok(client.send(&users())?.status == 401)).unwrap();
    let before = count("unguarded.users");
    for _ in 0..5 {
        assert_eq!(client.send(&users()).unwrap().status, 401);
    }
    assert_eq!(count("unguarded.users"), before, "guarded requests are not counted");
    let workers = count("target.users").unwrap();
    assert!(workers > 0, "it was used");
    assert!(count("target.user").is_some_and(|value| value > 0), "no policy names it any more");
    for _ in 0..5 {
        assert_eq!(client.send(&users()).unwrap().status, 401);
    }
    assert_eq!(count("target.users"), Some(workers), "each worker counts its first request only");
    assert_no_vm_failure(&envoy);
}
