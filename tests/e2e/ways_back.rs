//! Ways back and what follows them, on real Envoys: a node that alone refuses and leaves, a directory that still says what
//! nodes refused, single resources, and purges.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use postern_tests::{Client, ControlPlane, Envoy, site::free_port, wait};
use serde_json::{Value, json};

use crate::{
    fleet::{Stage, completed, envoys, rollout_state},
    operations::Shop,
    raw::{listener, raw},
};

/// A listener that answers by itself.
fn answering(port: u16) -> String {
    let direct =
        json!({ "match": { "prefix": "/" }, "direct_response": { "status": 200, "body": { "inline_string": "raw" } } });
    let hosts = json!([{ "name": "all", "domains": ["*"], "routes": [direct] }]);
    listener("answering", port, ("route_config", json!({ "name": "answers", "virtual_hosts": hosts })), &[])
}

/// An Envoy that has a listener of its own at this port, so that it refuses another one there.
fn occupied(xds: std::net::SocketAddr, id: &str, port: u16) -> Envoy {
    let address = json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
    let proxy = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "own",
        "cluster": "postern",
    });
    let filters = json!([{ "name": "envoy.filters.network.tcp_proxy", "typed_config": proxy }]);
    let own = json!([{ "name": "own", "address": address, "filter_chains": [{ "filters": filters }] }]);
    let (id, statics) = (format!("id: {id}"), format!("static_resources:\n  listeners: {own}"));
    Envoy::start("whole.yaml", xds, &[("id: edge-1", &id), ("static_resources:", &statics)]).unwrap()
}

fn back(status: &Value) -> bool {
    rollout_state(status) == "rolledBack"
}

#[test]
fn an_update_that_only_a_node_held_up_which_is_scaled_down_goes_on_by_itself() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let options = ["--departed-after", "1s"];
    let control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &options).unwrap();
    let port = free_port().unwrap();
    let _envoys = envoys(control_plane.xds(), 2);
    let odd = occupied(control_plane.xds(), "edge-3", port);
    control_plane.wait_for_status("all three nodes", completed(3)).unwrap();

    stage.site.write("answering.yaml", &answering(port)).unwrap();
    let status = control_plane.wait_for_status("the rollback", back).unwrap();
    assert_eq!((&status["rollout"]["candidate"], &status["rollout"]["node"]), (&2.into(), &"edge-3".into()));
    assert!(status["rollout"]["reason"].as_str().unwrap().contains("duplicate address"), "{status}");
    // It stays back as long as the node is there: its refusal is not forgotten when it runs the last good one again.
    let settled = |status: &Value| {
        let nodes = status["nodes"].as_array().unwrap();
        back(status)
            && nodes.iter().all(|node| node["revision"] == nodes[0]["revision"] && node["revision"].is_string())
    };
    control_plane.wait_for_status("all nodes on the last good one", settled).unwrap();

    drop(odd);
    let done = |status: &Value| status["rollout"]["lastGood"] == 2;
    let status = control_plane.wait_for_status("the update", done).unwrap();
    assert_eq!((rollout_state(&status), &status["rollout"]["without"]), ("completed", &json!(["edge-3"])));
    let answers = || Ok(Client::new(([127, 0, 0, 1], port).into()).get("/")?.body == "raw");
    wait::until_true("the new listener", answers).unwrap();
    let said =
        ControlPlane::command().unwrap().arg("status").env("POSTERN_SERVER", control_plane.http().to_string()).output();
    let said = String::from_utf8(said.unwrap().stdout).unwrap();
    assert!(said.contains("without node `edge-3`, which refused it and left"), "{said}");

    // It comes back as it was, is served what it did not refuse, and moves nobody.
    let _odd = occupied(control_plane.xds(), "edge-3", port);
    let serves = |status: &Value| {
        let node = &status["nodes"][2];
        node["connected"] == true && node["types"]["extensionConfig"]["running"].is_string()
    };
    control_plane.wait_for_status("its return", serves).unwrap();
    let looked = Client::new(control_plane.http()).get("/api/v1/nodes").unwrap();
    assert!(looked.body.contains("edge-3"), "{}", looked.body);
    let status = control_plane.status().unwrap();
    assert_eq!((rollout_state(&status), &status["rollout"]["candidate"]), ("completed", &2.into()));
    assert_eq!(
        (&status["nodes"][0]["revision"], &status["nodes"][1]["revision"]),
        (&status["revision"], &status["revision"])
    );
}

