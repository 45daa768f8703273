//! Policy discovery with gRPC's own Python client, which shares no code with ours.

use std::process::Command;

use postern_tests::{
    Client as Http, ControlPlane,
    control_plane::from_environment,
    process::Process,
    site::{repository, write_whole},
    wait,
};
use serde_json::{Value, json};

/// An enforcement point.
struct Client {
    process: Process,
}

impl Client {
    fn start(control_plane: &ControlPlane, options: &Value) -> Self {
        let mut command = Command::new(from_environment("POSTERN_GRPC_PYTHON").unwrap());
        command.arg(repository().join("tests/e2e/grpc/discovery.py")).arg(control_plane.xds().to_string());
        let process = Process::start("the discovery client", command.arg(options.to_string())).unwrap();
        Self { process }
    }

    fn lines(&self) -> Vec<Value> {
        self.process.stdout().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for a line that fits, from this index on.
    fn wait_for(&self, from: usize, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let found = wait::until(what, || Ok(self.lines().into_iter().skip(from).find(|line| fits(line))));
        found.unwrap_or_else(|error| panic!("{error}: {:?}\n{:?}", self.lines(), self.process.stderr())).0
    }
}

fn resources(word: &str, key: &str) -> String {
    let policy = |name: &str, mesh: &str, target: &str, word: &str| {
        format!(
            "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: {name}, mesh: {mesh} }}\nspec:\n  \
             targetRef: {{ {target} }}\n  request:\n    - policy: apiKeyAuth\n      params: {{ header: x-api-key }}\n    \
             - policy: headers\n      params: {{ set: {{ x-said: {word} }} }}\n"
        )
    };
    [
        policy("of-all", "default", "kind: Mesh", "always"),
        policy("of-web", "default", "kind: Service, name: web", word),
        policy("of-canaries", "default", "kind: MeshSubset, tags: { stage: canary }", "always"),
        policy("of-others", "other", "kind: Mesh", "always"),
        format!(
            "---\napiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: app }}\nspec: {{ apiKeys: [{{ key: {key} }}] }}\n"
        ),
    ]
    .concat()
}

fn names(line: &Value) -> Vec<&str> {
    line["policies"].as_array().unwrap().iter().map(|policy| policy["name"].as_str().unwrap()).collect()
}

fn says(word: &str) -> impl Fn(&Value) -> bool {
    let word = word.to_owned();
    move |line| line["policies"].to_string().contains(&word)
}

fn clients(control_plane: &ControlPlane) -> Value {
    let answer = Http::new(control_plane.http()).get("/api/v1/clients").unwrap();
    serde_json::from_str(&answer.body).unwrap()
}

fn client<'a>(clients: &'a Value, address: &str) -> &'a Value {
    let all = clients["groups"].as_array().unwrap().iter().flat_map(|group| group["clients"].as_array().unwrap());
    all.into_iter().find(|client| client["address"] == address).unwrap_or(&Value::Null)
}

