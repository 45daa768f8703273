//! The user stories of the policy lifecycle, on several real Envoys: changes without a restart, status by node, the
//! previous version while the latest one fails, and the way back.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use postern::{
    control_plane::ControlPlane as InThisProcess,
    serve::{Sockets, serve},
};
use postern_compile::{
    gate::Gate,
    snapshot::FilterCode,
    wasm::{Filter, Limits},
};
use postern_model::directory;
use postern_release::{
    releases::{KEPT, Proposal, Releases},
    rollout::{Pick, Step, Strategy},
    store::{Memory, Parent},
};
use postern_tests::{
    Client, ControlPlane, Envoy, Site,
    control_plane::{from_environment, wait_for_status},
};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    fleet::{Stage, completed, envoys, rollout_state, versions},
    world::{KEY, assert_no_vm_failure, users, users_with},
};

/// The control plane in this process, so that a test can bypass the gate.
pub struct InProcess {
    pub plane: Arc<InThisProcess>,
    pub xds: SocketAddr,
    pub http: SocketAddr,
    _runtime: Runtime,
}

impl InProcess {
    pub fn start(strategy: Strategy) -> Self {
        let runtime = Runtime::new().unwrap();
        let code = FilterCode::new(fs::read(from_environment("POSTERN_FILTER").unwrap()).unwrap(), None);
        let gate = Gate::of_filter(Filter::compile(code.bytes()).unwrap(), Limits::default());
        let releases = Releases::new(Arc::new(Memory::default()), strategy, KEPT);
        let plane = Arc::new(InThisProcess::with_releases(code.gated(gate), releases));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = runtime.block_on(Sockets::bind(any, any)).unwrap();
        let (xds, http) = (sockets.xds_address().unwrap(), sockets.http_address().unwrap());
        runtime.spawn(serve(Arc::clone(&plane), sockets));
        let looked_after = Arc::clone(&plane);
        runtime.spawn(async move { looked_after.follow_rollouts().await });
        Self { plane, xds, http, _runtime: runtime }
    }

    fn proposal(site: &Site) -> Proposal {
        let files = directory::read(site.directory()).unwrap();
        Proposal {
            files,
            author: "test".to_owned(),
            message: String::new(),
            parent: Parent::Latest,
            again: false,
            allow_unguarded: false,
            ..Proposal::default()
        }
    }

    pub fn apply(&self, site: &Site) {
        self.plane.commands().apply(Self::proposal(site)).wait().unwrap();
    }

    /// A plan of a format that no filter knows.
    pub fn force_a_bad_plan(&self, site: &Site) {
        let plan = b"\x08\x63".to_vec();
        self.plane.commands().apply_past_the_gate(Self::proposal(site), plan).wait().unwrap();
    }
}

/// Sends requests continuously until it is dropped, and keeps unexpected answers.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<(usize, Vec<String>)>>,
}

impl Load {
    pub fn start(listener: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let one = |_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let (mut sent, mut unexpected) = (0, Vec::new());
                let mut client = Client::new(listener);
                // Bounded, whatever becomes of the test.
                while !stop.load(Ordering::Relaxed) && sent < 1_000_000 {
                    // A new connection now and then, so that all Envoys get some.
                    if sent % 50 == 0 {
                        client = Client::new(listener);
                    }
                    sent += 1;
                    match client.send(&users_with(KEY)) {
                        Ok(answer) if answer.status == 200 => {}
                        Ok(answer) => unexpected.push(format!("{}: {}", answer.status, answer.body)),
                        Err(error) => unexpected.push(format!("no answer: {error:#}")),
                    }
                }
                (sent, unexpected)
            })
        };
        Self { threads: (0..2).map(one).collect(), stop }
    }

    pub fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let results: Vec<_> = self.threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for (_, unexpected) in &results {
            assert_eq!(*unexpected, Vec::<String>::new());
        }
        results.iter().map(|(sent, _)| sent).sum()
    }
}

fn rejected(envoy: &Envoy) -> u64 {
    let stats = envoy.stats("extension_config_discovery").unwrap();
    stats.iter().find(|(name, _)| name.ends_with(".update_rejected")).map_or(0, |(_, count)| *count)
}

