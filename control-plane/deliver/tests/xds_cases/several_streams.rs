//! Several streams of one node, and nodes that subscribe to a part of a type: case 44.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use std::sync::Arc;

use postern_base::node::NodeIdentity;
use postern_compile::snapshot::ResourceType::{self, Cluster, Endpoints, RouteConfiguration};
use postern_deliver::xds::{
    Offers,
    content::Variant,
    session::{Reaction, Response},
};
use postern_release::{
    fleet::{Fleet, Learnt},
    publication::Publication,
    releases::observed,
    rollout::Standing,
};

use crate::client::{BOTH, Client, SILENCE, all, assembled, endpoints, only, snapshot, told};

/// A node, its streams, and its entry in the fleet.
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

    /// Opens a stream, serves it a snapshot and subscribes to names.
    fn stream(&mut self, snapshot: &Arc<Offers>, kind: ResourceType, names: &[&str]) -> (Stream, Vec<Response>) {
        let joined = self.fleet.connect(&Self::identity(), Self::now());
        let mut stream =
            Stream { number: joined.stream, client: Client::of(self.variant, joined.stream, joined.memory.recall()) };
        let reaction = stream.client.publish_events(snapshot);
        stream.record(self, reaction);
        let responses = stream.client.subscribe(kind, names);
        (stream, responses)
    }

    /// Like [`Self::stream`], and accepts what it gets.
    fn served(&mut self, snapshot: &Arc<Offers>, kind: ResourceType, names: &[&str]) -> Stream {
        let (mut stream, responses) = self.stream(snapshot, kind, names);
        for response in responses {
            stream.answer(self, &response, None);
        }
        stream
    }

    /// The node's message for its refusal of a type.
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

    fn publish(&mut self, node: &mut Node, snapshot: &Arc<Offers>) -> Vec<Response> {
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
    let first = endpoints("left=1 right=1");
    let mut right = node.served(&first, Endpoints, &["right"]);
    let mut left = node.served(&first, Endpoints, &["left"]);
    let changed = endpoints("left=2 right=2");
    let (for_right, for_left) = (only(right.publish(&mut node, &changed)), only(left.publish(&mut node, &changed)));
    assert_eq!(told(&right.answer(&mut node, &for_right, Some("no right"))), SILENCE);
    left.answer(&mut node, &for_left, None);
    (node, right, left)
}

#[test]
fn case_44_what_one_stream_accepts_does_not_undo_what_another_refused() {
    for variant in BOTH {
        let (mut node, mut right, mut left) = one_refused(variant);
        assert_eq!(node.refused(Endpoints).as_deref(), Some("no right"), "{variant:?}");
        assert!(node.fleet.sightings()[0].refused.iter().any(|(_, refusal)| refusal.carried[0].0 == "right"));
        // Two refusals of two streams are two.
        let changed = endpoints("left=3 right=2");
        assert_eq!(told(&right.publish(&mut node, &changed)), SILENCE, "{variant:?}");
        let for_left = only(left.publish(&mut node, &changed));
        left.answer(&mut node, &for_left, Some("no left"));
        assert_eq!(node.fleet.sightings()[0].refused.len(), 2, "{variant:?}");
        // Each ends with the stream's own acceptance.
        let mended = endpoints("left=3 right=3");
        let for_right = only(right.publish(&mut node, &mended));
        right.answer(&mut node, &for_right, None);
        assert_eq!(node.refused(Endpoints).as_deref(), Some("no left"), "{variant:?}");
        let for_left = only(left.publish(&mut node, &endpoints("left=4 right=3")));
        left.answer(&mut node, &for_left, None);
        assert_eq!(node.refused(Endpoints), None, "{variant:?}");
    }
}

#[test]
fn case_44_a_stream_that_comes_back_gets_its_last_good_resource_whatever_others_accepted() {
    for variant in BOTH {
        let (mut node, right, left) = one_refused(variant);
        right.end(&mut node);
        let changed = endpoints("left=2 right=2");
        let (mut right, responses) = node.stream(&changed, Endpoints, &["right"]);
        assert_eq!(told(&responses), ["EDS right=1"], "{variant:?}");
        right.answer(&mut node, &responses[0], None);
        assert_eq!(node.refused(Endpoints).as_deref(), Some("no right"), "it runs another one than it should");
        // On a stream that has both, too, whichever stream each was learnt on.
        let (_, responses) = node.stream(&changed, Endpoints, &["left", "right"]);
        assert_eq!(told(&responses), ["EDS left=2 right=1"], "{variant:?}");
        drop(left);
    }
}

#[test]
fn case_44_a_stream_that_is_open_does_not_bring_what_another_has_refused() {
    for variant in BOTH {
        let (mut node, _right, mut left) = one_refused(variant);
        let names: &[&str] = if variant == Variant::Incremental { &["right"] } else { &["left", "right"] };
        let responses = left.client.subscribe(Endpoints, names);
        let expect = if variant == Variant::Incremental { "EDS right=1" } else { "EDS left=2 right=1" };
        assert_eq!(told(&responses), [expect], "{variant:?}");
        left.answer(&mut node, &responses[0], None);
        let mended = left.publish(&mut node, &endpoints("left=2 right=3"));
        left.answer(&mut node, &mended[0], None);
        assert_eq!(node.refused(Endpoints), None, "what is accepted counts for the node: {variant:?}");
    }
}

#[test]
fn case_44_what_is_left_beside_a_resource_that_another_stream_refused_is_not_sent_twice() {
    for variant in BOTH {
        let (mut node, _right, _left) = one_refused(variant);
        let (mut both, responses) = node.stream(&endpoints("baz=1 right=2"), Endpoints, &["baz", "right"]);
        assert_eq!(told(&responses), ["EDS baz=1 right=1"], "{variant:?}");
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
        let made = endpoints("left=1 right=1");
        let (mut first, responses) = node.stream(&made, Endpoints, &["right"]);
        first.answer(&mut node, &responses[0], Some("no"));
        first.end(&mut node);
        let mut second = node.served(&made, Endpoints, &["left", "right"]);
        second.client.subscribe(Endpoints, &["left", "right"]);
        // Only what was refused alone is wanted now, and it has that.
        let (mut third, responses) = node.stream(&made, Endpoints, &["right"]);
        assert_eq!(told(&responses), ["EDS right=1"], "{variant:?}");
        assert_eq!(told(&third.answer(&mut node, &responses[0], None)), SILENCE);
        assert_eq!(node.refused(Endpoints), None, "{variant:?}");
    }
}

#[test]
fn case_44_what_a_stream_that_has_ended_refused_is_history_once_the_node_runs_all_it_wants() {
    for variant in BOTH {
        let (mut node, right, mut left) = one_refused(variant);
        right.end(&mut node);
        let for_left = only(left.publish(&mut node, &endpoints("left=3 right=2")));
        left.answer(&mut node, &for_left, None);
        assert_eq!(node.refused(Endpoints), None, "{variant:?}");
    }
}

/// The standing of a node with a release that has these resources.
fn standing(node: &Node, resources: &str) -> Standing {
    let snapshot = assembled(&all(RouteConfiguration, resources));
    observed(&node.fleet.sightings()[0], &Publication::uniform(snapshot)).standing
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
        // It does not refuse a set with another version of the resource, or one without a resource that it asked for.
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
