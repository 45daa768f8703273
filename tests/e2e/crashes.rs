//! A control plane that is killed while it accepts changes. After every restart, all that it acknowledged is there,
//! nothing is partly there, and Envoys run the latest revision.

use std::{
    env, fs,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use postern_model::{File, directory};
use postern_release::store::{Database, Store, split};
use postern_tests::{Client, ControlPlane, Request, crash::Numbers, wait};
use serde_json::{Value, json};

use crate::{
    fleet::{Stage, completed, envoys},
    updates::Load,
    world::assert_no_vm_failure,
};

/// How often it is killed, unless `POSTERN_KILLS` says otherwise.
const KILLS: usize = 12;
const SEED: u64 = 0x0c4a_5e5e_ed01;
/// The part of the resources that tells revisions apart: a header's value.
const MARK: &str = "nosniff";

/// A revision that was acknowledged.
#[derive(Debug, PartialEq, Eq)]
struct Acknowledged {
    number: u64,
    digest: String,
    mark: String,
}

/// The resources, with a mark of their own.
struct Resources(Vec<File>);

impl Resources {
    fn marked(&self, mark: &str) -> Vec<File> {
        let marked = |file: &File| {
            let text = String::from_utf8(file.bytes.clone()).unwrap().replace(MARK, mark);
            File { name: file.name.clone(), bytes: text.into_bytes() }
        };
        self.0.iter().map(marked).collect()
    }

    fn bundle(&self, mark: &str) -> Vec<u8> {
        let sent = |file: &File| json!({ "name": file.name, "text": String::from_utf8_lossy(&file.bytes) });
        let files: Vec<_> = self.marked(mark).iter().map(sent).collect();
        json!({ "files": files, "message": mark, "author": "crash test" }).to_string().into_bytes()
    }

    /// Applies one change after the other until nobody answers. Returns what was acknowledged; the next change was in
    /// progress.
    fn apply_until_killed(&self, http: SocketAddr, first: usize, count: &AtomicUsize) -> Vec<Acknowledged> {
        let mut acknowledged = Vec::new();
        // Bounded, whatever becomes of the test.
        for number in first..first + 1_000 {
            let mark = mark(number);
            let request = Request::new("POST", "/api/v1/apply").header("content-type", "application/json");
            let Ok(answer) = Client::new(http).send(&request.body(self.bundle(&mark))) else { break };
            assert_eq!(answer.status, 200, "{}", answer.body);
            let outcome: Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(outcome["result"], "created", "{outcome}");
            let digest = outcome["revision"]["digest"].as_str().unwrap().to_owned();
            acknowledged.push(Acknowledged { number: outcome["revision"]["number"].as_u64().unwrap(), digest, mark });
            count.fetch_add(1, Ordering::SeqCst);
        }
        acknowledged
    }
}

fn mark(number: usize) -> String {
    format!("change-{number}")
}

fn kills() -> usize {
    env::var("POSTERN_KILLS").map_or(KILLS, |kills| kills.parse().expect("POSTERN_KILLS is a number"))
}

/// Checks the contents of the store, in a copy: the control plane itself must repair what a kill left.
fn check_store(state: &Path, resources: &Resources) {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(state).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let store = Database::open(copy.path()).unwrap();
    // The first one is the directory's.
    for revision in store.revisions().unwrap().iter().filter(|revision| revision.number > 1) {
        let documents = store.documents(revision.number).unwrap();
        let expect = split(&resources.marked(&revision.message));
        assert_eq!(documents, Some(expect), "revision {} is only half there", revision.number);
    }
}

/// Checks that every acknowledged revision is there unchanged, and at most one more: the one that was in progress.
fn check_revisions(http: SocketAddr, acknowledged: &[Acknowledged], under_way: &str) -> Acknowledged {
    let answer = Client::new(http).get("/api/v1/revisions").unwrap();
    let revisions: Vec<Value> = serde_json::from_str(&answer.body).unwrap();
    let text = |revision: &Value, name: &str| revision[name].as_str().unwrap().to_owned();
    let found = |revision: &Value| Acknowledged {
        number: revision["number"].as_u64().unwrap(),
        digest: text(revision, "digest"),
        mark: text(revision, "message"),
    };
    // The latest comes first.
    let mut found: Vec<_> = revisions.iter().rev().map(found).collect();
    let numbers: Vec<_> = found.iter().map(|revision| revision.number).collect();
    assert_eq!(numbers, (1..=found.len() as u64).collect::<Vec<_>>(), "one after the other");
    for expect in acknowledged {
        assert_eq!(found.get(usize::try_from(expect.number).unwrap() - 1), Some(expect));
    }
    let latest = found.pop().unwrap();
    let last = acknowledged.last().map_or(1, |last| last.number);
    assert!(latest.number == last || latest.mark == under_way, "{latest:?} came after {last}");
    latest
}

#[test]
fn everything_acknowledged_survives_a_kill_at_any_moment_of_an_apply_and_envoys_converge() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let resources = Resources(directory::read(stage.site.directory()).unwrap());
    let mut control_plane =
        ControlPlane::start_with_state(stage.site.directory(), state.path(), &["--keep", "10000"]).unwrap();
    let envoys = envoys(control_plane.xds(), 2);
    control_plane.wait_for_status("both nodes", completed(2)).unwrap();
    wait::until_true("the gateway to serve", || Ok(stage.answers(MARK))).unwrap();
    // From here on the directory has no say: what is wrong in it changes nothing.
    stage.change("policy: apiKeyAuth", "policy: apiKeyAuht");
    let refused = |status: &Value| status["refusedChange"].as_array().is_some_and(|lines| !lines.is_empty());
    control_plane.wait_for_status("the directory to be refused", refused).unwrap();

    let load = Load::on(stage.site.listener(), 2);
    let (kills, mut numbers, begin) = (kills(), Numbers::new(SEED), Instant::now());
    println!("{kills} kills, seed {SEED:#x}");
    // All that must be there: what was acknowledged, and what was under way and found to be there.
    let (mut committed, mut sent, mut found_under_way) = (Vec::<Acknowledged>::new(), 0, 0);
    for kill in 1..=kills {
        let (count, http) = (AtomicUsize::new(0), control_plane.http());
        let acknowledged = thread::scope(|scope| {
            let applying = scope.spawn(|| resources.apply_until_killed(http, sent, &count));
            let wanted = usize::try_from(numbers.below(3)).unwrap();
            let reached = || Ok(count.load(Ordering::SeqCst) >= wanted || applying.is_finished());
            wait::until_true("changes to be acknowledged", reached).unwrap();
            // Somewhere in the next change: it is read, admitted, stored, acknowledged or on its way to nodes.
            thread::sleep(Duration::from_micros(numbers.below(150_000)));
            control_plane.kill();
            applying.join().unwrap()
        });
        let under_way = mark(sent + acknowledged.len());
        sent += acknowledged.len() + 1;
        check_store(state.path(), &resources);
        control_plane.kill_and_restart().unwrap();
        committed.extend(acknowledged);
        let latest = check_revisions(http, &committed, &under_way);
        if latest.mark == under_way {
            found_under_way += 1;
            committed.push(latest);
        }
        let (number, mark) = committed.last().map_or((1, MARK), |last| (last.number, last.mark.as_str()));
        let converged = |status: &Value| {
            let nodes = status["nodes"].as_array().unwrap();
            let runs = |node: &Value| node["connected"] == true && node["revision"] == status["revision"];
            completed(2)(status) && status["rollout"]["candidate"] == number && nodes.iter().all(runs)
        };
        control_plane.wait_for_status(&format!("both nodes to run {mark} after kill {kill}"), converged).unwrap();
        assert!(stage.answers(mark), "{mark} is acknowledged by both, so that it is what decides");
    }
    let (requests, unexpected) = load.stop();
    println!(
        "{} revisions, {found_under_way} of them not acknowledged, {requests} requests, {:?}",
        committed.len(),
        begin.elapsed()
    );
    assert_eq!(unexpected, Vec::<String>::new(), "of {requests} requests");
    assert!(requests > 50, "only {requests} requests were sent: there was no load");
    envoys.iter().for_each(assert_no_vm_failure);
}
