use envoy_types::pb::google::protobuf::Any;

use super::{super::kept::resource, *};

const CLUSTERS: ResourceType = ResourceType::Cluster;
const ENDPOINTS: ResourceType = ResourceType::Endpoints;

/// A stream whose time is an argument.
struct Stream {
    tracker: Tracker,
    now: Instant,
}

fn made(name: &str, content: &str) -> Arc<Resource> {
    resource(name.to_owned(), "", Any { type_url: String::new(), value: content.into() })
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn version(number: u8) -> String {
    Digest::of(&[number]).as_str().to_owned()
}

impl Stream {
    fn new(variant: Variant, before: Sets) -> Self {
        Self { tracker: Tracker::new(variant, before), now: Instant::now() }
    }

    fn world(&mut self, kind: ResourceType, names: &[&str], version: &str, nonce: &str, error: bool) -> Doubts {
        let wish = Wish::All { names: owned(names), version: version.to_owned() };
        let request = Request { kind, nonce: nonce.to_owned(), error: error.then(|| "no".to_owned()), wish };
        self.tracker.on_request(&request, self.now)
    }

    fn changes(
        &mut self,
        kind: ResourceType,
        unsubscribe: &[&str],
        initial: &[(&str, &str)],
        nonce: &str,
        error: bool,
    ) -> Doubts {
        let initial = initial.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
        let wish = Wish::Changes { subscribe: Vec::new(), unsubscribe: owned(unsubscribe), initial };
        let request = Request { kind, nonce: nonce.to_owned(), error: error.then(|| "no".to_owned()), wish };
        self.tracker.on_request(&request, self.now)
    }

    /// A response whose nonce is its number.
    fn sends(&mut self, kind: ResourceType, number: u8, resources: &[(&str, &str)], removed: &[&str]) {
        let resources = resources.iter().map(|(name, content)| made(name, content)).collect();
        let (nonce, version) = (number.to_string(), version(number));
        self.tracker.on_response(Received { kind, nonce, version, resources, removed: owned(removed) });
    }

    /// What is to be kept now, as text; `None` if nothing is.
    fn kept(&mut self) -> Option<String> {
        self.tracker.take(self.now).as_ref().map(shown)
    }
}

fn shown(sets: &Sets) -> String {
    let one = |resource: &Arc<Resource>| format!("{}={}", resource.name, String::from_utf8_lossy(&resource.body.value));
    let set = |(kind, set): (&ResourceType, &ResourceSet)| {
        format!("{kind}: {}", set.resources.iter().map(one).collect::<Vec<_>>().join(" "))
    };
    sets.iter().map(set).collect::<Vec<_>>().join("; ")
}

fn kept_before(kind: ResourceType, number: u8, resources: &[(&str, &str)]) -> (ResourceType, ResourceSet) {
    let resources = resources.iter().map(|(name, content)| made(name, content)).collect();
    (kind, ResourceSet { version: Digest::of(&[number]), resources })
}

#[test]
fn keeps_what_is_accepted_and_nothing_that_is_refused_or_unanswered() {
    let mut stream = Stream::new(Variant::StateOfTheWorld, Sets::new());
    stream.world(CLUSTERS, &[], "", "", false);
    stream.sends(CLUSTERS, 1, &[("a", "1")], &[]);
    assert_eq!(stream.kept(), None, "it is not answered");
    stream.world(CLUSTERS, &[], "", "1", true);
    assert_eq!(stream.kept(), None, "it is refused");
    stream.sends(CLUSTERS, 2, &[("a", "2"), ("b", "2")], &[]);
    stream.world(CLUSTERS, &[], &version(2), "2", false);
    assert_eq!(stream.kept().as_deref(), Some("CDS: a=2 b=2"));
    assert_eq!(stream.kept(), None, "nothing has changed");
    stream.sends(CLUSTERS, 3, &[("b", "3")], &[]);
    stream.world(CLUSTERS, &[], &version(3), "3", false);
    assert_eq!(stream.kept().as_deref(), Some("CDS: b=3"), "it is the whole state");
    stream.world(CLUSTERS, &[], &version(3), "7", false);
    assert_eq!(stream.kept(), None, "a nonce that was never issued");
}

#[test]
fn tells_answers_to_several_responses_in_flight_apart() {
    let mut stream = Stream::new(Variant::StateOfTheWorld, Sets::new());
    stream.world(CLUSTERS, &[], "", "", false);
    for number in 1..=3 {
        stream.sends(CLUSTERS, number, &[("a", &number.to_string())], &[]);
    }
    stream.world(CLUSTERS, &[], &version(1), "1", false);
    assert_eq!(stream.kept(), None, "others are still to be answered");
    stream.world(CLUSTERS, &[], &version(1), "2", true);
    assert_eq!(stream.kept(), None);
    stream.world(CLUSTERS, &[], &version(1), "3", true);
    assert_eq!(stream.kept().as_deref(), Some("CDS: a=1"));
    // One answer for two responses: the version says that the first was accepted.
    stream.sends(CLUSTERS, 4, &[("a", "4")], &[]);
    stream.sends(CLUSTERS, 5, &[("a", "5")], &[]);
    stream.world(CLUSTERS, &[], &version(4), "5", true);
    assert_eq!(stream.kept().as_deref(), Some("CDS: a=4"));
}

#[test]
fn adds_by_name_where_a_response_is_not_the_whole_state() {
    let mut stream = Stream::new(Variant::StateOfTheWorld, Sets::new());
    stream.world(ENDPOINTS, &["a"], "", "", false);
    stream.sends(ENDPOINTS, 1, &[("a", "1")], &[]);
    stream.world(ENDPOINTS, &["a"], &version(1), "1", false);
    stream.world(ENDPOINTS, &["a", "b"], &version(1), "1", false);
    stream.sends(ENDPOINTS, 2, &[("b", "2")], &[]);
    stream.world(ENDPOINTS, &["a", "b"], &version(2), "2", false);
    assert_eq!(stream.kept().as_deref(), Some("EDS: a=1 b=2"));
    // Names with a stale nonce do not count, those with the latest do.
    stream.world(ENDPOINTS, &["b"], &version(2), "1", false);
    assert_eq!(stream.kept(), None);
    stream.world(ENDPOINTS, &["b"], &version(2), "2", false);
    assert_eq!(stream.kept().as_deref(), Some("EDS: b=2"));
}

#[test]
fn a_version_stands_for_exactly_what_came_with_it() {
    let mut stream = Stream::new(Variant::StateOfTheWorld, Sets::new());
    let version_of = |stream: &mut Stream| {
        let sets = stream.tracker.take(stream.now).unwrap();
        sets[&ENDPOINTS].version.as_str().to_owned()
    };
    stream.world(ENDPOINTS, &["a", "b"], "", "", false);
    stream.sends(ENDPOINTS, 1, &[("a", "1"), ("b", "1")], &[]);
    stream.world(ENDPOINTS, &["a", "b"], &version(1), "1", false);
    assert_eq!(version_of(&mut stream), version(1));
    stream.world(ENDPOINTS, &["a"], &version(1), "1", false);
    assert_ne!(version_of(&mut stream), version(1));
    stream.world(ENDPOINTS, &["a", "c"], &version(1), "1", false);
    stream.sends(ENDPOINTS, 2, &[("c", "2")], &[]);
    stream.world(ENDPOINTS, &["a", "c"], &version(2), "2", false);
    assert_ne!(version_of(&mut stream), version(2));
}

#[test]
fn adds_and_removes_by_name_in_the_incremental_variant() {
    let mut stream = Stream::new(Variant::Incremental, Sets::new());
    stream.changes(CLUSTERS, &[], &[], "", false);
    stream.sends(CLUSTERS, 1, &[("a", "1"), ("b", "1")], &[]);
    stream.changes(CLUSTERS, &[], &[], "1", false);
    assert_eq!(stream.kept().as_deref(), Some("CDS: a=1 b=1"));
    stream.sends(CLUSTERS, 2, &[("a", "2")], &["b"]);
    stream.changes(CLUSTERS, &[], &[], "2", true);
    assert_eq!(stream.kept(), None, "it is refused");
    stream.sends(CLUSTERS, 3, &[("a", "3")], &["b"]);
    stream.changes(CLUSTERS, &[], &[], "3", false);
    assert_eq!(stream.kept().as_deref(), Some("CDS: a=3"));
    stream.changes(ENDPOINTS, &[], &[], "", false);
    stream.sends(ENDPOINTS, 1, &[("a", "1"), ("b", "1")], &[]);
    stream.changes(ENDPOINTS, &[], &[], "1", false);
    stream.changes(ENDPOINTS, &["a"], &[], "", false);
    assert_eq!(stream.kept().as_deref(), Some("CDS: a=3; EDS: b=1"));
}

#[test]
fn relays_claims_only_of_what_is_kept() {
    let before = || Sets::from([kept_before(CLUSTERS, 1, &[("a", "1"), ("b", "1")])]);
    let mut stream = Stream::new(Variant::StateOfTheWorld, before());
    assert_eq!(stream.world(CLUSTERS, &[], &version(1), "", false), Doubts::default());
    assert_eq!(stream.kept(), None, "it is as it was");
    let mut stream = Stream::new(Variant::StateOfTheWorld, before());
    assert_eq!(stream.world(CLUSTERS, &[], &version(2), "", false), Doubts { version: true, ..Doubts::default() });
    assert_eq!(stream.kept(), None);

    let (of_a, other) = (made("a", "1").version.to_string(), version(9));
    let claims = [("a", of_a.as_str()), ("b", other.as_str()), ("c", other.as_str())];
    let mut stream = Stream::new(Variant::Incremental, before());
    let doubts = stream.changes(CLUSTERS, &[], &claims, "", false);
    assert_eq!(doubts.names.into_iter().collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(stream.kept(), None, "what it has is not known yet");
    stream.sends(CLUSTERS, 3, &[("b", "3")], &["c"]);
    stream.changes(CLUSTERS, &[], &[], "3", false);
    assert_eq!(stream.kept().as_deref(), Some("CDS: a=1 b=3"));
}

#[test]
fn keeps_all_that_was_there_until_an_envoy_that_starts_anew_has_as_much() {
    let before = [kept_before(CLUSTERS, 1, &[("a", "1")]), kept_before(ENDPOINTS, 1, &[("a", "1")])];
    let mut stream = Stream::new(Variant::StateOfTheWorld, before.into());
    stream.world(CLUSTERS, &[], "", "", false);
    stream.sends(CLUSTERS, 2, &[("b", "2")], &[]);
    stream.world(CLUSTERS, &[], &version(2), "2", false);
    assert_eq!(stream.kept(), None, "new clusters with old endpoints are no configuration");
    stream.world(ENDPOINTS, &["b"], "", "", false);
    stream.sends(ENDPOINTS, 2, &[("b", "2")], &[]);
    assert_eq!(stream.kept(), None);
    stream.world(ENDPOINTS, &["b"], &version(2), "2", false);
    assert_eq!(stream.kept().as_deref(), Some("CDS: b=2; EDS: b=2"));
}

#[test]
fn waits_no_longer_than_its_patience() {
    let before = [kept_before(CLUSTERS, 1, &[("a", "1")]), kept_before(ENDPOINTS, 1, &[("a", "1")])];
    let mut stream = Stream::new(Variant::StateOfTheWorld, before.into());
    stream.world(CLUSTERS, &[], "", "", false);
    stream.sends(CLUSTERS, 2, &[], &[]);
    stream.world(CLUSTERS, &[], &version(2), "2", false);
    assert_eq!(stream.kept(), None);
    assert_eq!(stream.tracker.deadline(), Some(stream.now + PATIENCE));
    stream.now += PATIENCE;
    assert_eq!(stream.kept().as_deref(), Some("CDS: ; EDS: a=1"), "what it no longer asks for does no harm");
    assert_eq!(stream.tracker.deadline(), None);
}

#[test]
fn remembers_a_bounded_number_of_unanswered_responses() {
    let mut stream = Stream::new(Variant::Incremental, Sets::new());
    stream.changes(CLUSTERS, &[], &[], "", false);
    for number in 0..=255 {
        stream.sends(CLUSTERS, number, &[("a", "1")], &[]);
    }
    assert_eq!(stream.tracker.tracks[&CLUSTERS].sent.len(), MOST_UNANSWERED);
    stream.changes(CLUSTERS, &[], &[], "0", false);
    assert_eq!(stream.kept(), None, "it is forgotten");
    stream.changes(CLUSTERS, &[], &[], "255", false);
    assert_eq!(stream.kept().as_deref(), Some("CDS: a=1"));
}

#[test]
fn what_is_kept_is_current_only_while_all_of_it_came_and_nothing_is_unanswered() {
    let before =
        || Sets::from([kept_before(CLUSTERS, 1, &[("a", "1")]), kept_before(ResourceType::Listener, 1, &[("l", "1")])]);
    let mut stream = Stream::new(Variant::StateOfTheWorld, before());
    assert!(!stream.tracker.is_current(), "nothing came");
    stream.world(CLUSTERS, &[], &version(1), "", false);
    assert!(!stream.tracker.is_current(), "the listeners may be others");
    stream.world(ResourceType::Listener, &[], &version(1), "", false);
    assert!(stream.tracker.is_current());
    stream.sends(CLUSTERS, 2, &[("a", "2")], &[]);
    assert!(!stream.tracker.is_current(), "another version is on its way");
    // An Envoy that comes with nothing, and answers nothing.
    let mut stream = Stream::new(Variant::StateOfTheWorld, before());
    stream.world(CLUSTERS, &[], "", "", false);
    stream.sends(CLUSTERS, 2, &[("a", "2")], &[]);
    assert!(!stream.tracker.is_current());
}
