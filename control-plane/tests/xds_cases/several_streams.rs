//! Several streams of one node, and nodes that subscribe to a part of a type: case 44.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use std::sync::Arc;

use postern::{
    fleet::{Fleet, Learnt},
    node::NodeIdentity,
    publication::Publication,
    rollout::{Observed, Standing},
    snapshot::{
        ResourceType::{self, Cluster, Endpoints, RouteConfiguration},
        Snapshot,
    },
    xds::{
        content::Variant,
        session::{Reaction, Response},
    },
};

use crate::client::{BOTH, Client, SILENCE, all, endpoints, only, snapshot, told};

/// A node, its streams, and what the fleet makes of them.
struct Node {
    fleet: Fleet,
    variant: Variant,
}

impl Node {
    fn new(variant: Variant) -> Self {
        Self { fleet: Fleet::default(), variant }
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000)
    }

    fn identity() -> NodeIdentity {
        NodeIdentity { id: "edge".to_owned(), ..NodeIdentity::default() }
    }

    /// Opens a stream, which is served a snapshot and asks for these.
    fn stream(&mut self, snapshot: &Arc<Snapshot>, kind: ResourceType, names: &[&str]) -> (Stream, Vec<Response>) {
        let joined = self.fleet.connect(&Self::identity(), Self::now());
        let mut stream =
            Stream { number: joined.stream, client: Client::of(self.variant, joined.stream, joined.memory) };
        let reaction = stream.client.publish_events(snapshot);
        stream.record(self, reaction);
        let responses = stream.client.subscribe(kind, names);
        (stream, responses)
    }

    /// Opens a stream that accepts what it gets.
    fn served(&mut self, snapshot: &Arc<Snapshot>, kind: ResourceType, names: &[&str]) -> Stream {
        let (mut stream, responses) = self.stream(snapshot, kind, names);
        for response in responses {
            stream.answer(self, &response, None);
        }
        stream
    }

    /// What it refused of a type, in its words.
    fn refused(&self, kind: ResourceType) -> Option<String> {
        let report = self.fleet.report();
        report[0].types.get(&kind)?.refused.as_ref().map(|refusal| refusal.message.clone())
    }
}

struct Stream {
    number: u64,
    client: Client,
}

impl Stream {
    fn record(&self, node: &mut Node, reaction: Reaction) -> Vec<Response> {
        node.fleet.record("edge", self.number, Learnt { events: reaction.events, reason: None }, Node::now());
        reaction.responses
    }

    fn publish(&mut self, node: &mut Node, snapshot: &Arc<Snapshot>) -> Vec<Response> {
        let reaction = self.client.publish_events(snapshot);
        self.record(node, reaction)
    }

    fn answer(&mut self, node: &mut Node, response: &Response, error: Option<&str>) -> Vec<Response> {
        let reaction = match error {
            Some(error) => self.client.nack(response, error),
            None => self.client.ack(response),
        };
        self.record(node, reaction)
    }

    fn end(self, node: &mut Node) {
        node.fleet.disconnect("edge", self.number, Node::now());
    }
}

/// Two streams of a node, for one resource each; the first refused its change, the second accepted its own afterwards.
fn one_refused(variant: Variant) -> (Node, Stream, Stream) {
    let mut node = Node::new(variant);
    let first = endpoints("bar=1 foo=1");
    let mut foo = node.served(&first, Endpoints, &["foo"]);
    let mut bar = node.served(&first, Endpoints, &["bar"]);
    let changed = endpoints("bar=2 foo=2");
    let (for_foo, for_bar) = (only(foo.publish(&mut node, &changed)), only(bar.publish(&mut node, &changed)));
    assert_eq!(told(&foo.answer(&mut node, &for_foo, Some("no foo"))), SILENCE);
    bar.answer(&mut node, &for_bar, None);
    (node, foo, bar)
}

