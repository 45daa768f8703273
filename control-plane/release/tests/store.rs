//! The store: complete and ordered revisions, concurrent writers, retention, and detection of damage.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    thread,
    time::{Duration, UNIX_EPOCH},
};

use postern_release::store::{Database, Document, Draft, Memory, NodeRecord, Parent, Revision, Store, StoreError};

fn document(file: &str, text: &str) -> Document {
    Document { file: file.to_owned(), line: 1, text: text.as_bytes().to_vec() }
}

fn draft(text: &str) -> Draft {
    Draft {
        digest: format!("digest of {text}"),
        author: "alice".to_owned(),
        message: format!("says {text}"),
        at: UNIX_EPOCH + Duration::from_millis(1234),
        documents: documents(text).into(),
    }
}

fn documents(text: &str) -> Vec<Document> {
    vec![document("a.yaml", text), document("b.yaml", "the same")]
}

fn numbers(store: &dyn Store) -> Vec<u64> {
    store.revisions().unwrap().iter().map(|revision| revision.number).collect()
}

/// Runs a check on both stores, in a file and in memory.
fn on_both(check: impl Fn(&dyn Store)) {
    let state = tempfile::tempdir().unwrap();
    check(&Database::open(state.path()).unwrap());
    check(&Memory::default());
}

#[test]
fn keeps_revisions_with_their_documents() {
    on_both(|store| {
        assert_eq!((store.latest().unwrap(), store.documents(1).unwrap()), (None, None));
        let first = store.append(draft("one"), Parent::Exactly(None)).unwrap();
        let expect = Revision {
            number: 1,
            digest: "digest of one".to_owned(),
            author: "alice".to_owned(),
            message: "says one".to_owned(),
            at: 1234,
            parent: None,
            documents: 2,
            purged: Vec::new(),
        };
        assert_eq!(first, expect);
        // Preparing documents before makes no difference.
        let prepared = Draft { documents: store.prepare(documents("two")).unwrap(), ..draft("two") };
        let second = store.append(prepared, Parent::Latest).unwrap();
        assert_eq!((second.number, second.parent), (2, Some(1)));
        assert_eq!(store.latest().unwrap(), Some(second.clone()));
        assert_eq!(store.revisions().unwrap(), [second, first.clone()]);
        assert_eq!(store.revision(1).unwrap(), Some(first));
        assert_eq!(store.documents(1).unwrap(), Some(documents("one")));
        assert_eq!(store.documents(2).unwrap(), Some(documents("two")));
        assert_eq!(store.revision(3).unwrap(), None);
    });
}

#[test]
fn lets_nobody_overwrite_a_revision_that_he_has_not_seen() {
    on_both(|store| {
        store.append(draft("one"), Parent::Latest).unwrap();
        let error = store.append(draft("two"), Parent::Exactly(None)).unwrap_err();
        assert!(matches!(error, StoreError::Conflict { expected: None, latest: Some(1) }), "{error}");
        let error = store.append(draft("two"), Parent::Exactly(Some(7))).unwrap_err().to_string();
        assert_eq!(error, "the latest revision is 1, not 7: look at what changed and apply again");
        assert_eq!(numbers(store), [1], "nothing was added");
        store.append(draft("two"), Parent::Exactly(Some(1))).unwrap();
    });
}

