//! The keys of tokens change under load: a real key server rotates, overlaps and removes keys, and is down for a
//! minute. At each time each token has an expected status, and every answer must have it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use postern_tests::{
    Client, Request,
    key_server::{KeyServer, Mood},
    wait,
};
use serde_json::{Value, json};

use crate::world::{KEY, World, users_with};

/// How long the key server is down.
const OUTAGE: Duration = Duration::from_secs(60);
const NAMES: [&str; 4] = ["first", "second", "third", "forged"];

fn fixture(name: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("fixtures/key_rotation.json")).unwrap();
    all[name].clone()
}

fn tokens(name: &str) -> Vec<String> {
    fixture(name)["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap().to_owned()).collect()
}

fn publishing(names: &[&str]) -> Mood {
    let keys: Vec<_> = names.iter().map(|name| fixture(name)["jwk"].clone()).collect();
    Mood::Serving(json!({ "keys": keys }).to_string())
}

fn welcome(token: &str) -> Request {
    Request::get("/welcome").header("authorization", format!("Bearer {token}"))
}

/// The expected statuses of each token. There are several while a change is in progress.
#[derive(Clone)]
struct Expectations(Arc<Mutex<[Vec<u16>; 4]>>);

impl Expectations {
    fn set(&self, name: &str, statuses: &[u16]) {
        self.0.lock().unwrap()[index(name)] = statuses.to_vec();
    }

    fn get(&self, index: usize) -> Vec<u16> {
        self.0.lock().unwrap()[index].clone()
    }
}

fn index(name: &str) -> usize {
    NAMES.iter().position(|candidate| *candidate == name).unwrap()
}

/// Requests with every token from several connections, until stopped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(usize, Vec<String>)>>,
}

impl Load {
    fn start(world: &World, expectations: &Expectations) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = || {
            let (stop, mut client, expectations) = (Arc::clone(&stop), world.client(), expectations.clone());
            thread::spawn(move || send_until(&stop, &mut client, &expectations))
        };
        let threads = (0..3).map(|_| start()).collect();
        Self { stop, threads }
    }

    fn stop(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let results = self.threads.into_iter().map(|thread| thread.join().unwrap());
        results.fold((0, Vec::new()), |(count, mut all), (sent, wrong)| {
            all.extend(wrong);
            (count + sent, all)
        })
    }
}

fn send_until(stop: &AtomicBool, client: &mut Client, expectations: &Expectations) -> (usize, Vec<String>) {
    let start = Instant::now();
    let tokens = NAMES.map(tokens);
    let (mut sent, mut wrong) = (0, Vec::new());
    // Bounded, whatever becomes of the test.
    while !stop.load(Ordering::Relaxed) && sent < 2_000_000 {
        let (name, token) = (sent % NAMES.len(), sent / NAMES.len());
        sent += 1;
        let before = expectations.get(name);
        let outcome = client.send(&welcome(&tokens[name][token % tokens[name].len()]));
        // What became right or wrong while the request was under way is both.
        let right = [before, expectations.get(name)].concat();
        match outcome {
            Ok(answer) if right.contains(&answer.status) => {}
            Ok(answer) => wrong.push(format!(
                "{:?}: {} for `{}` instead of {right:?}: {}",
                start.elapsed(),
                answer.status,
                NAMES[name],
                answer.body
            )),
            Err(error) => wrong.push(format!("{:?}: no answer for `{}`: {error:#}", start.elapsed(), NAMES[name])),
        }
    }
    (sent, wrong)
}

/// Waits until every worker answers a token with this status. Each connection belongs to one worker, and many in a row
/// reach all of them.
fn wait_until_in_force(world: &World, name: &str, status: u16) {
    let token = &tokens(name)[0];
    let mut row = 0;
    wait::until_true(&format!("{status} for `{name}`"), || {
        row = if world.client().send(&welcome(token))?.status == status { row + 1 } else { 0 };
        Ok(row >= 60)
    })
    .unwrap();
}

fn resources(address: std::net::SocketAddr) -> String {
    format!(
        "apiVersion: postern/v1\nkind: Issuer\nmetadata: {{ name: accounts }}\nspec:\n  issuer: https://issuer.test\n  \
         jwksUri: http://{address}/keys\n  refresh: 1s\n---\n\
         apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: tokens }}\nspec:\n  \
         targetRef: {{ kind: HTTPRoute, name: welcome }}\n  request:\n    - policy: jwtValidation\n      \
         params: {{ issuers: [accounts] }}\n"
    )
}