#[test]
fn case_44_what_one_stream_accepts_does_not_undo_what_another_refused() {
    for variant in BOTH {
        let (mut node, mut foo, mut bar) = one_refused(variant);
        assert_eq!(node.refused(Endpoints).as_deref(), Some("no foo"), "{variant:?}");
        assert!(node.fleet.sightings()[0].refused.iter().any(|(_, refusal)| refusal.carried[0].0 == "foo"));
        // Two refusals of two streams are two.
        let changed = endpoints("bar=3 foo=2");
        assert_eq!(told(&foo.publish(&mut node, &changed)), SILENCE, "{variant:?}");
        let for_bar = only(bar.publish(&mut node, &changed));
        bar.answer(&mut node, &for_bar, Some("no bar"));
        assert_eq!(node.fleet.sightings()[0].refused.len(), 2, "{variant:?}");
        // Each ends with the stream's own acceptance.
        let mended = endpoints("bar=3 foo=3");
        let for_foo = only(foo.publish(&mut node, &mended));
        foo.answer(&mut node, &for_foo, None);
        assert_eq!(node.refused(Endpoints).as_deref(), Some("no bar"), "{variant:?}");
        let for_bar = only(bar.publish(&mut node, &endpoints("bar=4 foo=3")));
        bar.answer(&mut node, &for_bar, None);
        assert_eq!(node.refused(Endpoints), None, "{variant:?}");
    }
}

#[test]
fn case_44_a_stream_that_comes_back_gets_its_last_good_resource_whatever_others_accepted() {
    for variant in BOTH {
        let (mut node, foo, bar) = one_refused(variant);
        foo.end(&mut node);
        let changed = endpoints("bar=2 foo=2");
        let (mut foo, responses) = node.stream(&changed, Endpoints, &["foo"]);
        assert_eq!(told(&responses), ["EDS foo=1"], "{variant:?}");
        foo.answer(&mut node, &responses[0], None);
        assert_eq!(node.refused(Endpoints).as_deref(), Some("no foo"), "it runs another one than it should");
        // On a stream that has both, too, whichever stream each was learnt on.
        let (_, responses) = node.stream(&changed, Endpoints, &["bar", "foo"]);
        assert_eq!(told(&responses), ["EDS bar=2 foo=1"], "{variant:?}");
        drop(bar);
    }
}

#[test]
fn case_44_a_stream_that_is_open_does_not_bring_what_another_has_refused() {
    for variant in BOTH {
        let (mut node, _foo, mut bar) = one_refused(variant);
        let names: &[&str] = if variant == Variant::Incremental { &["foo"] } else { &["bar", "foo"] };
        let responses = bar.client.subscribe(Endpoints, names);
        let expect = if variant == Variant::Incremental { "EDS foo=1" } else { "EDS bar=2 foo=1" };
        assert_eq!(told(&responses), [expect], "{variant:?}");
        bar.answer(&mut node, &responses[0], None);
        let mended = bar.publish(&mut node, &endpoints("bar=2 foo=3"));
        bar.answer(&mut node, &mended[0], None);
        assert_eq!(node.refused(Endpoints), None, "what is accepted counts for the node: {variant:?}");
    }
}

#[test]
fn case_44_what_is_left_beside_a_resource_that_another_stream_refused_is_not_sent_twice() {
    for variant in BOTH {
        let (mut node, _foo, _bar) = one_refused(variant);
        let (mut both, responses) = node.stream(&endpoints("baz=1 foo=2"), Endpoints, &["baz", "foo"]);
        assert_eq!(told(&responses), ["EDS baz=1 foo=1"], "{variant:?}");
        assert_eq!(told(&both.answer(&mut node, &responses[0], Some("no"))), SILENCE, "{variant:?}");
    }
}

#[test]
fn case_44_what_a_client_has_of_a_resource_that_another_stream_refused_is_not_taken_away() {
    for variant in BOTH {
        let mut node = Node::new(variant);
        let made = |text: &str| snapshot(&all(Cluster, text));
        // Refused before anything was accepted.
        let (mut first, responses) = node.stream(&made("a=2 b=2"), Cluster, &[]);
        first.answer(&mut node, &responses[0], Some("a is wrong"));
        let (mut second, responses) = node.stream(&made("a=1 b=2"), Cluster, &["a", "b"]);
        assert_eq!(told(&responses), ["CDS a=1 b=2"], "{variant:?}");
        // Not answered yet when the refused one is in force again.
        let changed = second.publish(&mut node, &made("a=2 b=3"));
        let expect = if variant == Variant::Incremental { "CDS b=3" } else { "CDS a=1 b=3" };
        assert_eq!(told(&changed), [expect], "{variant:?}");
    }
}