#[test]
fn lets_one_of_many_writers_at_once_win_each_time() {
    on_both(|store| {
        thread::scope(|scope| {
            for writer in 0..8 {
                scope.spawn(move || {
                    for _ in 0..5 {
                        loop {
                            let latest = store.latest().unwrap().map(|revision| revision.number);
                            match store.append(draft(&format!("writer {writer}")), Parent::Exactly(latest)) {
                                Ok(revision) => break assert_eq!(revision.parent, latest),
                                Err(StoreError::Conflict { .. }) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(numbers(store), (1..=40).rev().collect::<Vec<_>>());
    });
}

#[test]
fn keeps_the_last_revisions_and_the_pinned_ones() {
    on_both(|store| {
        for number in 1..=10 {
            store.append(draft(&number.to_string()), Parent::Latest).unwrap();
        }
        assert_eq!(store.collect(3, &BTreeSet::from([2])).unwrap(), [1, 3, 4, 5, 6, 7]);
        assert_eq!(numbers(store), [10, 9, 8, 2]);
        assert_eq!(store.documents(2).unwrap(), Some(documents("2")), "what is shared stays");
        assert_eq!(store.documents(3).unwrap(), None);
        assert_eq!(store.collect(3, &BTreeSet::new()).unwrap(), [2]);
        assert_eq!(store.collect(0, &BTreeSet::new()).unwrap(), [8, 9], "the latest always stays");
        assert_eq!(store.append(draft("next"), Parent::Latest).unwrap().number, 11, "no number comes twice");
    });
}

#[test]
fn gives_space_back() {
    let state = tempfile::tempdir().unwrap();
    let store = Database::open(state.path()).unwrap();
    let large = |number: usize| Draft {
        documents: vec![document("a.yaml", &format!("{number}{}", "x".repeat(100_000)))].into(),
        ..draft("large")
    };
    for number in 0..100 {
        store.append(large(number), Parent::Latest).unwrap();
        store.collect(3, &BTreeSet::new()).unwrap();
    }
    let size = fs::metadata(state.path().join("store.redb")).unwrap().len();
    assert!(size < 4_000_000, "100 revisions of 100 kB, of which 3 are kept, take {size} bytes");
}

#[test]
fn keeps_notes_and_nodes() {
    on_both(|store| {
        assert_eq!(store.note("rollout").unwrap(), None);
        store.put_note("rollout", Some(b"under way")).unwrap();
        assert_eq!(store.note("rollout").unwrap(), Some(b"under way".to_vec()));
        store.put_note("rollout", None).unwrap();
        assert_eq!(store.note("rollout").unwrap(), None);
        let node = |revision| NodeRecord { service: "edge".to_owned(), revision: Some(revision), seen: 5 };
        let nodes = BTreeMap::from([("a".to_owned(), node(1)), ("b".to_owned(), node(2))]);
        store.put_nodes(&nodes).unwrap();
        assert_eq!(store.nodes().unwrap(), nodes);
        store.put_nodes(&BTreeMap::from([("b".to_owned(), node(3))])).unwrap();
        assert_eq!(store.nodes().unwrap(), BTreeMap::from([("b".to_owned(), node(3))]));
    });
}

#[test]
fn keeps_sealed_notes() {
    on_both(|store| {
        assert_eq!(store.sealed_note("key-sets").unwrap(), None);
        store.put_sealed_note("key-sets", b"whom to let in").unwrap();
        assert_eq!(store.sealed_note("key-sets").unwrap(), Some(b"whom to let in".to_vec()));
    });
}

#[test]
fn takes_no_sealed_note_that_somebody_else_wrote() {
    let state = tempfile::tempdir().unwrap();
    let store = Database::open(state.path()).unwrap();
    store.put_sealed_note("key-sets", b"whom to let in").unwrap();
    let sealed = store.note("key-sets").unwrap().unwrap();
    assert!(!sealed.windows(4).any(|part| part == b"whom"));
    // As it is, changed, and another note in its place.
    for forged in [b"everybody".to_vec(), [&sealed[..sealed.len() - 1], &[0]].concat()] {
        store.put_note("key-sets", Some(&forged)).unwrap();
        let error = store.sealed_note("key-sets").unwrap_err().to_string();
        assert!(error.contains("the note `key-sets` has changed"), "{error}");
    }
    store.put_note("others", Some(&sealed)).unwrap();
    assert!(store.sealed_note("others").is_err(), "a note is bound to its name");
}

#[test]
fn is_the_same_after_it_was_closed() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("made/when/missing");
    for number in 1..=3 {
        let store = Database::open(&state).unwrap();
        assert_eq!(store.revisions().unwrap().len(), number - 1);
        store.append(draft(&number.to_string()), Parent::Latest).unwrap();
    }
    let mode = fs::metadata(state.join("store.redb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "resources can hold credentials");
}

fn filled(state: &Path) {
    let store = Database::open(state).unwrap();
    for number in 1..=5 {
        store.append(draft(&number.to_string()), Parent::Latest).unwrap();
    }
}

#[test]
fn says_that_a_file_is_damaged_and_the_way_back() {
    let check = |what: &str, damage: &dyn Fn(&mut Vec<u8>)| {
        let state = tempfile::tempdir().unwrap();
        filled(state.path());
        let path = state.path().join("store.redb");
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        let error = Database::open(state.path()).err().unwrap_or_else(|| panic!("{what}: it was opened"));
        assert!(matches!(error, StoreError::Damaged { .. }), "{what}: {error}");
        let said = error.to_string();
        assert!(said.contains("store.redb: the store is damaged: "), "{said}");
        assert!(said.contains("move it away and start again"), "{said}");
        assert_eq!(fs::read(&path).unwrap().len(), bytes.len(), "what is damaged is left as evidence");
        // The recovery that the message names.
        fs::rename(&path, state.path().join("damaged")).unwrap();
        filled(state.path());
    };
    check("empty", &|bytes| bytes.clear());
    check("not a database", &|bytes| bytes[..64].fill(b'x'));
    check("cut short", &|bytes| bytes.truncate(bytes.len() / 3));
    check("a page of nothing", &|bytes| {
        let from = position(bytes, b"digest of 5");
        bytes[from..from + 64].fill(0);
    });
}

#[test]
fn gives_nothing_away_without_its_key() {
    let state = tempfile::tempdir().unwrap();
    filled(state.path());
    let bytes = fs::read(state.path().join("store.redb")).unwrap();
    let readable = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(readable(b"digest of 5"), "what is no document");
    assert!(!readable(b"the same") && !readable(b"a.yaml"), "a document can be read");
    // The key's file is readable by its owner only, and is never replaced.
    let key = state.path().join("store.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = fs::read(&key).unwrap();
    let check = |what: &str, expect: &str| {
        let said = Database::open(state.path()).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(expect), "{what}: {said}");
    };
    fs::remove_file(&key).unwrap();
    check("no key", "store.key: the key of the store cannot be used: No such file");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    check("a key for all to see", "it must have 32 bytes, and nobody else may read it (mode 0600)");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    check("another key", "store.redb: the store was sealed with another key: name that one with `--state-key`");
    fs::write(&key, &kept[..31]).unwrap();
    check("no whole key", "it must have 32 bytes");
    // A key in another place works too.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(&key, elsewhere.path().join("key")).unwrap();
    fs::write(elsewhere.path().join("key"), kept).unwrap();
    let store = Database::open_with(state.path(), &elsewhere.path().join("key")).unwrap();
    assert_eq!(store.documents(5).unwrap(), Some(documents("5")));
}

fn positions(bytes: &[u8], text: &[u8]) -> Vec<usize> {
    let found: Vec<_> = bytes.windows(text.len()).enumerate().filter(|(_, part)| *part == text).collect();
    assert!(!found.is_empty(), "{:?} is nowhere in the file", String::from_utf8_lossy(text));
    found.into_iter().map(|(place, _)| place).collect()
}

fn position(bytes: &[u8], text: &[u8]) -> usize {
    *positions(bytes, text).last().unwrap()
}

#[test]
fn never_gives_out_what_was_not_written_whatever_byte_is_damaged() {
    let state = tempfile::tempdir().unwrap();
    filled(state.path());
    let path = state.path().join("store.redb");
    let whole = fs::read(&path).unwrap();
    let used: Vec<_> = (0..whole.len()).filter(|place| whole[*place] != 0).collect();
    let (mut noticed, mut harmless) = (0, 0);
    for place in used.iter().step_by(used.len() / 150) {
        let mut bytes = whole.clone();
        bytes[*place] ^= 0x55;
        fs::write(&path, &bytes).unwrap();
        match Database::open(state.path()).and_then(|store| Ok((store.latest()?, store.documents(5)?))) {
            Ok((latest, found)) => {
                let latest = latest.unwrap();
                assert_eq!((latest.number, found), (5, Some(documents("5"))), "byte {place}");
                harmless += 1;
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged { .. }), "byte {place}: {error}");
                noticed += 1;
            }
        }
    }
    println!("{noticed} noticed, {harmless} harmless");
    assert!(noticed > 0 && harmless > 0);
}

#[test]
fn purges_documents_from_all_revisions_that_have_them() {
    on_both(|store| {
        for text in ["one", "two", "one"] {
            store.append(draft(text), Parent::Latest).unwrap();
        }
        let one = |documents: &[Document]| {
            let found = documents.iter().enumerate().filter(|(_, document)| document.text == b"one");
            found.map(|(index, _)| index).collect::<BTreeSet<_>>()
        };
        assert_eq!(store.purge("Consumer `one`", &one).unwrap(), [1, 3]);
        assert_eq!(store.purge("Consumer `one`", &one).unwrap(), [0; 0], "it is gone");
        let left = [document("b.yaml", "the same")];
        assert_eq!(
            (store.documents(1).unwrap().unwrap(), store.documents(3).unwrap().unwrap()),
            (left.to_vec(), left.to_vec())
        );
        assert_eq!(store.documents(2).unwrap().unwrap(), documents("two"));
        let third = store.latest().unwrap().unwrap();
        assert_eq!(
            (third.purged, third.digest, third.documents),
            (vec!["Consumer `one`".to_owned()], String::new(), 1)
        );
        assert_eq!(store.revision(2).unwrap().unwrap().purged, [""; 0]);
        assert_eq!(numbers(store), [3, 2, 1]);
    });
}
