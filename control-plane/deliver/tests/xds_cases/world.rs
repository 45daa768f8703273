//! State of the world: cases 1 to 12.

use envoy_types::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
};
use postern_compile::snapshot::ResourceType::{self, Cluster, Endpoints, Listener, RouteConfiguration};
use postern_deliver::xds::{
    content::Variant::StateOfTheWorld,
    wire::{Scope, node_of},
};
use tonic::Code;

use crate::client::{Client, SILENCE, all, clusters, endpoints, only, outcomes, snapshot, tell, told};

#[test]
fn case_01_a_wildcard_gets_all_clusters_once() {
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&clusters("a=1 b=1"));
    let response = only(client.subscribe(Cluster, &[]));
    assert_eq!(tell(&response), "CDS a=1 b=1");
    assert_eq!(response.content.version.as_str().len(), 64);
    assert!(!response.nonce.is_empty());
    let acked = client.ack(&response);
    assert_eq!((told(&acked.responses), outcomes(&acked)), (vec![], vec!["acked"]));
}

#[test]
fn case_02_every_change_of_clusters_is_told_as_the_full_set() {
    let mut client = Client::served(StateOfTheWorld, &clusters("a=1 b=1"), &[(Cluster, &[])]);
    for (change, expect) in [("a=2 b=1", "CDS a=2 b=1"), ("a=2", "CDS a=2"), ("", "CDS")] {
        let response = only(client.publish(&clusters(change)));
        assert_eq!(tell(&response), expect);
        client.ack(&response);
    }
}

#[test]
fn case_03_endpoints_are_sent_to_those_who_named_them() {
    let mut client = Client::served(StateOfTheWorld, &endpoints("a=1 b=1"), &[(Endpoints, &["a", "b"])]);
    assert!(tell(&only(client.publish(&endpoints("a=2 b=1")))).contains("a=2"));
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&endpoints("a=1 b=1"));
    assert_eq!(told(&client.subscribe(Endpoints, &["a"])), ["EDS a=1"]);
    assert_eq!(told(&client.publish(&endpoints("a=1 b=2"))), SILENCE);
}

#[test]
fn case_04_a_name_that_is_added_is_sent_at_the_same_version() {
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&endpoints("a=1 b=1"));
    let response = only(client.subscribe(Endpoints, &["a"]));
    assert_eq!(told(&client.ack(&response).responses), SILENCE);
    let more = client.request(Endpoints, "", None, &["a", "b"]);
    assert!(tell(&only(more)).contains("b=1"));
}

#[test]
fn case_05_a_name_that_is_missing_is_pushed_once_it_is_there() {
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&endpoints("a=1"));
    let response = only(client.subscribe(Endpoints, &["a", "z"]));
    assert_eq!(tell(&response), "EDS a=1");
    assert_eq!(told(&client.ack(&response).responses), SILENCE);
    assert!(tell(&only(client.publish(&endpoints("a=1 z=1")))).contains("z=1"));
}

#[test]
fn case_06_a_name_that_is_dropped_is_not_sent_any_more() {
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&endpoints("a=1 b=1"));
    let response = only(client.subscribe(Endpoints, &["a", "b"]));
    assert_eq!(told(&client.answer_with(&response, None, &["a"]).responses), SILENCE);
    assert_eq!(told(&client.publish(&endpoints("a=1 b=2"))), SILENCE);
    // Named again, it is sent again, changed or not.
    let again = client.request(Endpoints, "", None, &["a", "b"]);
    assert!(tell(&only(again)).contains("b=2"));
}

#[test]
fn case_07_no_deletion_of_endpoints_or_routes_is_told() {
    for kind in [Endpoints, RouteConfiguration] {
        let mut client = Client::served(StateOfTheWorld, &snapshot(&all(kind, "a=1 b=1")), &[(kind, &["a", "b"])]);
        assert_eq!(told(&client.publish(&snapshot(&all(kind, "a=1")))), SILENCE);
        assert_eq!(told(&client.publish(&snapshot(&[]))), SILENCE);
    }
}

#[test]
fn case_08_the_first_request_must_name_its_node_and_later_ones_need_not() {
    for status in [node_of(&DiscoveryRequest::default()), node_of(&DeltaDiscoveryRequest::default())] {
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("node.id"), "{status}");
    }
    let node = Some(Node { id: "edge".into(), ..Default::default() });
    let first = DiscoveryRequest { node, type_url: Cluster.type_url().into(), ..Default::default() };
    assert_eq!(node_of(&first).unwrap().id, "edge");
    let later = DiscoveryRequest { type_url: Cluster.type_url().into(), ..Default::default() };
    assert_eq!(Scope::Aggregated.read(later).unwrap().unwrap().kind, Cluster);
}

#[test]
fn case_09_equal_content_is_the_same_version_and_is_not_pushed() {
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&clusters("a=1 b=1"));
    let response = only(client.subscribe(Cluster, &[]));
    client.ack(&response);
    assert_eq!(told(&client.publish(&clusters("b=1 a=1"))), SILENCE);
    let mut other = Client::new(StateOfTheWorld);
    other.publish(&clusters("b=1 a=1"));
    assert_eq!(only(other.subscribe(Cluster, &[])).content.version, response.content.version);
}

#[test]
fn case_10_a_subscription_is_held_until_there_is_a_snapshot() {
    let mut client = Client::new(StateOfTheWorld);
    assert_eq!(told(&client.subscribe(Cluster, &[])), SILENCE);
    assert_eq!(told(&client.subscribe(Endpoints, &["a"])), SILENCE);
    let resources = [all(Cluster, "a=1"), all(Endpoints, "a=1")].concat();
    assert_eq!(told(&client.publish(&snapshot(&resources))), ["CDS a=1", "EDS a=1"]);
}

#[test]
fn case_11_clusters_and_listeners_by_name_come_as_the_full_requested_set() {
    for kind in [Cluster, Listener] {
        let text = |items: &str| format!("{kind} {items}");
        let mut client = Client::new(StateOfTheWorld);
        client.publish(&snapshot(&all(kind, "a=1 b=1 c=1")));
        let response = only(client.subscribe(kind, &["a", "b"]));
        assert_eq!(tell(&response), text("a=1 b=1"));
        client.ack(&response);
        let response = only(client.publish(&snapshot(&all(kind, "a=1 b=2 c=2"))));
        assert_eq!(tell(&response), text("a=1 b=2"));
        // What is gone is missing from the set, and that is how the client learns it.
        client.ack(&response);
        assert_eq!(told(&client.publish(&snapshot(&all(kind, "b=2")))), [text("b=2")]);
    }
}

#[test]
fn case_12_a_star_is_a_wildcard_of_every_type() {
    for kind in ResourceType::ALL {
        let mut client = Client::new(StateOfTheWorld);
        client.publish(&snapshot(&all(kind, "a=1 b=1")));
        assert_eq!(told(&client.subscribe(kind, &["*"])), [format!("{kind} a=1 b=1")]);
    }
    // An empty list means the same only until something has been named.
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&clusters("a=1 b=1"));
    let named = only(client.subscribe(Cluster, &["a"]));
    assert_eq!(told(&client.answer_with(&named, None, &[]).responses), SILENCE);
    assert_eq!(told(&client.publish(&clusters("a=2 b=2"))), SILENCE);
}
