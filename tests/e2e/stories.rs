//! The user stories of the policy lifecycle that are told from one policy's or one node's side, on two real Envoys. The
//! others are in `operations` and `rollouts`.

use std::{net::SocketAddr, process::Output};

use postern_release::rollout::Strategy;
use postern_tests::{Client, ControlPlane, control_plane::wait_for_status, wait};
use serde_json::{Value, json};

use crate::{
    fleet::{Stage, completed, envoys},
    operations::Shop,
    rollouts::InProcess,
    world::{KEY, users_with},
};

const TWO: [&[&str]; 2] = [&["--id", "edge-1"], &["--id", "edge-2", "--tag", "stage=canary"]];

fn get(http: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&Client::new(http).get(path).unwrap().body).unwrap()
}

/// A policy's condition at a node in a revision: status, reason and message.
fn ready_at(resource: &Value, revision: u64, node: &str) -> Option<(String, String, String)> {
    let revisions = resource["status"]["revisions"].as_array()?;
    let found = revisions.iter().find(|found| found["revision"] == revision)?;
    let condition = found["conditions"].as_array()?.iter().find(|found| found["node"] == node)?;
    let text = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

#[test]
fn loads_a_new_policy_or_updates_an_existing_one_without_a_restart() {
    let shop = Shop::open(&TWO, &[]);
    let processes: Vec<_> = shop.envoys.iter().map(|envoy| envoy.id()).collect();
    let welcome = || Client::new(shop.served.listener()).get("/welcome").unwrap();
    wait::until_true("the gateway to serve", || Ok(welcome().status == 200)).unwrap();
    let policies = shop.edited.read("policies.yaml").unwrap();
    let welcoming = |word: &str| {
        format!(
            "{policies}---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: welcome }}\nspec:\n  \
             targetRef: {{ kind: HTTPRoute, name: welcome }}\n  response:\n    \
             - {{ policy: headers, params: {{ set: {{ x-word: {word} }} }} }}\n"
        )
    };
    assert_eq!(welcome().header("x-word"), None);
    for (number, word) in [(2, "new"), (3, "updated")] {
        shop.edited.write("policies.yaml", &welcoming(word)).unwrap();
        let said = shop.says(&["apply", shop.edited(), "--wait"]);
        assert!(said.contains(&format!("revision {number} runs on 2 nodes")), "{said}");
        // On new connections, which the kernel shares out between both Envoys.
        for _ in 0..20 {
            assert_eq!(welcome().header("x-word"), Some(word));
        }
    }
    assert_eq!(shop.envoys.iter().map(|envoy| envoy.id()).collect::<Vec<_>>(), processes, "the same processes");
}

#[test]
fn monitors_the_status_of_a_policy_on_a_specific_node() {
    let shop = Shop::open(&TWO, &["--canary", "stage=canary:1h"]);
    let http = shop.control_plane.http();
    let policy = || get(http, "/api/v1/resources/RoutePolicy/users-api");
    shop.edited.replace("policies.yaml", "nosniff", "second").unwrap();
    shop.says(&["apply", shop.edited()]);
    let acked = |revision: u64, node: &str| ready_at(&policy(), revision, node).is_some_and(|found| found.0 == "True");
    wait::until_true("the canary", || Ok(acked(2, "edge-2") && acked(1, "edge-1"))).unwrap();
    assert_eq!(ready_at(&policy(), 2, "edge-1"), None, "it is not to run the new one yet");
    let nodes = get(http, "/api/v1/nodes");
    let shown = |node: &Value| json!([node["id"], node["state"], node["revision"], node["target"]]);
    assert_eq!(shown(&nodes[0]), json!(["edge-1", "ready", 1, 1]));
    assert_eq!(shown(&nodes[1]), json!(["edge-2", "ready", 2, 2]));
    let said = shop.says(&["status", "RoutePolicy/users-api"]);
    let order: Vec<_> = said.lines().filter(|line| line.contains("edge-") || line.starts_with("revision")).collect();
    assert!(order[0].starts_with("revision 2, generation 2, in force") && order[1].contains("edge-2"), "{said}");
    assert!(order[2].starts_with("revision 1, generation 1, not in force") && order[3].contains("edge-1"), "{said}");
}

#[test]
fn debugs_issues_with_a_policy_without_involving_the_administrator() {
    let stage = Stage::new();
    let control_plane = InProcess::start(Strategy::AllAtOnce);
    control_plane.apply(&stage.site);
    let _envoys = envoys(control_plane.xds, 2);
    wait_for_status(control_plane.http, "both nodes", completed(2)).unwrap();
    // From here on by the policy alone: no log, no summary of the fleet, no events.
    let shown = || get(control_plane.http, "/api/v1/resources/RoutePolicy/users-api");
    let said = || {
        let output = command(control_plane.http, &["status", "RoutePolicy/users-api"]);
        String::from_utf8(output.stdout).unwrap()
    };

    // A change that does not compile never reaches a node.
    stage.change("policy: apiKeyAuth", "policy: apiKeyAuht");
    let directory = stage.site.directory().to_str().unwrap();
    assert!(!run(control_plane.http, &["apply", directory]).status.success());
    let text = said();
    assert!(text.contains("refused change of") && text.contains("Initialized  False   Invalid"), "{text}");
    assert!(text.contains("policies.yaml:8:") && text.contains("did you mean `apiKeyAuth`?"), "{text}");
    stage.change("policy: apiKeyAuht", "policy: apiKeyAuth");

    // One that nodes refuse: at which node, and in whose words.
    stage.change("nosniff", "mine");
    control_plane.force_a_bad_plan(&stage.site);
    let reason = "plan format 99 is not supported";
    let refused = |policy: &Value| {
        let refused = ["edge-1", "edge-2"].into_iter().filter_map(|node| ready_at(policy, 2, node));
        refused.filter(|(status, ..)| status == "False").collect::<Vec<_>>()
    };
    let (policy, _) = wait::until("the refusal", || {
        let policy = shown();
        Ok((!refused(&policy).is_empty() && policy["status"]["revisions"][0]["inForce"] == false).then_some(policy))
    })
    .unwrap();
    let refused = refused(&policy);
    assert!(refused.iter().all(|(_, why, message)| why == "Rejected" && message.contains(reason)), "{refused:?}");
    let text = said();
    assert!(text.contains("revision 2, generation 2, not in force"), "{text}");
    assert!(text.contains("revision 1, generation 1, in force"), "{text}");
    assert!(text.contains("Rejected") && text.contains(reason), "{text}");
    let list = String::from_utf8(command(control_plane.http, &["get", "RoutePolicy"]).stdout).unwrap();
    assert!(list.contains("users-api") && list.contains("revision 2: node `edge-"), "{list}");

    // What is in force is still there, serves, and is back at both nodes.
    let content = policy["spec"]["response"][0]["params"]["set"]["x-content-type-options"].clone();
    assert_eq!(content, "nosniff");
    assert_eq!(Client::new(stage.site.listener()).send(&users_with(KEY)).unwrap().status, 200);
    let back = |node: &str| ready_at(&shown(), 1, node).is_some_and(|found| found.0 == "True");
    wait::until_true("both nodes on the last good one", || Ok(back("edge-1") && back("edge-2"))).unwrap();
}

fn command(http: SocketAddr, arguments: &[&str]) -> Output {
    let output = run(http, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn run(http: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = ControlPlane::command().unwrap();
    command.args(arguments).env("POSTERN_SERVER", http.to_string()).output().unwrap()
}
