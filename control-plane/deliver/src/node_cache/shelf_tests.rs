use envoy_types::pb::google::protobuf::Any;
use std::{os::unix::fs::PermissionsExt as _, time::UNIX_EPOCH};

use super::{super::kept::resource, *};
use postern_compile::snapshot::ResourceType;

const DAY: Duration = Duration::from_secs(86_400);

fn node(id: &str) -> NodeIdentity {
    NodeIdentity { id: id.to_owned(), ..NodeIdentity::default() }
}

fn sets(content: &str) -> Sets {
    let body = Any { type_url: "t".to_owned(), value: content.into() };
    [(ResourceType::Cluster, [resource("a".to_owned(), "", body)].into_iter().collect())].into()
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn open(folder: &Path) -> Shelf {
    Shelf::open(folder, None, DAY, 3).unwrap()
}

/// A directory with what one node accepted, and the path of its file.
fn written(folder: &Path) -> PathBuf {
    let shelf = open(folder);
    shelf.keep(&node("edge"), sets("secret"), now());
    assert!(shelf.write());
    shelf.path(&key_of(&node("edge")))
}

#[test]
fn serves_after_a_restart_what_was_kept_to_exactly_that_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let bytes = fs::read(&path).unwrap();
    assert!(!bytes.windows(6).any(|part| part == b"secret"));
    for path in [&path, &folder.path().join(KEY)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let shelf = open(folder.path());
    assert_eq!(shelf.serve(&node("edge"), now()).unwrap().0.sets, sets("secret"));
    let tagged = NodeIdentity { tags: [("stage".to_owned(), "b".to_owned())].into(), ..node("edge") };
    let newer = NodeIdentity { envoy: Some("1.40.0".to_owned()), ..node("edge") };
    let other = NodeIdentity { service: "other".to_owned(), ..node("edge") };
    let other_bootstrap = NodeIdentity { large_regexes: true, ..node("edge") };
    for stranger in [node("other"), tagged, newer, other, other_bootstrap] {
        assert!(matches!(shelf.serve(&stranger, now()), Err(ShelfError::Nothing { .. })), "{stranger:?}");
    }
}

#[test]
fn serves_nothing_of_a_file_of_which_any_byte_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let good = fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        open(folder.path()).serve(&node("edge"), now()).unwrap_err().to_string()
    };
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1;
        let error = refused(&bad);
        assert!(error.contains(path.to_str().unwrap()), "byte {place}: {error}");
    }
    for size in [0, 1, FORMAT.len(), good.len() / 2, good.len() - 1] {
        assert!(refused(&good[..size]).contains("damaged"), "the first {size} bytes");
    }
    fs::write(&path, &good).unwrap();
    assert!(open(folder.path()).serve(&node("edge"), now()).is_ok());
}

#[test]
fn gives_no_node_the_file_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let other = folder.path().join(format!("{}.{ENDING}", key_of(&node("other"))));
    fs::rename(path, other).unwrap();
    let error = open(folder.path()).serve(&node("other"), now()).unwrap_err().to_string();
    assert!(error.contains("it has changed since it was written"), "{error}");
}

#[test]
fn says_that_another_key_was_used() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let other = folder.path().join("other.key");
    secret_file::create(&other).unwrap();
    let shelf = Shelf::open(folder.path(), Some(&other), DAY, 3).unwrap();
    let error = shelf.serve(&node("edge"), now()).unwrap_err().to_string();
    assert!(error.contains("sealed with another key"), "{error}");
    // What is accepted later replaces it.
    shelf.keep(&node("edge"), sets("new"), now());
    assert!(shelf.write() && shelf.serve(&node("edge"), now()).is_ok());
    drop(shelf);
    fs::remove_file(folder.path().join(KEY)).unwrap();
    let missing = Shelf::open(folder.path(), None, DAY, 3).unwrap_err().to_string();
    assert!(missing.contains(KEY) && missing.contains("cannot be read"), "{missing}");
}

