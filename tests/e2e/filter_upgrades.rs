//! Another filter spreads as a revision and goes back as one, and a fleet is upgraded node by node, in either order. Two
//! Envoys under load, two real builds of the filter: the current one, and one that loads plans up to the former format.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use postern_base::digest::Digest;
use postern_tests::{Client, ControlPlane, Envoy, control_plane::from_environment, wait};
use serde_json::Value;

use crate::{
    fleet::{Stage, envoys, rollout_state},
    updates::Load,
    world::assert_no_vm_failure,
};

fn previous() -> PathBuf {
    from_environment("POSTERN_PREVIOUS_FILTER").unwrap()
}

fn current() -> PathBuf {
    from_environment("POSTERN_FILTER").unwrap()
}

/// Compiles both filters into the cache, so that no control plane has to while the load takes all processors.
fn compile_both(site: &Path) {
    for filter in [previous(), current()] {
        let mut command = ControlPlane::command().unwrap();
        let output = command.arg("validate").arg(site).arg("--filter").arg(filter).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn digest_of(file: &Path) -> String {
    Digest::of(&fs::read(file).unwrap()).to_string()
}

/// A digest as it is shown.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap()
}

/// The digest of the filter that an Envoy runs, which was sent to it.
fn filter_of(envoy: &Envoy) -> Option<String> {
    let answer = Client::new(envoy.admin()).get("/config_dump?resource=ecds_filters").ok()?;
    let dump: Value = serde_json::from_str(&answer.body).ok()?;
    let configs = dump["configs"].as_array()?;
    let code = configs.iter().find_map(|config| {
        let vm = &config["ecds_filter"]["typed_config"]["config"]["vm_config"];
        vm["code"]["local"]["inline_bytes"].as_str()
    });
    Some(Digest::of(&STANDARD.decode(code?).ok()?).to_string())
}

fn revisions(control_plane: &ControlPlane) -> Vec<Value> {
    let answer = Client::new(control_plane.http()).get("/api/v1/revisions").unwrap();
    serde_json::from_str(&answer.body).unwrap()
}

fn run(control_plane: &ControlPlane, arguments: &[&str]) -> (bool, String) {
    let mut command = ControlPlane::command().unwrap();
    let output =
        command.args(arguments).args(["--server", &format!("http://{}", control_plane.http())]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn stands(revision: u64, state: &'static str) -> impl Fn(&Value) -> bool {
    move |status| status["rollout"]["candidate"] == revision && rollout_state(status) == state
}

/// Completed, and every node runs it.
fn everywhere(control_plane: &ControlPlane, revision: u64) {
    control_plane.wait_for_status(&format!("revision {revision}"), stands(revision, "completed")).unwrap();
    wait::until_true("both nodes to run it", || {
        let nodes: Value = serde_json::from_str(&Client::new(control_plane.http()).get("/api/v1/nodes")?.body)?;
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        Ok(nodes.len() == 2 && nodes.iter().all(|node| node["state"] == "ready" && node["revision"] == revision))
    })
    .unwrap();
}

fn no_failures(load: Load, envoys: &[Envoy]) {
    let (sent, unexpected) = load.stop();
    assert!(sent > 100, "{sent}");
    assert_eq!(unexpected, Vec::<String>::new(), "of {sent}");
    envoys.iter().for_each(assert_no_vm_failure);
}

#[test]
fn another_filter_spreads_as_a_revision_and_goes_back_as_one() {
    let stage = Stage::new();
    let rollout = |pause: &str| {
        let steps = format!("rollout: {{ steps: [{{ share: 50, pause: {pause} }}] }}");
        let text = format!("apiVersion: postern/v1\nkind: Settings\nmetadata: {{ name: s }}\nspec:\n  {steps}\n");
        stage.site.write("settings.yaml", &text).unwrap();
    };
    compile_both(stage.site.directory());
    rollout("1h");
    let state = tempfile::tempdir().unwrap();
    let (old, new) = (previous(), current());
    let (old_digest, new_digest) = (digest_of(&old), digest_of(&new));
    assert_ne!(old_digest, new_digest);
    let options = ["--filter", old.to_str().unwrap()];
    let mut control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &options).unwrap();
    let envoys = envoys(control_plane.xds(), 2);
    everywhere(&control_plane, 1);
    let load = Load::on(stage.site.listener(), 2);
    let running = |number: &str| {
        let filters: Vec<_> = envoys.iter().filter_map(filter_of).collect();
        filters.iter().filter(|filter| *filter == number).count()
    };
    assert_eq!(running(&old_digest), 2);

    // A restart with another filter: the canary alone gets it.
    control_plane.kill_and_restart_with(1, &[new.to_str().unwrap()]).unwrap();
    control_plane.wait_for_status("the rollout", stands(2, "progressing")).unwrap();
    wait::until_true("the canary", || Ok(running(&new_digest) == 1)).unwrap();
    assert_eq!(running(&old_digest), 1);
    let all = revisions(&control_plane);
    assert_ne!(all[0]["digest"], all[1]["digest"]);
    let message = format!("filter {} in place of {}", short(&new_digest), short(&old_digest));
    assert_eq!(all[0]["message"], message.as_str());
    let status = control_plane.status().unwrap();
    assert_eq!(status["filters"], serde_json::json!([new_digest]));
    // It goes on after one more restart.
    control_plane.kill_and_restart().unwrap();
    control_plane.wait_for_status("the same rollout", stands(2, "progressing")).unwrap();
    wait::until_true("the same canary", || Ok(running(&new_digest) == 1 && running(&old_digest) == 1)).unwrap();

    // It goes back as one, and stays away: after a restart, and when something else changes.
    let (done, text) = run(&control_plane, &["rollout", "abort"]);
    assert!(done, "{text}");
    wait::until_true("the former filter", || Ok(running(&old_digest) == 2)).unwrap();
    control_plane.kill_and_restart().unwrap();
    let status = control_plane.wait_for_status("the aborted rollout", stands(2, "aborted")).unwrap();
    assert_eq!(
        (&status["filters"], &status["filtersTakenBack"]),
        (&serde_json::json!([old_digest]), &serde_json::json!([new_digest]))
    );
    let (_, shown) = run(&control_plane, &["status"]);
    assert!(shown.contains(&format!("{} was taken back", short(&new_digest))), "{shown}");
    // The change spreads by the settings before it.
    rollout("0s");
    control_plane.wait_for_status("the next rollout", stands(3, "progressing")).unwrap();
    let (done, text) = run(&control_plane, &["rollout", "promote", "--now"]);
    assert!(done, "{text}");
    everywhere(&control_plane, 3);
    assert_eq!(running(&old_digest), 2);

    // The way forward is a revision that had it.
    let (done, text) = run(&control_plane, &["rollback", "2"]);
    assert!(done, "{text}");
    wait::until_true("the new filter", || Ok(running(&new_digest) >= 1)).unwrap();
    let status = control_plane.status().unwrap();
    assert_eq!((&status["filters"], &status["filtersTakenBack"]), (&serde_json::json!([new_digest]), &Value::Null));
    no_failures(load, &envoys);
}

/// Two Envoys that have the filter in a file of their own.
struct OnNodes {
    stage: Stage,
    control_plane: ControlPlane,
    folders: Vec<tempfile::TempDir>,
    envoys: Vec<Envoy>,
    _state: tempfile::TempDir,
    header: &'static str,
}

impl OnNodes {
    /// The control plane and both nodes have the previous filter.
    fn start() -> Self {
        let (stage, state) = (Stage::new(), tempfile::tempdir().unwrap());
        compile_both(stage.site.directory());
        let options = ["--filter-on-nodes", "filter.wasm", "--filter", &previous().display().to_string()];
        let control_plane = ControlPlane::start_with_state(stage.site.directory(), state.path(), &options).unwrap();
        let folders: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        folders.iter().for_each(|folder| put(folder.path(), &previous()));
        let start = |(index, folder): (usize, &tempfile::TempDir)| {
            let id = format!("id: edge-{}", index + 1);
            Envoy::start_in(folder.path(), "whole.yaml", control_plane.xds(), &[("id: edge-1", &id)]).unwrap()
        };
        let envoys = folders.iter().enumerate().map(start).collect();
        everywhere(&control_plane, 1);
        Self { stage, control_plane, folders, envoys, _state: state, header: "nosniff" }
    }

    /// Changes a policy, which both nodes take up.
    fn change(&mut self, header: &'static str, revision: u64) {
        self.stage.change(self.header, header);
        self.header = header;
        everywhere(&self.control_plane, revision);
        assert!(self.stage.answers(header), "{header}");
    }

    fn upgrade_node(&self, index: usize) {
        put(self.folders[index].path(), &current());
    }

    /// Applies a policy that only the current format of plans can say.
    fn apply_what_is_new(&self) -> (bool, String) {
        let text = "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: { name: by-match }\nspec:\n  targetRef: { kind: HTTPRoute, \
                    name: unnamed, optional: true }\n  match: { path: { exact: /unnamed } }\n  request: [{ policy: respond, \
                    params: { status: 204 } }]\n";
        self.stage.site.write("new.yaml", text).unwrap();
        let folder = self.stage.site.directory().to_str().unwrap().to_owned();
        run(&self.control_plane, &["apply", &folder])
    }
}

/// Replaces the filter of a node atomically, as an installation does.
fn put(folder: &Path, filter: &Path) {
    let draft = folder.join("draft");
    fs::copy(filter, &draft).unwrap();
    fs::rename(draft, folder.join("filter.wasm")).unwrap();
}

#[test]
fn a_fleet_is_upgraded_with_the_control_plane_first() {
    let mut fleet = OnNodes::start();
    let load = Load::on(fleet.stage.site.listener(), 2);
    let (old, new) = (previous(), current());
    let both = [new.to_str().unwrap(), "--filter-also", old.to_str().unwrap()];
    fleet.control_plane.kill_and_restart_with(1, &both).unwrap();
    everywhere(&fleet.control_plane, 2);
    fleet.change("one", 3);
    fleet.upgrade_node(0);
    fleet.change("two", 4);
    // What the older build does not load is refused, with its name, while a node may run it.
    let (applied, text) = fleet.apply_what_is_new();
    let old_digest = digest_of(&old);
    let build = short(&old_digest);
    assert!(
        !applied
            && text.contains(&format!(
                "filter build {build}, which nodes may still run, does not load it: plan format 4 is not supported"
            )),
        "{text}"
    );
    fs::remove_file(fleet.stage.site.path("new.yaml")).unwrap();
    fleet.upgrade_node(1);
    fleet.change("three", 5);
    // Every node has the current filter.
    fleet.control_plane.kill_and_restart_with(2, &[]).unwrap();
    everywhere(&fleet.control_plane, 6);
    let (applied, text) = fleet.apply_what_is_new();
    assert!(applied, "{text}");
    everywhere(&fleet.control_plane, 7);
    no_failures(load, &fleet.envoys);
}

#[test]
fn a_fleet_is_upgraded_with_the_nodes_first() {
    let mut fleet = OnNodes::start();
    let load = Load::on(fleet.stage.site.listener(), 2);
    fleet.upgrade_node(0);
    fleet.change("one", 2);
    fleet.upgrade_node(1);
    fleet.change("two", 3);
    // The control plane is still the previous one, and says so.
    let (applied, text) = fleet.apply_what_is_new();
    assert!(!applied && text.contains("plan format 4 is not supported"), "{text}");
    fs::remove_file(fleet.stage.site.path("new.yaml")).unwrap();
    fleet.control_plane.kill_and_restart_with(1, &[current().to_str().unwrap()]).unwrap();
    everywhere(&fleet.control_plane, 4);
    fleet.change("three", 5);
    let (applied, text) = fleet.apply_what_is_new();
    assert!(applied, "{text}");
    everywhere(&fleet.control_plane, 6);
    no_failures(load, &fleet.envoys);
}
