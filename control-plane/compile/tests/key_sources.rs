//! When a published key set is fetched, and the effect of each answer. Time and chance are arguments.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "test code"
)]

use std::time::Duration;

use postern_compile::keys::{Content, Fetch, Fetched, Source, Sources, StoredKeySet};
use postern_model::{File, KeyUri};
use serde_json::{Value, json};

fn jwk(name: &str, id: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("fixtures/keys.json")).unwrap();
    let mut jwk = all[name]["jwk"].clone();
    jwk["kid"] = json!(id);
    jwk
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn uri(text: &str) -> KeyUri {
    KeyUri::try_from(text.to_owned()).unwrap()
}

fn body(keys: &[Value], max_age: Option<u64>) -> Fetched {
    let content = Content::Body(json!({ "keys": keys }).to_string().into_bytes(), Some("\"v\"".into()));
    Fetched::Fresh { content, max_age: max_age.map(Duration::from_secs) }
}

fn failed() -> Fetched {
    Fetched::Failed("no answer".into())
}

/// A source with a set that was fetched at time 0, with chance 1, so that no wait is shortened.
fn fetched(refresh: u64) -> Source {
    let mut source = Source::new(Duration::from_secs(refresh), Duration::ZERO);
    source.start(&uri("https://a/"));
    assert!(source.finish(body(&[jwk("p256", "a")], None), Duration::ZERO, 1.0));
    source
}

fn ids(source: &Source) -> Vec<String> {
    source.set().map_or(vec![], |set| set.keys().iter().filter_map(|key| key.id.clone()).collect())
}

#[test]
fn fetches_at_once_and_then_every_interval() {
    let mut source = Source::new(seconds(300.0), seconds(7.0));
    assert_eq!(source.due(), Some(seconds(7.0)));
    assert_eq!(source.start(&uri("https://a/")), Fetch { uri: uri("https://a/"), tag: None });
    assert_eq!(source.due(), None, "while it is under way, nothing is due");
    source.finish(body(&[jwk("p256", "a")], None), seconds(8.0), 1.0);
    assert_eq!(source.due(), Some(seconds(308.0)));
    // Chance shortens a wait by at most a tenth.
    source.start(&uri("https://a/"));
    source.finish(body(&[jwk("p256", "a")], None), seconds(308.0), 0.0);
    assert_eq!(source.due(), Some(seconds(578.0)));
}

#[test]
fn a_set_rotates_overlaps_and_loses_a_key() {
    let (a, b) = (jwk("p256", "a"), jwk("p384", "b"));
    let mut source = fetched(300);
    for (keys, changed, expect) in [
        (vec![a.clone()], false, vec!["a"]),
        (vec![a.clone(), b.clone()], true, vec!["a", "b"]),
        (vec![a, b.clone()], false, vec!["a", "b"]),
        (vec![b], true, vec!["b"]),
    ] {
        source.start(&uri("https://a/"));
        assert_eq!(source.finish(body(&keys, None), seconds(1.0), 0.5), changed);
        assert_eq!(ids(&source), expect);
    }
}

#[test]
fn keeps_the_last_good_set_through_an_outage() {
    let mut source = fetched(300);
    let bad = [
        failed(),
        body(&[], None),
        body(&[json!({ "kty": "new" })], None),
        Fetched::Fresh { content: Content::Body(b"<html>".to_vec(), None), max_age: None },
    ];
    for (time, answer) in bad.into_iter().cycle().take(1_000).enumerate() {
        source.start(&uri("https://a/"));
        assert!(!source.finish(answer, seconds(time as f64), 0.5));
        assert_eq!(ids(&source), ["a"]);
        assert!(source.last_error().is_some());
    }
    assert_eq!(source.last_success(), Some(Duration::ZERO));
    source.start(&uri("https://a/"));
    assert!(!source.finish(body(&[jwk("p256", "a")], None), seconds(2_000.0), 0.5));
    assert!(source.last_error().is_none());
    assert_eq!(source.last_success(), Some(seconds(2_000.0)));
}

#[test]
fn waits_longer_after_each_failure_up_to_a_bound() {
    for (refresh, expect) in [
        (300, vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),
        (5, vec![1.0, 2.0, 4.0, 5.0, 5.0]),
        (1, vec![1.0, 1.0, 1.0]),
    ] {
        for chance in [0.0, 0.3, 1.0, 7.0, -1.0, f64::NAN] {
            let mut source = fetched(refresh);
            for longest in &expect {
                source.start(&uri("https://a/"));
                source.finish(failed(), seconds(100.0), chance);
                let wait = source.due().unwrap() - seconds(100.0);
                assert!(wait >= seconds(longest / 2.0) && wait <= seconds(*longest), "{refresh} {chance}: {wait:?}");
            }
        }
    }
    let mut source = fetched(300);
    for _ in 0..10_000 {
        source.start(&uri("https://a/"));
        source.finish(failed(), Duration::MAX - seconds(1.0), 1.0);
    }
    source.start(&uri("https://a/"));
    source.finish(body(&[jwk("p256", "b")], None), seconds(1.0), 1.0);
    source.start(&uri("https://a/"));
    source.finish(failed(), seconds(1.0), 1.0);
    assert_eq!(source.due(), Some(seconds(2.0)), "a success forgets the failures before it");
}

