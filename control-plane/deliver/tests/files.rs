//! Delivery to files: their content, and how they are replaced.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::BTreeMap,
    fs::{self, File as OpenFile},
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use postern_base::node::NodeIdentity;
use postern_compile::snapshot::{ResourceType, Selection};
use postern_deliver::files::{Delivery, Departing, Patience, place};
use postern_fixtures::{SITE, snapshot};
use postern_model::protobuf_json::{self, Unknown};
use postern_release::publication::Publication;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

/// The site and a secret of a user's own, whose name leads out of the directory.
static RESOURCES: LazyLock<String> = LazyLock::new(|| {
    let secret = r#"
apiVersion: postern/v1
kind: EnvoyResource
metadata: { name: secret }
spec:
  resource:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
    name: ../certs/server
    generic_secret: { secret: { inline_string: hidden } }
"#;
    format!("{SITE}---{secret}")
});

/// Every file that is delivered for these resources.
const FILES: [&str; 8] = [
    "cds.json",
    "ecds/postern-gateway.json",
    "ecds/postern-verify.json",
    "ecds/postern.json",
    "eds/a.json",
    "lds.json",
    "rds/edge.json",
    "sds/%2e.%2fcerts%2fserver.json",
];

const NO_PATIENCE: Patience = Patience { before_routes: Duration::ZERO, before_removal: Duration::ZERO };

fn delivery(directory: &TempDir) -> Delivery {
    Delivery::new(&directory.path().join("new"), None, NodeIdentity::default(), NO_PATIENCE).unwrap()
}

/// Delivers resources. Returns the number of files that had to change.
fn write(delivery: &Delivery, resources: &str) -> usize {
    delivery.write(&snapshot(resources), &Departing::default()).unwrap()
}

/// The resources with another service instead of `a`.
fn renamed() -> String {
    RESOURCES.replace("name: a }", "name: b }").replace("service: a", "service: b")
}

/// Every file below a directory, with its inode and content.
fn files(directory: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), (fs::metadata(&path).unwrap().ino(), fs::read(&path).unwrap()));
        }
    }
    found
}

fn delivered(directory: &TempDir) -> BTreeMap<String, (u64, Vec<u8>)> {
    let root = directory.path().join("new");
    let relative = |path: PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    files(&root).into_iter().map(|(path, content)| (relative(path), content)).collect()
}

#[test]
fn case_38_every_file_is_a_valid_discovery_response() {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = snapshot(&RESOURCES);
    assert_eq!(write(&delivery(&directory), &RESOURCES), FILES.len());
    let delivered = delivered(&directory);
    assert_eq!(delivered.keys().collect::<Vec<_>>(), FILES);
    for (name, (_, content)) in &delivered {
        let json: Value = serde_json::from_slice(content).unwrap();
        let response: DiscoveryResponse = protobuf_json::read(&json, Unknown::Refused).unwrap();
        assert_eq!(response.resources.len(), 1, "{name}");
        assert_eq!(response.resources[0].type_url, response.type_url, "{name}");
        let kind = ResourceType::from_type_url(&response.type_url).unwrap();
        let mut selection = Selection::Everything;
        if let Some(file) = name.strip_prefix("ecds/") {
            selection = Selection::Named([file.trim_end_matches(".json").to_owned()].into());
        }
        assert_eq!(response.version_info, snapshot.select(kind, &selection).version.as_str(), "{name}");
    }
    // What clusters and listeners refer to exists.
    let root = directory.path().join("new").canonicalize().unwrap();
    let json = |name: &str| serde_json::from_slice::<Value>(&delivered[name].1).unwrap()["resources"][0].clone();
    let manager = json("lds.json")["filterChains"][0]["filters"][0]["typedConfig"].clone();
    for (source, place) in [
        (&json("cds.json")["edsClusterConfig"]["edsConfig"], "eds/a.json"),
        (&manager["rds"]["configSource"], "rds/edge.json"),
        (&manager["httpFilters"][0]["configDiscovery"]["configSource"], "ecds/postern-gateway.json"),
    ] {
        assert_eq!(source["pathConfigSource"]["path"].as_str(), root.join(place).to_str(), "{source}");
    }
}

#[test]
fn case_38_a_file_is_replaced_by_a_rename_and_only_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let delivery = delivery(&directory);
    write(&delivery, &RESOURCES);
    let before = delivered(&directory);
    // The same resources change no file, even from another process.
    assert_eq!(write(&delivery, &RESOURCES), 0);
    assert_eq!(write(&self::delivery(&directory), &RESOURCES), 0);
    assert_eq!(delivered(&directory), before);
    // A changed endpoint replaces one file. A reader of the old file still has it complete.
    let mut open = OpenFile::open(directory.path().join("new/eds/a.json")).unwrap();
    assert_eq!(write(&delivery, &RESOURCES.replace("port: 9000", "port: 9009")), 1);
    let mut old = Vec::new();
    open.read_to_end(&mut old).unwrap();
    assert_eq!(old, before["eds/a.json"].1);
    let after = delivered(&directory);
    assert_eq!(after.keys().collect::<Vec<_>>(), FILES, "no draft is left behind");
    for name in FILES {
        let changed = name == "eds/a.json";
        assert_eq!(after[name].1 != before[name].1, changed, "{name}");
        assert_eq!(after[name].0 != before[name].0, changed, "{name}: replaced, not written into");
    }
}