/// A cluster that every Envoy refuses.
fn refused_cluster(policy: &str) -> String {
    let cluster = json!({ "name": "odd", "type": "ORIGINAL_DST", "lb_policy": policy, "connect_timeout": "1s" });
    raw("odd", "cluster.v3.Cluster", cluster)
}

#[test]
fn a_directory_that_says_what_nodes_refused_is_not_applied_again_by_an_unrelated_edit_or_a_restart() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &[]).unwrap();
    let _envoys = envoys(control_plane.xds(), 1);
    control_plane.wait_for_status("the node", completed(1)).unwrap();
    stage.site.write("odd.yaml", &refused_cluster("ROUND_ROBIN")).unwrap();
    let status = control_plane.wait_for_status("the rollback", back).unwrap();
    let check = |directory: &Value| {
        assert_eq!((&directory["revision"], &directory["to"]), (&2.into(), &1.into()), "{directory}");
        assert_eq!(directory["resources"], json!(["EnvoyResource `odd`"]));
        assert!(directory["reason"].as_str().unwrap().starts_with("node `edge-1`: CDS: "), "{directory}");
    };
    check(&status["directory"]);

    let refused = |status: &Value| {
        status["refusedChange"][0].as_str().unwrap_or_default().contains("still says what was taken back")
    };
    stage.change("nosniff", "unrelated");
    let status = control_plane.wait_for_status("the refusal", refused).unwrap();
    assert!(
        status["refusedChange"][0]
            .as_str()
            .unwrap()
            .contains("change EnvoyResource `odd`, or put it in force once more")
    );
    assert_eq!((rollout_state(&status), &status["rollout"]["candidate"]), ("rolledBack", &2.into()));

    control_plane.kill_and_restart().unwrap();
    let status = control_plane.wait_for_status("the refusal after a restart", refused).unwrap();
    check(&status["directory"]);
    assert_eq!((rollout_state(&status), &status["rollout"]["candidate"]), ("rolledBack", &2.into()));
    let said =
        ControlPlane::command().unwrap().arg("status").env("POSTERN_SERVER", control_plane.http().to_string()).output();
    let said = String::from_utf8(said.unwrap().stdout).unwrap();
    assert!(
        said.contains("directory still says revision 2, which was taken back to revision 1: node `edge-1`: CDS: "),
        "{said}"
    );

    // Where it was refused it is mended: all of the directory counts again.
    stage.site.write("odd.yaml", &refused_cluster("CLUSTER_PROVIDED")).unwrap();
    let done = |status: &Value| status["rollout"]["lastGood"] == 3 && completed(1)(status);
    let status = control_plane.wait_for_status("what is mended", done).unwrap();
    assert_eq!((&status["directory"], &status["refusedChange"]), (&Value::Null, &Value::Null));
    assert!(stage.answers("unrelated"));

    // By hand as well: whoever goes back has the last word until the directory changes there.
    stage.change("unrelated", "worse");
    control_plane.wait_for_status("the change", |status| status["rollout"]["lastGood"] == 4).unwrap();
    let rollback = ControlPlane::command()
        .unwrap()
        .args(["rollback", "3"])
        .env("POSTERN_SERVER", control_plane.http().to_string())
        .output();
    assert!(rollback.unwrap().status.success());
    assert!(stage.answers("unrelated"));
    stage.site.write("odd.yaml", &refused_cluster("CLUSTER_PROVIDED").replace("1s", "2s")).unwrap();
    let status = control_plane.wait_for_status("the refusal", refused).unwrap();
    assert!(status["refusedChange"][0].as_str().unwrap().contains("change RoutePolicy `users-api`"), "{status}");
    assert!(stage.answers("unrelated"));
    stage.change("worse", "better");
    control_plane.wait_for_status("the next change", |status| status["rollout"]["lastGood"] == 6).unwrap();
    assert!(stage.answers("better"));
}