#[test]
fn remains_running_with_a_previous_version_of_the_policy_in_case_of_issues_with_the_latest() {
    let stage = Stage::new();
    let control_plane = InProcess::start(Strategy::AllAtOnce);
    control_plane.apply(&stage.site);
    let envoys = envoys(control_plane.xds, 2);
    let good = wait_for_status(control_plane.http, "both nodes", completed(2)).unwrap();
    let load = Load::start(stage.site.listener());

    control_plane.force_a_bad_plan(&stage.site);
    let back = |status: &Value| rollout_state(status) == "rolledBack";
    let status = wait_for_status(control_plane.http, "the rollback", back).unwrap();
    assert_eq!((&status["rollout"]["candidate"], &status["rollout"]["lastGood"]), (&2.into(), &1.into()));
    let reason = status["rollout"]["reason"].as_str().unwrap();
    assert!(reason.contains("plan format 99 is not supported, this engine loads formats 3 to 4"), "{reason}");
    let restored = |status: &Value| versions(status) == versions(&good);
    wait_for_status(control_plane.http, "the last good version on both", restored).unwrap();
    assert_eq!(Client::new(stage.site.listener()).send(&users()).unwrap().status, 401);

    // The next good revision goes through, and is the last good one from then on.
    stage.change("nosniff", "after-the-rollback");
    control_plane.apply(&stage.site);
    let status = wait_for_status(control_plane.http, "the next revision", completed(2)).unwrap();
    assert_eq!(status["rollout"]["lastGood"], 3);
    assert!(stage.answers("after-the-rollback"));
    let sent = load.stop();
    assert!(sent > 0);
    for envoy in &envoys {
        assert_no_vm_failure(envoy);
    }
}

#[test]
fn a_nack_in_the_first_step_of_a_canary_on_four_envoys_leaves_the_other_three_untouched() {
    let stage = Stage::new();
    let step = Step { nodes: Pick::Share(25), pause: std::time::Duration::from_secs(3600) };
    let control_plane = InProcess::start(Strategy::Canary(vec![step]));
    control_plane.apply(&stage.site);
    let envoys = envoys(control_plane.xds, 4);
    wait_for_status(control_plane.http, "all four nodes", completed(4)).unwrap();
    control_plane.force_a_bad_plan(&stage.site);
    let back = |status: &Value| rollout_state(status) == "rolledBack";
    wait_for_status(control_plane.http, "the rollback", back).unwrap();
    let mut counts: Vec<_> = envoys.iter().map(rejected).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 0, 1]);
    assert_eq!(Client::new(stage.site.listener()).send(&users_with(KEY)).unwrap().status, 200);
}

#[test]
fn takes_a_canary_on_four_envoys_step_by_step() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let options = ["--canary", "25%:1h"];
    let mut control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &options).unwrap();
    let _envoys = envoys(control_plane.xds(), 4);
    let before = control_plane.wait_for_status("all four nodes", completed(4)).unwrap();
    stage.change("nosniff", "changed");
    let differ = |status: &Value, expect: usize| {
        let (now, before) = (versions(status), versions(&before));
        now.len() == 4 && now.iter().zip(&before).filter(|(now, before)| now != before).count() == expect
    };
    let status = control_plane.wait_for_status("the first step", |status| differ(status, 1)).unwrap();
    assert_eq!((&status["rollout"]["step"], &status["rollout"]["steps"]), (&1.into(), &2.into()));
    assert_eq!(rollout_state(&status), "progressing");
    // A restart changes nothing: the same node stays the only one.
    let first = versions(&status);
    control_plane.kill_and_restart().unwrap();
    let same = |status: &Value| versions(status) == first;
    let status = control_plane.wait_for_status("the same step after a restart", same).unwrap();
    assert_eq!((rollout_state(&status), &status["rollout"]["lastGood"]), ("progressing", &1.into()));
}

#[test]
fn promotes_a_canary_when_its_nodes_have_acknowledged() {
    let stage = Stage::new();
    let state = tempfile::tempdir().unwrap();
    let options = ["--canary", "50%:0s"];
    let control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &options).unwrap();
    let _envoys = envoys(control_plane.xds(), 2);
    control_plane.wait_for_status("both nodes", completed(2)).unwrap();
    stage.change("nosniff", "changed");
    let done = |status: &Value| status["rollout"]["lastGood"] == 2 && completed(2)(status);
    control_plane.wait_for_status("the rollout", done).unwrap();
    assert!(stage.answers("changed"));
    let log = control_plane.log();
    for step in ["number=2", "step=1 steps=2", "step=2 steps=2"] {
        assert!(log.iter().any(|line| line.contains(step)), "{step} is not in the log");
    }
}
