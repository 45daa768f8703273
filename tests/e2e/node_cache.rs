//! `postern node-cache`: an Envoy that starts while the control plane is gone is served what it accepted last, and one
//! that runs notices nothing.

use std::{fs, net::SocketAddr, path::PathBuf, process::Command, thread, time::Duration};

use postern_tests::{
    Client, ControlPlane, Envoy, NodeCache, Request, Site, Upstream,
    control_plane::wait_for_status,
    crash::Numbers,
    site::{free_port, write_whole},
    wait,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    refusals::InProcess,
    refused_resources::bad_cluster,
    updates::Load,
    world::{KEY, Variant, assert_no_vm_failure, envoy_of, node, users, users_with},
};

const VARIANTS: [Variant; 2] = [Variant::StateOfTheWorld, Variant::Incremental];

/// A directory with the quickstart's resources, and an upstream for it.
struct Stage {
    site: Site,
    upstream: Upstream,
    directory: TempDir,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
        Self { site, upstream, directory }
    }

    fn cache(&self, control_plane: SocketAddr, options: &[&str]) -> NodeCache {
        NodeCache::start(control_plane, &self.directory.path().join("cache"), options).unwrap()
    }

    /// Waits until the gateway decides by a policy with this value of a header.
    fn wait_for_answers(&self, value: &str) {
        wait::until_true(value, || Ok(self.answer()?.as_deref() == Some(value))).unwrap();
        assert_eq!(Client::new(self.site.listener()).send(&users()).unwrap().status, 401);
    }

    fn answer(&self) -> anyhow::Result<Option<String>> {
        let answer = Client::new(self.site.listener()).send(&users_with(KEY))?;
        Ok(answer.header("x-content-type-options").map(str::to_owned))
    }
}

/// An Envoy that is live soon even if it gets nothing.
fn impatient_envoy(xds: SocketAddr) -> Envoy {
    let source = |name: &str, more: &str| format!("{name}_config: {{ ads: {{}}, resource_api_version: V3{more} }}");
    let [(cds, soon_cds), (lds, soon_lds)] =
        ["cds", "lds"].map(|name| (source(name, ""), source(name, ", initial_fetch_timeout: 1s")));
    Envoy::start("whole.yaml", xds, &[(&cds, &soon_cds), (&lds, &soon_lds)]).unwrap()
}

/// The types of resources that an Envoy runs of the quickstart.
const KINDS: [&str; 5] = ["cluster", "endpoints", "extensionConfig", "listener", "routeConfiguration"];

/// Waits until the only node runs all that it subscribed to of these types, so that the cache has seen all of its ACKs.
fn wait_until_running(control_plane: &ControlPlane, kinds: &[&str]) -> Value {
    let runs = |status: &Value| {
        let nodes = status["nodes"].as_array().unwrap();
        let [node] = nodes.as_slice() else { return false };
        let is_settled = node["revision"].is_string() && node["revision"] == status["revision"];
        is_settled && node["connected"] == true && kinds.iter().all(|kind| node["types"][kind]["running"].is_string())
    };
    control_plane.wait_for_status("the node to run everything", runs).unwrap()
}

fn wait_until_settled(control_plane: &ControlPlane) -> Value {
    wait_until_running(control_plane, &KINDS)
}

fn logged(log: &[String], part: &str) -> bool {
    log.iter().any(|line| line.contains(part))
}

fn wait_for_log(cache: &NodeCache, part: &str) {
    wait::until_true(part, || Ok(logged(&cache.log(), part))).unwrap();
}