#[test]
fn is_as_fresh_as_the_answer_says_within_bounds() {
    let check = |refresh: u64, max_age: u64, expect: f64| {
        let mut source = fetched(refresh);
        source.start(&uri("https://a/"));
        source.finish(body(&[jwk("p256", "a")], Some(max_age)), Duration::ZERO, 1.0);
        assert_eq!(source.due(), Some(seconds(expect)), "{refresh} {max_age}");
    };
    check(300, 60, 60.0);
    check(300, 3_600, 300.0);
    check(300, 0, 10.0);
    check(1, 0, 1.0);
    check(1, 60, 1.0);
    check(20, u64::MAX, 20.0);
}

#[test]
fn takes_not_modified_only_for_what_is_known() {
    let unchanged = || Fetched::Fresh { content: Content::Unchanged, max_age: None };
    let mut source = fetched(300);
    assert_eq!(source.start(&uri("https://a/")).tag.as_deref(), Some("\"v\""));
    assert!(!source.finish(unchanged(), seconds(5.0), 1.0));
    assert_eq!((ids(&source), source.last_success()), (vec!["a".to_owned()], Some(seconds(5.0))));
    let mut source = Source::new(seconds(300.0), Duration::ZERO);
    source.start(&uri("https://a/"));
    assert!(!source.finish(unchanged(), seconds(5.0), 1.0));
    assert!(source.last_error().is_some() && source.set().is_none());
}

fn bundle(issuers: &[(&str, &str, &str)]) -> postern_model::Bundle {
    let document = |(name, uri, refresh): &(&str, &str, &str)| {
        format!(
            "---\napiVersion: postern/v1\nkind: Issuer\nmetadata: {{name: {name}}}\n\
             spec: {{issuer: {name}, jwksUri: '{uri}', refresh: {refresh}}}\n"
        )
    };
    let text: String = issuers.iter().map(document).collect();
    postern_model::read(&[File { name: "f".into(), bytes: text.into_bytes() }]).unwrap()
}

#[test]
fn wants_each_place_once_as_often_as_the_keenest() {
    let mut sources = Sources::default();
    sources.want(
        &bundle(&[("x", "https://a/", "5m"), ("y", "https://a/", "1m"), ("z", "https://b/", "1h")]),
        seconds(1.0),
    );
    let started: Vec<_> = sources.start_due(seconds(1.0)).into_iter().map(|fetch| fetch.uri).collect();
    assert_eq!(started, [uri("https://a/"), uri("https://b/")]);
    assert_eq!(sources.start_due(seconds(1.0)), []);
    assert!(sources.finish(&uri("https://a/"), body(&[jwk("p256", "a")], None), seconds(2.0), 1.0));
    assert_eq!(sources.get(&uri("https://a/")).unwrap().due(), Some(seconds(62.0)));
    assert_eq!(sources.next_due(seconds(2.0)), Some(seconds(62.0)));
    assert!(sources.sets().get(&uri("https://a/")).is_some());
    assert!(sources.sets().get(&uri("https://b/")).is_none());
}

#[test]
fn keeps_what_it_knows_of_a_place_that_stays_wanted() {
    let mut sources = Sources::default();
    sources.want(&bundle(&[("x", "https://a/", "5m"), ("y", "https://b/", "5m")]), Duration::ZERO);
    sources.start_due(Duration::ZERO);
    sources.finish(&uri("https://a/"), body(&[jwk("p256", "a")], None), Duration::ZERO, 1.0);
    sources.want(&bundle(&[("x", "https://a/", "30s")]), seconds(10.0));
    assert!(sources.sets().get(&uri("https://a/")).is_some());
    assert_eq!(sources.get(&uri("https://a/")).unwrap().due(), Some(seconds(30.0)), "a shorter interval counts now");
    // A set that is no longer wanted is dropped, even during a fetch.
    assert!(!sources.finish(&uri("https://b/"), body(&[jwk("p256", "b")], None), seconds(11.0), 1.0));
    assert!(sources.get(&uri("https://b/")).is_none());
}

#[test]
fn bounds_how_many_fetches_are_under_way() {
    let issuers: Vec<_> = (0..20).map(|index| (format!("i{index}"), format!("https://host{index:02}/"))).collect();
    let issuers: Vec<_> = issuers.iter().map(|(name, uri)| (name.as_str(), uri.as_str(), "5m")).collect();
    let mut sources = Sources::default();
    sources.want(&bundle(&issuers), Duration::ZERO);
    let started = sources.start_due(Duration::ZERO);
    assert_eq!((started.len(), sources.start_due(Duration::ZERO).len()), (8, 0));
    sources.finish(&started[0].uri, failed(), Duration::ZERO, 1.0);
    assert_eq!(sources.start_due(Duration::ZERO).len(), 1);
}

