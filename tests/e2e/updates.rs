//! Changes are in force at once, without a lost request, or are refused whole, with file, line and field.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use postern_tests::{Client, Request, wait};
use serde_json::Value;

use crate::world::{KEY, Variant, World, users, users_with};

/// Sends requests continuously on several connections, until stopped. Counts unexpected answers.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(usize, Vec<String>)>>,
}

impl Load {
    pub fn start(world: &World, connections: usize) -> Self {
        Self::on(world.site.listener(), connections)
    }

    /// Starts the load on any gateway of the quickstart.
    pub fn on(listener: SocketAddr, connections: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..connections)
            .map(|_| {
                let (stop, mut client) = (Arc::clone(&stop), Client::new(listener));
                thread::spawn(move || send_until(&stop, &mut client))
            })
            .collect();
        Self { stop, threads }
    }

    /// How many requests were sent, and every answer that was not expected.
    pub fn stop(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let results = self.threads.into_iter().map(|thread| thread.join().unwrap());
        results.fold((0, Vec::new()), |(count, mut all), (sent, unexpected)| {
            all.extend(unexpected);
            (count + sent, all)
        })
    }
}

fn send_until(stop: &AtomicBool, client: &mut Client) -> (usize, Vec<String>) {
    let cases: [(Request, u16); 3] =
        [(users_with(KEY), 200), (users_with("wrong"), 401), (Request::get("/welcome"), 200)];
    let mut sent = 0;
    let mut unexpected = Vec::new();
    // Bounded, whatever becomes of the test.
    for (request, expect) in cases.iter().cycle().take(2_000_000) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        sent += 1;
        match client.send(request) {
            Ok(answer) if answer.status == *expect => {}
            Ok(answer) => unexpected.push(format!("{} instead of {expect}: {}", answer.status, answer.body)),
            Err(error) => unexpected.push(format!("no answer: {error:#}")),
        }
    }
    (sent, unexpected)
}

#[test]
fn puts_25_changes_in_force_under_load_without_a_wrong_answer() {
    let world = World::start();
    let load = Load::start(&world, 4);
    let mut took = Vec::new();
    let mut before = "x-guarded-by: postern".to_owned();
    for change in 1..=25 {
        let after = format!("x-guarded-by: change-{change}");
        world.site.replace("policies.yaml", &before, &after).unwrap();
        let mut client = world.client();
        let in_force = || Ok(client.send(&users_with(KEY))?.echoed("x-guarded-by") == [format!("change-{change}")]);
        took.push(wait::until_true("the change to be in force", in_force).unwrap());
        before = after;
    }
    let (sent, unexpected) = load.stop();
    took.sort();
    println!(
        "25 changes under load: {sent} requests, in force after {:?} (median), {:?} (longest)",
        took[12], took[24]
    );
    assert_eq!(unexpected, Vec::<String>::new(), "of {sent} requests");
    assert!(sent > 100, "only {sent} requests were sent: there was no load");
    world.assert_no_vm_failure();
}