#[test]
fn goes_back_with_one_policy_on_a_real_envoy() {
    let shop = Shop::open(&[&["--id", "edge-1"]], &[]);
    shop.edited.replace("policies.yaml", "nosniff", "second").unwrap();
    shop.edited.replace("gateway.yaml", "/users", "/people").unwrap();
    shop.says(&["apply", shop.edited(), "--wait"]);
    let said = shop.says(&["rollback", "1", "--only", "RoutePolicy/users-api", "--wait"]);
    assert!(said.contains("revision 3 created") && said.contains("revision 3 runs on 1 nodes"), "{said}");
    let people = || {
        let request = postern_tests::Request::get("/people/7").header("x-api-key", crate::world::KEY);
        Ok(Client::new(shop.served.listener()).send(&request)?.header("x-content-type-options") == Some("nosniff"))
    };
    wait::until_true("the former policy on the new route", people).unwrap();
    let status = shop.says(&["status", "RoutePolicy/users-api"]);
    assert!(status.contains("revision 3, generation 3, in force  revision-1/"), "{status}");
    assert!(shop.says(&["get"]).contains("GENERATION"));
    assert!(
        shop.fails(&["rollback", "1", "--only", "RoutePolicy/none"]).contains("revision 1 has no RoutePolicy `none`")
    );
    assert!(shop.fails(&["rollback", "1", "--only", "RoutePolicy"]).contains("which RoutePolicy? Name one"));
    assert!(shop.fails(&["rollback", "1", "--only", "RoutePolcy/a"]).contains("did you mean `RoutePolicy`?"));
}

#[test]
fn purges_a_secret_from_the_history() {
    let mut shop = Shop::open(&[&["--id", "edge-1"]], &[]);
    let purge = ["purge", "Consumer/mobile-app"];
    assert!(shop.fails(&purge).contains("revision 1, in force, has it; delete it first, and let the rollout end"));
    shop.says(&["delete", "Consumer/mobile-app", "--wait"]);
    assert!(shop.fails(&purge).contains("the followed directory has it; remove it there first"));
    shop.served.write("consumers.yaml", "# nobody\n").unwrap();
    let kept = |shop: &Shop, revision: &str| {
        let output = shop.run(&["get", "--revision", revision, "Consumer/mobile-app"]);
        output.status.success()
    };
    let followed = |status: &Value| status["refusedChange"].is_null() && status["rollout"]["state"] == "completed";
    shop.control_plane.wait_for_status("the directory", followed).unwrap();
    // The directory says the same as what is in force: it is heard, and is no revision.
    wait::until_true("the directory", || {
        let said = shop.run(&["purge", "Consumer/mobile-app", "--dry-run"]);
        Ok(String::from_utf8_lossy(&said.stdout).contains("would be purged from revision 1"))
    })
    .unwrap();
    assert!(kept(&shop, "1"));

    let said = shop.fails(&purge);
    assert!(
        said.contains("this would purge it from revision 1, which can then no longer be gone back to as a whole"),
        "{said}"
    );
    assert!(said.contains("it cannot be undone: say `--yes`") && kept(&shop, "1"), "{said}");
    // On a terminal it asks.
    let ask = |answer: &str| {
        let program = ControlPlane::command().unwrap().get_program().to_owned();
        let mut command = Command::new("script");
        command.args(["-qec", &format!("{} purge Consumer/mobile-app", program.to_str().unwrap()), "/dev/null"]);
        command
            .env("POSTERN_SERVER", shop.control_plane.http().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{answer}").unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (done, said) = ask("n");
    assert!(!done && said.contains("It cannot be undone. [y/N]") && said.contains("nothing was purged"), "{said}");
    assert!(kept(&shop, "1"));
    let (done, said) = ask("y");
    assert!(done && said.contains("purged from revision 1"), "{said}");
    assert!(!kept(&shop, "1"));
    assert!(shop.says(&["revisions"]).contains("purged: Consumer `mobile-app`"));
    assert!(
        shop.fails(&["rollback", "1"])
            .contains("revision 1 is no longer whole, since Consumer `mobile-app` was purged")
    );
    assert!(shop.says(&["events", "--no-follow"]).contains("Consumer `mobile-app` purged by"));

    // A restart serves what was in force, and brings nothing back.
    shop.control_plane.kill_and_restart().unwrap();
    shop.control_plane.wait_for_status("the node", completed(1)).unwrap();
    assert!(shop.fails(&["get", "Consumer/mobile-app"]).contains("is not in force"));
    assert!(!kept(&shop, "1"));
    assert!(
        shop.fails(&["purge", "Consumer/mobile-app", "--yes"])
            .contains("no revision that is kept has Consumer `mobile-app`")
    );
}