#[test]
fn reports_how_each_set_is_doing() {
    let mut sources = Sources::default();
    sources.want(&bundle(&[("x", "https://a/", "5m"), ("y", "https://b/", "5m")]), Duration::ZERO);
    sources.start_due(Duration::ZERO);
    sources.finish(&uri("https://a/"), body(&[jwk("p256", "a"), json!({})], None), seconds(1.0), 1.0);
    sources.finish(&uri("https://b/"), failed(), seconds(2.0), 1.0);
    let report = serde_json::to_value(sources.report()).unwrap();
    let missing = "keys[1]: kty: missing required member `kty`";
    assert_eq!(
        report,
        json!([
            {
                "uri": "https://a/", "state": "fresh", "keys": 1, "skipped": [missing],
                "lastSuccess": 1, "nextFetch": 301,
            },
            {
                "uri": "https://b/", "state": "missing", "keys": 0,
                "lastError": { "at": 2, "message": "no answer" }, "nextFetch": 3,
            },
        ])
    );
}

/// What an earlier process keeps, of one set with one key.
fn stored(at: f64) -> Vec<StoredKeySet> {
    let mut sources = Sources::default();
    sources.want(&bundle(&[("x", "https://a/", "5m")]), Duration::ZERO);
    sources.start_due(Duration::ZERO);
    sources.finish(&uri("https://a/"), body(&[jwk("p256", "a")], None), seconds(at), 1.0);
    sources.stored()
}

#[test]
fn a_later_process_knows_the_keys_at_once_and_fetches_them_behind() {
    let text = serde_json::to_vec(&stored(1_000.0)).unwrap();
    let mut sources = Sources::default();
    sources.restore(serde_json::from_slice::<Vec<_>>(&text).unwrap(), seconds(2_000.0));
    assert!(sources.sets().get(&uri("https://a/")).is_some(), "before anything is wanted: it is compiled first");
    sources.want(&bundle(&[("x", "https://a/", "5m")]), seconds(2_000.0));
    let report = &serde_json::to_value(sources.report()).unwrap()[0];
    assert_eq!((&report["state"], &report["lastSuccess"]), (&json!("restored"), &json!(1_000)));
    let fetch = Fetch { uri: uri("https://a/"), tag: Some("\"v\"".to_owned()) };
    assert_eq!(sources.start_due(seconds(2_000.0)), [fetch]);
    let (content, max_age) = (Content::Unchanged, None);
    assert!(!sources.finish(&uri("https://a/"), Fetched::Fresh { content, max_age }, seconds(2_001.0), 1.0));
    assert_eq!(serde_json::to_value(sources.report()).unwrap()[0]["state"], "fresh");
}

#[test]
fn a_publisher_that_is_down_after_a_restart_leaves_the_keys_that_were_kept() {
    let mut sources = Sources::default();
    sources.restore(stored(1_000.0), seconds(2_000.0));
    sources.want(&bundle(&[("x", "https://a/", "5m")]), seconds(2_000.0));
    sources.start_due(seconds(2_000.0));
    sources.finish(&uri("https://a/"), failed(), seconds(2_001.0), 1.0);
    assert!(sources.sets().get(&uri("https://a/")).is_some());
    let report = &serde_json::to_value(sources.report()).unwrap()[0];
    assert_eq!((&report["state"], &report["lastSuccess"]), (&json!("stale"), &json!(1_000)));
    assert_eq!(sources.stored(), stored(1_000.0), "and they are kept on");
}

#[test]
fn what_was_kept_is_no_younger_than_now_and_a_set_that_cannot_be_read_is_not_known() {
    let mut sources = Sources::default();
    let [set] = <[_; 1]>::try_from(stored(3_000.0)).unwrap();
    let damaged = StoredKeySet { uri: uri("https://b/"), text: "{}".to_owned(), ..set.clone() };
    sources.restore([set, damaged], seconds(2_000.0));
    let report = serde_json::to_value(sources.report()).unwrap();
    assert_eq!((&report[0]["state"], &report[0]["lastSuccess"]), (&json!("restored"), &json!(2_000)));
    assert_eq!(report[1]["state"], "missing");
    assert!(sources.sets().get(&uri("https://b/")).is_none());
}

#[test]
fn a_set_that_is_no_longer_wanted_is_not_kept() {
    let mut sources = Sources::default();
    sources.restore(stored(1_000.0), seconds(2_000.0));
    sources.want(&bundle(&[]), seconds(2_000.0));
    assert_eq!(sources.stored(), []);
}