#[test]
fn refuses_a_broken_file_with_file_line_and_field_and_goes_on_with_the_old() {
    let world = World::start();
    let good = world.site.read("policies.yaml").unwrap();
    let revision = world.control_plane.status().unwrap()["revision"].clone();
    world.site.replace("policies.yaml", "params: { header: x-api-key }", "params: { heder: x-api-key }").unwrap();
    let status =
        world.control_plane.wait_for_status("the refusal", |status| status["refusedChange"].is_array()).unwrap();
    let errors: Vec<_> =
        status["refusedChange"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let line = good.lines().position(|line| line.contains("header: x-api-key")).unwrap() + 1;
    let place = format!("policies.yaml:{line}:");
    let field = "RoutePolicy `users-api`: spec.request[0].params";
    assert!(
        errors.iter().any(|error| error.contains(&place) && error.contains(field) && error.contains("`heder`")),
        "{errors:?}"
    );
    assert_eq!(status["revision"], revision, "a refused change must not change the revision in force");
    assert_eq!(world.send(&users()).status, 401);
    assert_eq!(world.send(&users_with(KEY)).status, 200);
    // Mended, it is in force again, and the refusal is gone.
    world.site.write("policies.yaml", &good.replace("nosniff", "mended")).unwrap();
    wait::until_true("the mended policy", || {
        Ok(world.send(&users_with(KEY)).header("x-content-type-options") == Some("mended"))
    })
    .unwrap();
    assert!(world.control_plane.status().unwrap().get("refusedChange").is_none());
}

#[test]
fn refuses_an_emptied_file_and_an_emptied_directory() {
    let world = World::start();
    for file in ["policies.yaml", "consumers.yaml", "gateway.yaml"] {
        std::fs::write(world.site.path(file), "").unwrap();
        let refused = |status: &serde_json::Value| status["refusedChange"].to_string().contains("the file is empty");
        world.control_plane.wait_for_status("the refusal", refused).unwrap();
    }
    for file in ["policies.yaml", "consumers.yaml", "gateway.yaml"] {
        std::fs::remove_file(world.site.path(file)).unwrap();
    }
    let refused = |status: &serde_json::Value| status["refusedChange"].to_string().contains("no `.yaml`");
    world.control_plane.wait_for_status("the refusal", refused).unwrap();
    assert_eq!(world.send(&users()).status, 401);
    assert_eq!(world.send(&users_with(KEY)).status, 200);
}

#[test]
fn follows_a_service_to_another_endpoint() {
    let world = World::start();
    let other = postern_tests::Upstream::start(0).unwrap();
    let port = |upstream: &postern_tests::Upstream| format!("port: {}\n", upstream.address().port());
    world.site.replace("gateway.yaml", &port(&world.upstream), &port(&other)).unwrap();
    let host = |answer: &postern_tests::Received| answer.echoed("host");
    assert_eq!(host(&world.send(&users_with(KEY))), ["localhost"]);
    wait::until_true("the endpoint's change", || {
        let name = format!("127.0.0.1:{}", other.address().port());
        let clusters = Client::new(world.envoy.admin()).get("/clusters")?.body;
        Ok(clusters.contains(&format!("backend::{name}::")))
    })
    .unwrap();
    assert_eq!(world.envoy.stat("cluster_manager.warming_clusters").unwrap(), Some(0));
    assert_eq!(world.send(&users_with(KEY)).status, 200);
}

/// How often Envoy has applied another configuration of the filter, and of clusters.
fn updates(world: &World) -> (u64, u64) {
    let sum = |stats: Vec<(String, u64)>, end: &str| {
        stats.iter().filter(|(name, _)| name.ends_with(end)).map(|(_, value)| value).sum()
    };
    let filters = sum(world.envoy.stats("extension_config_discovery").unwrap(), ".update_success");
    (filters, sum(world.envoy.stats("cluster_manager").unwrap(), ".cluster_modified"))
}

fn change_of_a_cluster_sends_no_filter_configuration(variant: Variant) {
    let world = World::start_with(variant);
    let number = |status: &Value| status["rollout"]["candidate"].as_u64();
    let completed = |status: &Value| status["rollout"]["state"] == "completed";
    let status = world.control_plane.wait_for_status("the first revision everywhere", completed).unwrap();
    let (first, before) = (number(&status), updates(&world));
    assert!(before.0 > 0, "the filter's configuration was never discovered");
    // Another way to connect is another cluster, and the same plan.
    let spec = "apiVersion: postern/v1\nkind: Timeout\nmetadata: { name: t }\nspec:\n  targetRef: { kind: Mesh }\n  \
                to: [{ targetRef: { kind: Mesh }, connectTimeout: 7s }]\n";
    world.site.write("timeout.yaml", spec).unwrap();
    let next = |status: &Value| number(status) > first && completed(status);
    world.control_plane.wait_for_status("the change everywhere", next).unwrap();
    let after = updates(&world);
    assert!(after.1 > before.1, "no cluster was changed");
    assert_eq!(after.0, before.0, "the filter's configuration came again");
    // A change of a chain does come.
    world.site.replace("policies.yaml", "x-guarded-by: postern", "x-guarded-by: another").unwrap();
    wait::until_true("the new chain", || Ok(updates(&world).0 > before.0)).unwrap();
}

#[test]
fn sends_no_filter_configuration_for_a_change_of_a_cluster() {
    change_of_a_cluster_sends_no_filter_configuration(Variant::StateOfTheWorld);
}

#[test]
fn sends_no_filter_configuration_for_a_change_of_a_cluster_incrementally() {
    change_of_a_cluster_sends_no_filter_configuration(Variant::Incremental);
}