#[test]
fn case_44_a_refused_set_of_which_all_was_accepted_since_is_not_refused_any_more() {
    for variant in BOTH {
        let mut node = Node::new(variant);
        let made = endpoints("bar=1 foo=1");
        let (mut first, responses) = node.stream(&made, Endpoints, &["foo"]);
        first.answer(&mut node, &responses[0], Some("no"));
        first.end(&mut node);
        let mut second = node.served(&made, Endpoints, &["bar", "foo"]);
        second.client.subscribe(Endpoints, &["bar", "foo"]);
        // Only what was refused alone is wanted now, and it has that.
        let (mut third, responses) = node.stream(&made, Endpoints, &["foo"]);
        assert_eq!(told(&responses), ["EDS foo=1"], "{variant:?}");
        assert_eq!(told(&third.answer(&mut node, &responses[0], None)), SILENCE);
        assert_eq!(node.refused(Endpoints), None, "{variant:?}");
    }
}

#[test]
fn case_44_what_a_stream_that_has_ended_refused_is_history_once_the_node_runs_all_it_wants() {
    for variant in BOTH {
        let (mut node, foo, mut bar) = one_refused(variant);
        foo.end(&mut node);
        let for_bar = only(bar.publish(&mut node, &endpoints("bar=3 foo=2")));
        bar.answer(&mut node, &for_bar, None);
        assert_eq!(node.refused(Endpoints), None, "{variant:?}");
    }
}

/// Where a node stands with what a snapshot of these resources releases.
fn standing(node: &Node, resources: &str) -> Standing {
    let snapshot = Arc::into_inner(snapshot(&all(RouteConfiguration, resources))).unwrap();
    Observed::new(&node.fleet.sightings()[0], &Publication::uniform(snapshot)).standing
}

#[test]
fn case_44_a_refusal_of_some_resources_is_one_of_every_revision_that_has_them() {
    for variant in BOTH {
        let mut node = Node::new(variant);
        let first = snapshot(&all(RouteConfiguration, "unused=1 used=1"));
        let mut stream = node.served(&first, RouteConfiguration, &["used"]);
        assert_eq!(standing(&node, "unused=1 used=1"), Standing::Acked, "{variant:?}");
        let changed = snapshot(&all(RouteConfiguration, "unused=1 used=2"));
        let response = only(stream.publish(&mut node, &changed));
        stream.answer(&mut node, &response, Some("no"));
        let nacked = Standing::Nacked("RDS: no".to_owned());
        assert_eq!(standing(&node, "unused=1 used=2"), nacked, "{variant:?}");
        assert_eq!(standing(&node, "unused=2 used=2"), nacked, "{variant:?}");
        // Not of one that has another version of it, nor of one that it was never asked about.
        assert_eq!(standing(&node, "unused=1 used=3"), Standing::Pending, "{variant:?}");
        assert_eq!(standing(&node, "unused=1"), Standing::Pending, "{variant:?}");
    }
}

#[test]
fn case_16_a_refusal_of_clusters_leaves_other_types_alone() {
    for variant in BOTH {
        let mut node = Node::new(variant);
        let made = |cluster: &str| snapshot(&[all(Cluster, cluster), all(Endpoints, "a=1")].concat());
        let mut stream = node.served(&made("a=1"), Cluster, &[]);
        let responses = stream.publish(&mut node, &made("a=2"));
        stream.answer(&mut node, &responses[0], Some("no"));
        assert_eq!((node.refused(Cluster).as_deref(), node.refused(Endpoints)), (Some("no"), None), "{variant:?}");
    }
}