#[test]
fn keys_rotate_overlap_go_and_stay_through_an_outage_without_a_wrong_answer() {
    let world = World::start();
    let server = KeyServer::start(Mood::Failing).unwrap();
    world.site.write("tokens.yaml", &resources(server.address())).unwrap();
    // Without keys nothing can be said about a token, and nothing else is held up.
    wait_until_in_force(&world, "first", 503);
    assert_eq!(world.send(&users_with(KEY)).status, 200);

    server.set(publishing(&["first"]));
    wait_until_in_force(&world, "first", 200);
    let expectations = Expectations(Arc::new(Mutex::new([vec![200], vec![401], vec![401], vec![401]])));
    let load = Load::start(&world, &expectations);

    // Rotate: the new key is published beside the old one, and tokens of both are good.
    expectations.set("second", &[200, 401]);
    server.set(publishing(&["first", "second"]));
    wait_until_in_force(&world, "second", 200);
    expectations.set("second", &[200]);
    // Both are good for a while.
    let asked = server.asked();
    wait::until_true("two more fetches", || Ok(server.asked() >= asked + 2)).unwrap();

    // Remove: tokens of the old key are refused, those that were found good before among them.
    expectations.set("first", &[200, 401]);
    server.set(publishing(&["second"]));
    wait_until_in_force(&world, "first", 401);
    expectations.set("first", &[401]);

    outage(&world, &server);

    // Back again, with another key.
    expectations.set("third", &[200, 401]);
    server.set(publishing(&["second", "third"]));
    wait_until_in_force(&world, "third", 200);
    expectations.set("third", &[200]);
    let status = world.control_plane.status().unwrap();
    assert_eq!(status["keySets"][0]["keys"], 2, "{status}");
    assert!(status["keySets"][0]["lastError"].is_null(), "{status}");

    let (sent, wrong) = load.stop();
    println!("keys changed 4 times, one outage of {OUTAGE:?}: {sent} requests, {} wrong answers", wrong.len());
    assert!(
        wrong.is_empty(),
        "{} of {sent}:\n{}",
        wrong.len(),
        wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n")
    );
    assert!(sent > 1_000, "only {sent} requests were sent: there was no load");
    world.assert_no_vm_failure();
}

#[test]
fn a_restart_while_the_issuer_is_down_refuses_no_token() {
    let mut world = World::start_with_state();
    let server = KeyServer::start(publishing(&["first"])).unwrap();
    world.site.write("tokens.yaml", &resources(server.address())).unwrap();
    wait_until_in_force(&world, "first", 200);
    let expectations = Expectations(Arc::new(Mutex::new([vec![200], vec![401], vec![401], vec![401]])));
    let load = Load::start(&world, &expectations);

    // It is killed, not asked to end, so that nothing is stored at the last moment.
    for mood in [Mood::Silent, Mood::Closing, Mood::Failing] {
        world.control_plane.kill();
        server.set(mood);
        let asked = server.asked();
        world.control_plane.kill_and_restart().unwrap();
        wait::until_true("a fetch after the restart", || Ok(server.asked() > asked)).unwrap();
        let sets = &world.control_plane.status().unwrap()["keySets"][0];
        assert_eq!(sets["keys"], 1, "{sets}");
        assert!(["restored", "stale"].contains(&sets["state"].as_str().unwrap()), "{sets}");
    }
    let metrics = Client::new(world.control_plane.http()).get("/metrics").unwrap().body;
    let uri = format!("http://{}/keys", server.address());
    assert!(metrics.contains(&format!("postern_key_set_keys{{uri=\"{uri}\"}} 1")), "{metrics}");
    assert!(metrics.contains(&format!("postern_key_set_state{{uri=\"{uri}\",state=\"fresh\"}} 0")), "{metrics}");

    // The issuer is back with another key beside the first.
    expectations.set("second", &[200, 401]);
    server.set(publishing(&["first", "second"]));
    wait_until_in_force(&world, "second", 200);
    let (sent, wrong) = load.stop();
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    assert!(sent > 100, "only {sent} requests were sent: there was no load");

    // An Envoy that joins after a restart gets both keys with its first plan.
    server.set(Mood::Failing);
    world.control_plane.kill_and_restart().unwrap();
    world.envoy.kill_and_restart().unwrap();
    wait_until_in_force(&world, "first", 200);
    wait_until_in_force(&world, "second", 200);
    world.assert_no_vm_failure();
}

/// A minute in which the key server fails in one way after the other, while the configuration changes once.
fn outage(world: &World, server: &KeyServer) {
    let moods = [Mood::Closing, Mood::Failing, Mood::Silent, Mood::Confused];
    let (start, asked) = (Instant::now(), server.asked());
    for (turn, mood) in (0_u32..).zip(moods) {
        server.set(mood);
        if turn == 1 {
            world.site.replace("policies.yaml", "x-guarded-by: postern", "x-guarded-by: meanwhile").unwrap();
        }
        // The time itself is what is tested: a minute without keys.
        let end = OUTAGE * (turn + 1) / 4;
        thread::sleep(end.saturating_sub(start.elapsed()));
        let status = world.control_plane.status().unwrap();
        assert!(status["keySets"][0]["lastError"]["message"].is_string(), "{status}");
        assert_eq!(status["keySets"][0]["keys"], 1, "{status}");
    }
    assert!(start.elapsed() >= OUTAGE);
    let fetches = server.asked() - asked;
    assert!((10..=120).contains(&fetches), "{fetches} fetches in an outage of {OUTAGE:?}");
    assert_eq!(world.send(&users_with(KEY)).echoed("x-guarded-by"), ["meanwhile"]);
}