#[test]
fn removes_the_files_of_resources_that_are_gone_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let delivery = delivery(&directory);
    write(&delivery, &RESOURCES);
    let own = directory.path().join("new/eds/README");
    fs::write(&own, "mine").unwrap();
    write(&delivery, &renamed());
    let names: Vec<_> = delivered(&directory).into_keys().filter(|name| name.starts_with("eds/")).collect();
    assert_eq!(names, ["eds/README", "eds/b.json"]);
}

#[test]
fn keeps_secrets_from_strangers() {
    let directory = tempfile::tempdir().unwrap();
    write(&delivery(&directory), &RESOURCES);
    let new = directory.path().join("new");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    for file in FILES {
        assert_eq!(mode(&new.join(file)), 0o600, "{file}");
        assert_eq!(mode(new.join(file).parent().unwrap()), 0o700, "{file}");
    }
}

#[test]
fn takes_files_of_an_earlier_version_from_strangers() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new");
    write(&delivery(&directory), &RESOURCES);
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let (file, folder, draft) = (new.join(FILES[5]), new.join("sds"), new.join(".cds.json.new"));
    open(&file, 0o644);
    open(&folder, 0o755);
    let elsewhere = directory.path().join("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    fs::remove_file(new.join("cds.json")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &draft).unwrap();
    write(&delivery(&directory), &RESOURCES);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&file), mode(&folder)), (0o600, 0o700));
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "", "a draft is never written through a link");
    assert!(fs::symlink_metadata(new.join("cds.json")).unwrap().is_file());
}

#[test]
fn names_files_so_that_none_can_lie_elsewhere() {
    let check = |name, expect| assert_eq!(place(ResourceType::Endpoints, name), Path::new("eds").join(expect));
    check("users.v2_x-1", "users.v2_x-1.json");
    check("../../etc/passwd", "%2e.%2f..%2fetc%2fpasswd.json");
    check(".hidden", "%2ehidden.json");
    check("a%2fb", "a%252fb.json");
    check("é", "%c3%a9.json");
}

#[test]
fn refers_to_files_where_the_node_sees_them() {
    let directory = tempfile::tempdir().unwrap();
    let delivery =
        Delivery::new(directory.path(), Some(Path::new("/etc/envoy/xds")), NodeIdentity::default(), NO_PATIENCE)
            .unwrap();
    write(&delivery, &RESOURCES);
    let clusters = fs::read_to_string(directory.path().join("cds.json")).unwrap();
    assert!(clusters.contains(r#""path":"/etc/envoy/xds/eds/a.json""#), "{clusters}");
}

/// Polls until a file has the expected content.
async fn until(path: &Path, fits: impl Fn(Option<&str>) -> bool) {
    let start = Instant::now();
    while !fits(fs::read_to_string(path).ok().as_deref()) {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain for {}", path.display());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn publication(resources: &str) -> Option<Arc<Publication>> {
    Some(Arc::new(Publication::uniform(snapshot(resources))))
}

#[tokio::test(flavor = "multi_thread")]
async fn follows_what_is_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let (publish, publications) = watch::channel(None);
    let following = tokio::spawn(delivery(&directory).follow(publications));
    for port in ["9000", "9001"] {
        publish.send_replace(publication(&RESOURCES.replace("port: 9000", &format!("port: {port}"))));
        until(&directory.path().join("new/eds/a.json"), |text| text.is_some_and(|text| text.contains(port))).await;
    }
    // What is gone is removed in the end.
    publish.send_replace(publication(&renamed()));
    until(&directory.path().join("new/eds/a.json"), |text| text.is_none()).await;
    let clusters = String::from_utf8(delivered(&directory)["cds.json"].1.clone()).unwrap();
    assert!(clusters.contains(r#""name":"b""#) && !clusters.contains(r#""name":"a""#), "{clusters}");
    drop(publish);
    following.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_what_routes_may_still_use() {
    let directory = tempfile::tempdir().unwrap();
    let patience = Patience { before_removal: Duration::from_secs(3_600), ..NO_PATIENCE };
    let root = directory.path().join("new");
    let delivery = Delivery::new(&root, None, NodeIdentity::default(), patience).unwrap();
    let (publish, publications) = watch::channel(publication(&RESOURCES));
    let following = tokio::spawn(delivery.follow(publications));
    until(&root.join("lds.json"), |text| text.is_some()).await;
    publish.send_replace(publication(&renamed()));
    until(&root.join("rds/edge.json"), |text| text.is_some_and(|text| text.contains(r#""cluster":"b""#))).await;
    let delivered = delivered(&directory);
    let clusters = String::from_utf8(delivered["cds.json"].1.clone()).unwrap();
    for name in ["a", "b"] {
        assert!(clusters.contains(&format!(r#""name":"{name}""#)), "{name}: {clusters}");
        assert!(delivered.contains_key(&format!("eds/{name}.json")), "{name}");
    }
    drop(publish);
    following.await.unwrap();
}