fn nodes(control_plane: &ControlPlane, options: &[&str]) -> String {
    let server = control_plane.http().to_string();
    let output = ControlPlane::command().unwrap().args(["nodes", "--server", &server]).args(options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn grpc_clients_get_what_concerns_them_and_their_answers_are_shown_counted_and_heeded() {
    let (directory, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |word: &str, key: &str| write_whole(directory.path(), "r.yaml", &resources(word, key)).unwrap();
    write("first", "an-old-secret-key");
    // Their silence is no reason to end streams, and a connection with a stream is in use.
    let options = ["--discovery-max-inactive", "1", "--xds-idle-timeout", "1"];
    let mut control_plane = ControlPlane::start_with_state(directory.path(), state.path(), &options).unwrap();
    let web = json!({
        "address": "web-1", "plan": true, "refuse": "second",
        "identity": { "service": "web", "tags": { "stage": "canary" } },
    });
    let web = Client::start(&control_plane, &web);
    let anyone = Client::start(&control_plane, &json!({ "address": "anyone" }));
    let elsewhere = json!({ "address": "elsewhere", "identity": { "mesh": "other" } });
    let elsewhere = Client::start(&control_plane, &elsewhere);

    let first = web.wait_for(0, "its policies", says("first"));
    assert_eq!(names(&first), ["of-all", "of-canaries", "of-web"]);
    assert!(first["plan"].as_u64().unwrap() > 0 && first["proved"] == true, "{first}");
    assert_eq!(first["health"], json!({ "connected": true, "due": first["version"] }));
    let all = anyone.wait_for(0, "its policies", says("first"));
    assert_eq!((names(&all), &all["plan"], &all["proved"]), (names(&first), &json!(0), &json!(true)));
    assert_ne!(all["version"], first["version"], "one of them is of a plan, too");
    assert_eq!(names(&elsewhere.wait_for(0, "its policies", says("always"))), ["of-others"]);
    let all_acked = |control_plane: &ControlPlane| {
        wait::until_true("all have answered", || {
            let clients = clients(control_plane);
            Ok(clients["allAcked"] == true && client(&clients, "anyone") != &Value::Null)
        })
        .unwrap();
    };
    wait::until_true("three clients are ready", || Ok(nodes(&control_plane, &[]).matches(" ready ").count() == 3))
        .unwrap();
    let metrics = Http::new(control_plane.http()).get("/metrics").unwrap().body;
    for line in ["postern_discovery_clients{state=\"ready\"} 3", "postern_discovery_groups{all_acked=\"true\"} 3"] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }

    // A revoked key is a new version for the one that has the plan, and for nobody else.
    write("first", "a-new-secret-key");
    let renewed = web.wait_for(1, "its new plan", |line| line["plan"].is_number());
    assert_eq!(renewed["policies"], first["policies"]);
    assert_ne!(renewed["version"], first["version"]);
    control_plane.wait_for_status("the rollout's end", |status| status["rollout"]["state"] == "completed").unwrap();
    assert_eq!((anyone.lines().len(), elsewhere.lines().len()), (1, 1));

    // It refuses the next one, which then goes back everywhere; the waiting ends by a refusal as by an acceptance.
    write("second", "a-new-secret-key");
    let refused = web.wait_for(2, "what it refuses", says("second"));
    assert_eq!(refused["refused"], true);
    let back = web.wait_for(3, "what it had before", says("first"));
    assert_eq!((&back["version"], &back["refused"]), (&renewed["version"], &json!(false)));
    let is_back = |status: &Value| status["rollout"]["state"] == "rolledBack";
    let rollout = control_plane.wait_for_status("the rollout that went back", is_back).unwrap()["rollout"].clone();
    assert_eq!((&rollout["state"], &rollout["node"]), (&json!("rolledBack"), &json!("web-1")), "{rollout}");
    assert_eq!(rollout["reason"], "policies: `second` is not known");
    all_acked(&control_plane);

    // The control plane goes and comes back: all come back with what they have, and are brought up to date.
    let seen = [&web, &anyone, &elsewhere].map(|client| client.lines().len());
    control_plane.kill();
    for (client, seen) in [&web, &anyone, &elsewhere].into_iter().zip(seen) {
        client.wait_for(seen, "the end of its stream", |line| line["ended"].is_string());
    }
    control_plane.kill_and_restart().unwrap();
    for (client, version) in [(&web, &back), (&anyone, &all)] {
        let before = client.lines().iter().rposition(|line| line["ended"].is_string()).unwrap();
        let again = client.wait_for(before, "its policies again", says("first"));
        assert_eq!(again["version"], version["version"], "the version is of the content alone");
    }
    all_acked(&control_plane);
    write("third", "a-new-secret-key");
    web.wait_for(4, "what is mended", says("third"));
    anyone.wait_for(1, "what is mended", says("third"));
    control_plane.wait_for_status("the rollout's end", |status| status["rollout"]["state"] == "completed").unwrap();

    // Who refuses and cannot go back is shown with its reason. The first revision of a control plane is such a case.
    drop((web, anyone, elsewhere));
    let alone = ControlPlane::start(directory.path()).unwrap();
    let refusing = json!({ "address": "web-2", "refuse": "third", "identity": { "service": "web" } });
    let refusing = Client::start(&alone, &refusing);
    refusing.wait_for(0, "what it refuses", |line| line["refused"] == true);
    wait::until_true("its refusal is known", || {
        Ok(client(&clients(&alone), "web-2")["reason"] == "`third` is not known")
    })
    .unwrap();
    assert_eq!(clients(&alone)["allAcked"], true, "a refusal ends the waiting");
    let shown = nodes(&alone, &["--clients"]);
    assert!(shown.contains(" refusing ") && shown.contains("policies: `third` is not known"), "{shown}");
    let listed: Value = serde_json::from_str(&nodes(&alone, &["--clients", "--output", "json"])).unwrap();
    assert_eq!(client(&listed, "web-2")["identity"]["service"], "web", "{listed}");
}