#[test]
fn serves_up_to_an_age_that_counts_from_the_last_contact() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let shelf = open(folder.path());
    let second = Duration::from_secs(1);
    assert_eq!(shelf.serve(&node("edge"), now() + DAY - second).unwrap().1, second);
    let error = shelf.serve(&node("edge"), now() + DAY).unwrap_err().to_string();
    assert!(error.contains("last in contact 86400 s ago, and `--max-age` is 86400 s"), "{error}");
    assert!(shelf.serve(&node("edge"), now() - SKEW).is_ok());
    let ahead = shelf.serve(&node("edge"), now() - SKEW - second).unwrap_err().to_string();
    assert!(ahead.contains("301s ahead of the clock"), "{ahead}");
    shelf.contact(&node("edge"), now() + DAY);
    assert!(shelf.write());
    drop(shelf);
    assert!(open(folder.path()).serve(&node("edge"), now() + DAY + DAY - second).is_ok());
}

#[test]
fn remembers_when_it_served_a_node() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let shelf = open(folder.path());
    let at = |seconds| now() + Duration::from_secs(seconds);
    assert_eq!(shelf.last_served(&node("edge")), None);
    [10, 20, 30].into_iter().for_each(|second| shelf.serving(&node("edge"), at(second)));
    assert_eq!(shelf.last_served(&node("edge")), Some(Span::between(at(10), at(30))));
    assert!(shelf.write());
    drop(shelf);
    // A restart of the cache is no end of an outage, and contact is.
    let shelf = open(folder.path());
    shelf.serving(&node("edge"), at(35));
    assert_eq!(shelf.last_served(&node("edge")), Some(Span::between(at(10), at(35))));
    shelf.keep(&node("edge"), sets("2"), at(40));
    assert_eq!(shelf.last_served(&node("edge")), Some(Span::between(at(10), at(35))));
    [50, 60].into_iter().for_each(|second| shelf.serving(&node("edge"), at(second)));
    assert_eq!(shelf.last_served(&node("edge")), Some(Span::between(at(50), at(60))));
}

#[test]
fn keeps_nodes_that_are_there_before_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = open(folder.path());
    for id in ["1", "2", "3", "4"] {
        shelf.keep(&node(id), sets(id), now());
    }
    assert!(shelf.serve(&node("1"), now()).is_ok() && shelf.serve(&node("4"), now()).is_err());
    shelf.keep(&node("1"), sets("1"), now() + DAY + DAY);
    shelf.keep(&node("4"), sets("4"), now() + DAY + DAY);
    let later = now() + DAY + DAY;
    assert!(shelf.serve(&node("4"), later).is_ok() && shelf.serve(&node("1"), later).is_ok());
    assert!(matches!(shelf.serve(&node("2"), later), Err(ShelfError::Nothing { .. })), "it was too old");
}

#[test]
fn keeps_nothing_of_a_node_that_has_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let shelf = open(folder.path());
    shelf.keep(&node("edge"), sets(&"x".repeat(LARGEST + 1)), now());
    assert!(shelf.write() && !path.exists());
    let error = shelf.serve(&node("edge"), now()).unwrap_err().to_string();
    assert!(error.contains("more than"), "{error}");
}

#[test]
fn shares_its_directory_with_no_other_cache() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = open(folder.path());
    assert!(matches!(Shelf::open(folder.path(), None, DAY, 3), Err(ShelfError::InUse { .. })));
    drop(shelf);
    open(folder.path());
}

#[test]
fn removes_drafts_of_a_cache_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let draft = path.with_extension("draft-1-2");
    fs::copy(&path, &draft).unwrap();
    open(folder.path());
    assert!(!draft.exists() && path.exists());
}

#[test]
fn lets_one_stream_of_a_node_say_what_it_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Arc::new(open(folder.path()));
    let (first, other) = (shelf.own(&node("edge"), 1), shelf.own(&node("other"), 2));
    let second = shelf.own(&node("edge"), 3);
    assert!(first.is_held() && other.is_held() && !second.is_held());
    drop(shelf.own(&node("edge"), 4));
    assert!(!second.is_held() && first.is_held());
    drop(first);
    assert!(second.is_held());
}
