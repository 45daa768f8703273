//! Compiled filters on disk: used if they are intact and ours, compiled again otherwise.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
};

use postern_base::digest::Digest;
use postern_compile::{
    gate::{EncodedPlan, Gate, ModuleCache, Origin},
    wasm::{Filter, Limits},
};
use postern_proto::plan::v1::Plan;
use tempfile::TempDir;

/// A filter that accepts every configuration, or one that accepts none.
fn code(accepts: bool) -> Vec<u8> {
    let text = format!(
        r#"(module
  (memory (export "memory") 1)
  (func (export "malloc") (param i32) (result i32) (i32.const 8192))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const {})))"#,
        u8::from(accepts)
    );
    wat::parse_str(&text).unwrap()
}

fn filter(home: &Path, code: &[u8]) -> (Filter, Origin) {
    ModuleCache::open(home, &home.join("module.key")).unwrap().filter(code, &Digest::of(code)).unwrap()
}

/// Where the filter that accepts everything comes from. Checks that it is that filter.
fn origin(home: &Path) -> Origin {
    let (filter, origin) = filter(home, &code(true));
    Gate::of_filter(filter, Limits::default()).admit(EncodedPlan::new(&Plan::default())).unwrap();
    origin
}

fn modules(home: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(home.join("modules")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// A cache that contains the filter.
fn filled() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(origin(home.path()), Origin::Compiled);
    assert_eq!(origin(home.path()), Origin::Cached);
    home
}

/// Checks that a module is compiled and cached again after a change of its file.
fn check_rebuilt(home: &Path, what: &str, change: impl FnOnce(&Path)) {
    let path = modules(home).remove(0);
    change(&path);
    assert_eq!(origin(home), Origin::Compiled, "{what}");
    assert_eq!(origin(home), Origin::Cached, "{what}");
}

#[test]
fn names_the_filter_and_keeps_strangers_out() {
    let home = filled();
    let modules = modules(home.path());
    assert_eq!(modules.len(), 1, "no drafts are left: {modules:?}");
    let digest = Digest::of(&code(true));
    assert!(modules[0].file_name().unwrap().to_str().unwrap().starts_with(&format!("{digest}-")));
    for file in [modules[0].clone(), home.path().join("module.key")] {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn rebuilds_a_damaged_module() {
    let home = filled();
    let whole = fs::read(&modules(home.path())[0]).unwrap();
    for place in [0, 31, 32, 33, whole.len() / 2, whole.len() - 1] {
        check_rebuilt(home.path(), &format!("byte {place}"), |path| {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x40;
            fs::write(path, damaged).unwrap();
        });
    }
    for size in [0, 16, 32, whole.len() - 1] {
        check_rebuilt(home.path(), &format!("{size} bytes"), |path| fs::write(path, &whole[..size]).unwrap());
    }
    check_rebuilt(home.path(), "more bytes", |path| fs::write(path, [&whole[..], b"x"].concat()).unwrap());
}

#[test]
fn rebuilds_a_foreign_module() {
    let home = filled();
    // A module that wasmtime itself would run: intact, but not sealed by us.
    let unsealed = Filter::compile(&code(false)).unwrap().serialize().unwrap();
    check_rebuilt(home.path(), "without a seal", |path| fs::write(path, &unsealed).unwrap());
    check_rebuilt(home.path(), "an empty seal", |path| fs::write(path, [&[0; 32][..], &unsealed].concat()).unwrap());
    let stranger = filled();
    check_rebuilt(home.path(), "another key", |path| {
        fs::copy(&modules(stranger.path())[0], path).unwrap();
    });
}

#[test]
fn never_runs_one_filters_module_for_another() {
    let home = filled();
    let mine = modules(home.path()).remove(0);
    assert_eq!(filter(home.path(), &code(false)).1, Origin::Compiled);
    let other = modules(home.path()).into_iter().find(|path| *path != mine).unwrap();
    fs::copy(other, mine).unwrap();
    assert_eq!(origin(home.path()), Origin::Compiled);
}

#[test]
fn looks_at_no_module_under_the_name_of_another_wasmtime() {
    let home = filled();
    let current = modules(home.path()).remove(0);
    let name = current.file_name().unwrap().to_str().unwrap().to_owned();
    let environment = name.rsplit_once('-').unwrap().1.trim_end_matches(".module").to_owned();
    // What another build left lies under another name, and is not looked at. That it would be refused under this one is
    // a test of the cache itself.
    let old = current.with_file_name(name.replace(&environment, &"0".repeat(environment.len())));
    fs::rename(&current, &old).unwrap();
    assert_eq!(origin(home.path()), Origin::Compiled);
    assert_eq!(modules(home.path()).len(), 2);
}

#[test]
fn replaces_a_key_that_others_could_read_or_that_is_none() {
    let home = filled();
    let key = home.path().join("module.key");
    let before = fs::read(&key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(origin(home.path()), Origin::Compiled, "what was sealed with it is not trusted");
    assert_ne!(fs::read(&key).unwrap(), before);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(origin(home.path()), Origin::Cached);
    fs::write(&key, b"short").unwrap();
    assert_eq!(origin(home.path()), Origin::Compiled);
    assert_eq!(origin(home.path()), Origin::Cached);
}

#[test]
fn takes_no_module_from_who_can_write_to_the_cache_and_has_another_key() {
    let (shared, mine, other) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = |keys: &TempDir| {
        let cache = ModuleCache::open(shared.path(), &keys.path().join("deep/module.key")).unwrap();
        cache.filter(&code(true), &Digest::of(&code(true))).unwrap().1
    };
    assert_eq!(from(&mine), Origin::Compiled);
    assert_eq!(from(&mine), Origin::Cached);
    assert_eq!(from(&other), Origin::Compiled, "each trusts its own key only");
    assert_eq!(from(&mine), Origin::Compiled);
    let inside: Vec<_> = fs::read_dir(shared.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(inside, ["modules"], "no key is there");
}

#[test]
fn refuses_a_key_among_the_modules() {
    let home = tempfile::tempdir().unwrap();
    for key in ["modules/module.key", "modules/deep/module.key", "modules/../modules/module.key"] {
        let error = ModuleCache::open(home.path(), &home.path().join(key)).unwrap_err().to_string();
        assert!(error.ends_with("the key of the compiled filters must not lie among them"), "{error}");
        assert!(!home.path().join(key).exists());
    }
}

#[test]
fn makes_one_key_for_all_that_start_at_once() {
    let home = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| origin(home.path()));
        }
    });
    assert_eq!(origin(home.path()), Origin::Cached);
    assert_eq!(modules(home.path()).len(), 1);
}

#[test]
fn keeps_only_the_last_few_modules() {
    let home = filled();
    for number in 0..6 {
        let text = format!(r#"(module (func (export "proxy_abi_version_0_2_1")) (func (export "n{number}")))"#);
        assert_eq!(filter(home.path(), &wat::parse_str(&text).unwrap()).1, Origin::Compiled);
    }
    assert_eq!(modules(home.path()).len(), 4);
}

#[test]
fn says_which_directory_cannot_be_used() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let error = ModuleCache::open(&file, &home.path().join("module.key")).unwrap_err().to_string();
    assert!(error.starts_with(&format!("compiled filters cannot be kept: {}", file.display())), "{error}");
}
