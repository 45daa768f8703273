//! The cache of compiled filters under several real control planes: they share it, and its key lies elsewhere.

use std::{fs, path::Path, thread};

use postern_tests::{ControlPlane, Site, site::free_port};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether a control plane took its filter from the cache.
fn is_cached(control_plane: &ControlPlane) -> bool {
    let log = control_plane.log();
    let line = log.iter().find(|line| line.contains("filter ready for the gate")).unwrap();
    assert!(line.contains("cached=true") || line.contains("cached=false"), "{line}");
    line.contains("cached=true")
}

#[test]
fn two_control_planes_that_start_at_once_share_one_cache() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = ([127, 0, 0, 1], free_port().unwrap()).into();
    let site = Site::quickstart(directory.path().join("site"), upstream, 0).unwrap();
    let (cache, key) = (directory.path().join("cache"), directory.path().join("keys/module.key"));
    let start = |state: &str| {
        let options = ["--cache", cache.to_str().unwrap(), "--cache-key", key.to_str().unwrap()];
        ControlPlane::start_with_state(site.directory(), &directory.path().join(state), &options).unwrap()
    };
    // Neither waits for the other, and both are there in the end, whoever wrote first.
    let both = thread::scope(|scope| {
        let start = &start;
        let threads = ["one", "two"].map(|state| scope.spawn(move || start(state)));
        threads.map(|thread| thread.join().unwrap())
    });
    for control_plane in &both {
        assert!(control_plane.status().unwrap()["revision"].is_string());
    }
    assert_eq!(names(&cache), ["modules"], "the key lies elsewhere");
    let modules = names(&cache.join("modules"));
    assert!(modules.len() == 1 && modules[0].ends_with(".module"), "one module and no draft: {modules:?}");
    assert_eq!(names(key.parent().unwrap()), ["module.key"], "one key and no draft");
    let before = fs::read(cache.join("modules").join(&modules[0])).unwrap();
    let third = start("three");
    assert!(is_cached(&third), "what the first two left is taken");
    assert_eq!(fs::read(cache.join("modules").join(&modules[0])).unwrap(), before);
}

#[test]
fn the_key_of_a_cache_lies_in_the_users_directory_for_state() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = ([127, 0, 0, 1], free_port().unwrap()).into();
    let site = Site::quickstart(directory.path().join("site"), upstream, 0).unwrap();
    let cache = directory.path().join("cache");
    let validate = |arguments: &[&str]| {
        let mut command = ControlPlane::command().unwrap();
        command.arg("validate").arg(site.directory()).args(["--cache", cache.to_str().unwrap()]).args(arguments);
        command.env("HOME", directory.path()).env_remove("XDG_STATE_HOME").env_remove("POSTERN_CACHE_KEY");
        command.output().unwrap()
    };
    assert!(validate(&[]).status.success());
    assert_eq!(names(&cache), ["modules"]);
    assert_eq!(names(&directory.path().join(".local/state/postern")), ["module.key"]);
    // A key among the modules is not made, and the filter is compiled all the same.
    let inside = cache.join("modules/module.key");
    assert!(validate(&["--cache-key", inside.to_str().unwrap()]).status.success());
    assert!(!inside.exists());
}