/// The output of a command of `postern` against a control plane.
fn told(control_plane: &ControlPlane, command: &str) -> String {
    let server = format!("http://{}", control_plane.http());
    let output = ControlPlane::command().unwrap().args([command, "--server", &server]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn serves_an_envoy_that_starts_while_the_control_plane_is_gone_and_hands_it_back() {
    for variant in VARIANTS {
        let stage = Stage::new();
        let mut control_plane = ControlPlane::start(stage.site.directory()).unwrap();
        let cache = stage.cache(control_plane.xds(), &[]);
        let mut envoy = envoy_of(variant, cache.address());
        stage.wait_for_answers("nosniff");
        let before = wait_until_settled(&control_plane);
        assert_eq!(node(&before)["cache"]["version"], "0.1.0", "{before}");
        assert!(node(&before)["cache"].get("served").is_none(), "{before}");
        assert!(told(&control_plane, "status").contains("via node cache 0.1.0\n"));

        control_plane.kill();
        envoy.kill_and_restart().unwrap();
        stage.wait_for_answers("nosniff");
        assert_eq!(Client::new(stage.site.listener()).send(&Request::get("/welcome")).unwrap().status, 200);
        assert!(logged(&cache.log(), "served from what the node accepted last"), "{variant:?}");

        // It is back: what the Envoy was served from the cache is not sent again, and a new policy comes.
        let updates = |envoy: &Envoy| envoy.stat("listener_manager.lds.update_success").unwrap();
        let updates_before = updates(&envoy);
        control_plane.kill_and_restart().unwrap();
        let after = wait_until_settled(&control_plane);
        for kind in KINDS {
            let running = |status: &Value| node(status)["types"][kind]["running"].clone();
            assert_eq!(running(&after), running(&before), "{kind}, {variant:?}");
        }
        assert_eq!(updates(&envoy), updates_before, "{variant:?}");
        let served = &node(&after)["cache"]["served"];
        assert!(served["from"].as_u64().unwrap() <= served["until"].as_u64().unwrap(), "{after}");
        assert!(told(&control_plane, "nodes").contains("via node cache 0.1.0; served from it from "));
        stage.site.replace("policies.yaml", "nosniff", "after-the-outage").unwrap();
        stage.wait_for_answers("after-the-outage");
        assert_no_vm_failure(&envoy);
    }
}

#[test]
fn serves_an_envoy_with_a_configuration_of_its_own() {
    for variant in VARIANTS {
        let stage = Stage::new();
        fs::remove_file(stage.site.path("gateway.yaml")).unwrap();
        let mut control_plane = ControlPlane::start(stage.site.directory()).unwrap();
        let cache = stage.cache(control_plane.xds(), &[]);
        let upstream = format!("port_value: {}", stage.upstream.address().port());
        let port = format!("port_value: {}", free_port().unwrap());
        let api = match variant {
            Variant::StateOfTheWorld => "api_type: GRPC",
            Variant::Incremental => "api_type: DELTA_GRPC",
        };
        let replace =
            [("port_value: 10001", upstream.as_str()), ("port_value: 10000", port.as_str()), ("api_type: GRPC", api)];
        let mut envoy = Envoy::start("overlay.yaml", cache.address(), &replace).unwrap();
        let listener = SocketAddr::from(([127, 0, 0, 1], port.rsplit(' ').next().unwrap().parse().unwrap()));
        let guards = || {
            let answer = |request: &Request| anyhow::Ok(Client::new(listener).send(request)?.status);
            wait::until_true("the guarded route", || Ok(answer(&users_with(KEY))? == 200)).unwrap();
            assert_eq!((answer(&users()).unwrap(), answer(&users_with("wrong")).unwrap()), (401, 401), "{variant:?}");
        };
        guards();
        wait_until_running(&control_plane, &["extensionConfig"]);
        control_plane.kill();
        envoy.kill_and_restart().unwrap();
        guards();
        assert_no_vm_failure(&envoy);
    }
}

#[test]
fn keeps_no_policy_that_an_envoy_refused() {
    for variant in VARIANTS {
        let stage = Stage::new();
        let control_plane = InProcess::start();
        control_plane.publish(&stage.site);
        let mut cache = stage.cache(control_plane.xds, &[]);
        let mut envoy = envoy_of(variant, cache.address());
        stage.wait_for_answers("nosniff");
        control_plane.force(&stage.site, b"\x08\x63", "no plan");
        wait::until_true("the refusal", || Ok(logged(&envoy.log(), "plan format 99 is not supported"))).unwrap();
        stage.wait_for_answers("nosniff");
        // After it, nothing else is sent of its type.
        stage.site.write("raw.yaml", &bad_cluster()).unwrap();
        control_plane.publish(&stage.site);
        let refusals = |envoy: &Envoy| envoy.stat("cluster_manager.cds.update_rejected").unwrap();
        wait::until_true("the refusal of a cluster", || Ok(refusals(&envoy) == Some(1))).unwrap();
        let refused = |status: &Value| node(status)["types"]["cluster"]["refused"].is_object();
        wait_for_status(control_plane.http, "the refusal", refused).unwrap();
        drop(control_plane);
        cache.restart().unwrap();
        envoy.kill_and_restart().unwrap();
        stage.wait_for_answers("nosniff");
        assert_eq!(refusals(&envoy), Some(0), "{variant:?}");
        assert!(!logged(&envoy.log(), "plan format 99"), "{variant:?}");
    }
}

#[test]
fn serves_nothing_that_is_too_old() {
    let stage = Stage::new();
    let mut control_plane = ControlPlane::start(stage.site.directory()).unwrap();
    let mut cache = stage.cache(control_plane.xds(), &["--max-age", "2s"]);
    let mut envoy = impatient_envoy(cache.address());
    stage.wait_for_answers("nosniff");
    wait_until_settled(&control_plane);
    control_plane.kill();
    // An Envoy that runs keeps what it has.
    wait_for_log(&cache, "last in contact");
    stage.wait_for_answers("nosniff");
    cache.restart().unwrap();
    envoy.kill_and_restart().unwrap();
    wait_for_log(&cache, "`--max-age` is 2 s");
    let log = cache.log().join("\n");
    assert!(log.contains(cache.file().unwrap().to_str().unwrap()), "{log}");
    let listeners = Client::new(envoy.admin()).get("/listeners").unwrap().body;
    assert_eq!(listeners, "", "it has no listener");
    control_plane.kill_and_restart().unwrap();
    stage.wait_for_answers("nosniff");
}

#[test]
fn a_running_envoy_loses_no_request_while_control_plane_and_cache_are_killed_in_turn() {
    for variant in VARIANTS {
        let stage = Stage::new();
        let mut control_plane = ControlPlane::start(stage.site.directory()).unwrap();
        let mut cache = stage.cache(control_plane.xds(), &[]);
        let envoy = envoy_of(variant, cache.address());
        stage.wait_for_answers("nosniff");
        wait_until_settled(&control_plane);
        cache.restart().unwrap();
        let load = Load::on(stage.site.listener(), 2);
        let connected = |envoy: &Envoy| envoy.stat("control_plane.connected_state").unwrap() == Some(1);
        let mut value = "nosniff".to_owned();
        for round in 1..=2 {
            let lines = cache.log().len();
            control_plane.kill();
            let served = || logged(&cache.log()[lines..], "served from what the node accepted last");
            wait::until_true("the Envoy to be served from the cache", || Ok(served())).unwrap();
            cache.kill_and_restart().unwrap();
            wait_for_log(&cache, "served from what the node accepted last");
            control_plane.kill_and_restart().unwrap();
            wait_until_settled(&control_plane);
            cache.kill();
            cache.kill_and_restart().unwrap();
            wait::until_true("the Envoy to be relayed", || Ok(connected(&envoy))).unwrap();
            let next = format!("round-{round}");
            stage.site.replace("policies.yaml", &value, &next).unwrap();
            value = next;
            stage.wait_for_answers(&value);
        }
        let (sent, unexpected) = load.stop();
        assert_eq!(unexpected, Vec::<String>::new(), "of {sent} requests, {variant:?}");
        assert!(sent > 100, "only {sent} requests were sent: there was no load");
        assert_no_vm_failure(&envoy);
    }
}

#[test]
fn serves_nothing_of_a_file_that_was_damaged_or_sealed_with_another_key() {
    let stage = Stage::new();
    let mut control_plane = ControlPlane::start(stage.site.directory()).unwrap();
    let mut cache = stage.cache(control_plane.xds(), &[]);
    let mut envoy = impatient_envoy(cache.address());
    stage.wait_for_answers("nosniff");
    wait_until_settled(&control_plane);
    control_plane.kill();
    cache.restart().unwrap();
    cache.kill();
    let kept = cache.file().unwrap();
    let good = fs::read(&kept).unwrap();
    let is_secret = |path: PathBuf| {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        if path.is_dir() { mode == 0o700 } else { mode == 0o600 }
    };
    assert!(is_secret(kept.clone()) && is_secret(kept.parent().unwrap().to_owned()));

    let mut check = |reason: &str| {
        cache.kill_and_restart().unwrap();
        envoy.kill_and_restart().unwrap();
        wait_for_log(&cache, reason);
        let refused = format!("what is kept of node `edge-1` is not served: {}", kept.display());
        wait_for_log(&cache, &refused);
        assert_eq!(Client::new(envoy.admin()).get("/listeners").unwrap().body, "", "{reason}");
    };
    for place in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[place] ^= 0x20;
        fs::write(&kept, bad).unwrap();
        check("it is damaged");
    }
    fs::write(&kept, &good[..good.len() / 3]).unwrap();
    check("it is damaged");
    fs::write(&kept, &good).unwrap();
    let key = kept.with_file_name("node-cache.key");
    let own = fs::read(&key).unwrap();
    fs::write(&key, [7; 32]).unwrap();
    check("sealed with another key");
    fs::write(&key, own).unwrap();
    cache.kill_and_restart().unwrap();
    stage.wait_for_answers("nosniff");
}

#[test]
fn serves_something_that_was_accepted_after_a_kill_at_any_moment() {
    let stage = Stage::new();
    let mut control_plane = ControlPlane::start(stage.site.directory()).unwrap();
    let mut cache = stage.cache(control_plane.xds(), &[]);
    let mut envoy = envoy_of(Variant::Incremental, cache.address());
    stage.wait_for_answers("nosniff");
    wait_until_settled(&control_plane);
    cache.restart().unwrap();
    let original = stage.site.read("policies.yaml").unwrap();
    let mut numbers = Numbers::new(0x0c4a_5e5e_ed07);
    let mut last = 0;
    for kill in 1..=4 {
        let directory = stage.site.directory().to_owned();
        let first = last;
        let number = numbers.below(4) + 1;
        let changes = original.clone();
        let changing = thread::spawn(move || {
            for change in 1..=number {
                let text = changes.replace("nosniff", &format!("change-{}", first + change));
                write_whole(&directory, "policies.yaml", &text).unwrap();
                thread::sleep(Duration::from_millis(60));
            }
        });
        thread::sleep(Duration::from_micros(numbers.below(400_000)));
        cache.kill();
        changing.join().unwrap();
        last += number;
        control_plane.kill();
        cache.kill_and_restart().unwrap();
        envoy.kill_and_restart().unwrap();
        let is_one = |answer: &str| {
            let change = answer.strip_prefix("change-").and_then(|number| number.parse::<u64>().ok());
            answer == "nosniff" || change.is_some_and(|change| change <= last)
        };
        wait::until_true("an answer", || Ok(stage.answer()?.is_some_and(|answer| is_one(&answer)))).unwrap();
        assert_eq!(Client::new(stage.site.listener()).send(&users()).unwrap().status, 401, "kill {kill}");
        control_plane.kill_and_restart().unwrap();
        stage.wait_for_answers(&format!("change-{last}"));
        wait_until_settled(&control_plane);
    }
}

#[test]
fn an_envoy_joins_by_a_unix_socket_with_the_bootstrap_that_is_printed() {
    let stage = Stage::new();
    let mut control_plane = ControlPlane::start(stage.site.directory()).unwrap();
    let socket = stage.directory.path().join("cache.sock");
    let address = format!("unix:{}", socket.display());
    let xds = control_plane.xds().to_string();
    let mut command = ControlPlane::command().unwrap();
    command.env("POSTERN_NODE_CACHE_LISTEN", &address).env("POSTERN_NODE_CACHE_XDS", &xds);
    command.env("POSTERN_NODE_CACHE_STATE", stage.directory.path().join("state")).arg("node-cache");
    let mut cache = postern_tests::process::Process::start("node cache", &mut command).unwrap();
    cache.wait_for_line("its address", |line| line.contains("listening").then_some(())).unwrap();
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let bootstrap = |options: &[&str]| {
        let mut command: Command = ControlPlane::command().unwrap();
        command.args(["bootstrap", "--id", "edge-1", "--service", "edge", "--admin", &admin.to_string()]).args(options);
        command.output().unwrap()
    };
    let printed = bootstrap(&["--node-cache", &address]);
    assert!(printed.status.success(), "{printed:?}");
    let mut envoy = Envoy::from_bootstrap(&String::from_utf8(printed.stdout).unwrap(), admin).unwrap();
    stage.wait_for_answers("nosniff");
    wait_until_settled(&control_plane);
    control_plane.kill();
    envoy.kill_and_restart().unwrap();
    stage.wait_for_answers("nosniff");
    let both = bootstrap(&["--node-cache", &address, "--xds", &xds]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[test]
fn refuses_to_start_on_wrong_input() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().to_str().unwrap();
    let check = |arguments: &[&str], code: i32, expect: &str| {
        let output = ControlPlane::command().unwrap().arg("node-cache").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expect), "{said}");
    };
    check(&[], 2, "--state <DIR>");
    check(&["--state", state, "--listen", "0.0.0.0:0"], 1, "0.0.0.0:0 is not a loopback address");
    check(&["--state", state, "--xds", "10.0.0.1:18000"], 1, "10.0.0.1:18000 is not a loopback address");
    check(&["--state", state, "--xds", "somewhere"], 1, "`somewhere` is not an address");
    check(&["--state", state, "--listen", "nowhere"], 2, "`nowhere` is not an address such as");
    check(&["--state", state, "--max-age", "soon"], 2, "`soon` is not a time such as");
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    check(&["--state", file.to_str().unwrap(), "--listen", "127.0.0.1:0"], 1, "file");
    check(&["--state", state, "--state-key", file.to_str().unwrap(), "--listen", "127.0.0.1:0"], 1, "mode 0600");
}
