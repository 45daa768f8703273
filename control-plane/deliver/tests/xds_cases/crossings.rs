//! Answers that cross later responses, on one stream or several. The model test (`tests/xds_model`) found each of
//! these.

use std::time::Duration;

use postern_compile::snapshot::ResourceType::{self, Cluster, Endpoints, Listener, RouteConfiguration};
use postern_deliver::xds::{
    content::Variant::{Incremental, StateOfTheWorld},
    session::{PATIENCE_TO_MAKE, TIME_TO_REJOIN},
};

use crate::client::{BOTH, Client, SILENCE, all, clusters, endpoints, only, snapshot, tell, told};

#[test]
fn case_04_names_that_are_given_anew_are_answered_after_a_refusal_too() {
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&endpoints("a=1"));
    let refused = only(client.subscribe(Endpoints, &["a"]));
    client.nack(&refused, "no");
    assert_eq!(told(&client.request(Endpoints, "", None, &["a"])), SILENCE);
    // The client drops the name and its resource.
    assert_eq!(told(&client.request(Endpoints, "", None, &["b"])), SILENCE);
    assert_eq!(told(&client.request(Endpoints, "", None, &["a"])), ["EDS a=1"]);
}

#[test]
fn case_13_what_a_refused_response_brought_is_not_accepted_with_the_next_one() {
    let mut client = Client::new(Incremental);
    client.publish(&clusters("a=1 b=1"));
    let first = only(client.subscribe(Cluster, &[]));
    let second = only(client.subscribe(Cluster, &["a"]));
    assert_eq!([tell(&first), tell(&second)], ["CDS a=1 b=1", "CDS a=1"]);
    client.nack(&first, "no: a");
    client.ack(&second);
    // No stream ever accepted `b`, so it is no last good version.
    client.publish(&clusters("a=1 b=2"));
    let mut other = Client::of(Incremental, 2, client.session.memory().clone());
    other.publish(&clusters("b=2"));
    let refused = only(other.subscribe(Cluster, &["b"]));
    other.nack(&refused, "no: b");
    let mut next = Client::of(Incremental, 3, client.session.memory().clone());
    next.publish(&clusters("a=1 b=2"));
    assert_eq!(told(&next.subscribe(Cluster, &[])), ["CDS a=1"]);
}

#[test]
fn case_13_what_is_refused_while_it_comes_again_is_not_sent_a_third_time() {
    let mut client = Client::new(Incremental);
    client.publish(&clusters("a=1 b=1"));
    let first = only(client.subscribe(Cluster, &[]));
    let second = only(client.subscribe(Cluster, &["a", "b"]));
    assert_eq!([tell(&first), tell(&second)], ["CDS a=1 b=1", "CDS a=1 b=1"]);
    assert_eq!(told(&client.nack(&first, "no: a").responses), SILENCE);
    assert_eq!(told(&client.ack(&second).responses), SILENCE);
    assert_eq!(told(&client.publish(&clusters("a=1 b=1 c=1"))), ["CDS c=1"]);
}

#[test]
fn case_13_what_was_accepted_by_name_is_no_longer_refused() {
    let mut client = Client::new(Incremental);
    client.publish(&clusters("a=1 b=1"));
    let refused = only(client.subscribe(Cluster, &[]));
    client.nack(&refused, "no");
    let named = only(client.subscribe(Cluster, &["a"]));
    client.ack(&named);
    let mut next = Client::of(Incremental, 2, client.session.memory().clone());
    next.publish(&clusters("a=1 b=1"));
    assert_eq!(told(&next.subscribe(Cluster, &[])), ["CDS a=1"]);
}

#[test]
fn case_13_a_refusal_of_what_came_instead_of_the_refused_is_not_answered() {
    for variant in BOTH {
        let mut client = Client::served(variant, &clusters("a=1 b=1"), &[(Cluster, &[])]);
        let refused = only(client.publish(&clusters("a=1 b=2")));
        client.nack(&refused, "no: b");
        let mut next = Client::of(variant, 2, client.session.memory().clone());
        next.publish(&clusters("a=1 b=2"));
        let instead = only(next.subscribe(Cluster, &[]));
        assert_eq!(tell(&instead), "CDS a=1 b=1");
        assert_eq!(told(&next.nack(&instead, "no").responses), SILENCE, "{variant:?}");
        assert!(!told(&next.publish(&clusters("a=2 b=2"))).is_empty(), "a change is another chance");
    }
}

#[test]
fn case_29_a_removal_that_waited_comes_although_something_else_was_refused() {
    // An Envoy applies the good part of what it refuses, and does not name that when it comes back.
    let offer = clusters("a=1").offer(Cluster);
    let version = offer.set().resources[0].version.to_string();
    let mut client = Client::new(Incremental);
    client.publish(&clusters("a=bad c=1"));
    let refused = only(client.resume(Cluster, &[], &[("a", &version)]).responses);
    assert_eq!(tell(&refused), "CDS a=bad c=1");
    client.nack(&refused, "no: a");
    let refused = only(client.publish(&clusters("a=bad")));
    assert_eq!(tell(&refused), "CDS a=bad", "the client may still name who uses `c`");
    client.nack(&refused, "no: a");
    let removal = only(client.wait(TIME_TO_REJOIN));
    assert_eq!(tell(&removal), "CDS -c");
    assert_eq!(told(&client.nack(&removal, "no").responses), SILENCE);
}

#[test]
fn case_41_what_is_under_way_while_the_wildcard_ends_and_comes_back_is_withdrawn() {
    let mut client = Client::new(Incremental);
    client.publish(&clusters("a=1 b=1"));
    let first = only(client.subscribe(Cluster, &["*"]));
    assert_eq!(told(&client.unsubscribe(Cluster, &["*"])), SILENCE);
    client.publish(&clusters("a=1"));
    // It still has to accept the first response, now that it wants everything again.
    let again = only(client.subscribe(Cluster, &["*"]));
    assert_eq!(tell(&again), "CDS a=1 -b");
    client.ack(&first);
}

#[test]
fn case_43_a_client_that_comes_back_is_sent_nothing_that_is_gone() {
    let routes = |text| snapshot(&all(RouteConfiguration, text));
    let names: &[&str] = &["a", "b"];
    let mut client = Client::served(Incremental, &routes("a=1 b=1"), &[(RouteConfiguration, names)]);
    let removal = only(client.publish(&routes("a=1")));
    let asked = only(client.subscribe(RouteConfiguration, &["a"]));
    client.nack(&asked, "no: a");
    client.nack(&removal, "no");
    let version = asked.content.resources[0].version.to_string();
    let mut next = Client::of(Incremental, 2, client.session.memory().clone());
    next.publish(&routes("a=1"));
    let back = next.resume(RouteConfiguration, names, &[("a", &version)]);
    assert_eq!(told(&back.responses), ["RDS -b"]);
}

#[test]
fn case_44_what_waits_is_not_sent_if_another_stream_refuses_it_meanwhile() {
    let made = |clusters, listeners| snapshot(&[all(Cluster, clusters), all(Listener, listeners)].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &[]), (Listener, &[])];
    for variant in BOTH {
        let mut client = Client::served(variant, &made("x=1", "l=1"), &wanted);
        let waits = made("x=1 y=1", "l=2");
        assert_eq!(client.publish(&waits).len(), 1, "the listener waits for the cluster");
        let mut other = Client::of(variant, 2, client.session.memory().clone());
        other.publish(&waits);
        let refused = only(other.subscribe(Listener, &["l"]));
        other.nack(&refused, "no: l");
        assert_eq!(told(&client.wait(PATIENCE_TO_MAKE + Duration::from_secs(1))), SILENCE, "{variant:?}");
    }
}

#[test]
fn case_44_an_answer_about_something_else_does_not_undo_a_refusal_on_another_stream() {
    let names: &[&str] = &["a", "b"];
    let mut client = Client::served(Incremental, &endpoints("a=1 b=1"), &[(Endpoints, names)]);
    let mut other = Client::of(Incremental, 2, client.session.memory().clone());
    other.publish(&endpoints("a=1 b=1"));
    let refused = only(other.subscribe(Endpoints, &["a"]));
    other.nack(&refused, "no");
    // The first one has `a`, and accepts another change.
    let change = only(client.publish(&endpoints("a=1 b=2")));
    assert_eq!(tell(&change), "EDS b=2");
    client.ack(&change);
    assert_eq!(told(&other.publish(&endpoints("a=1 b=2"))), SILENCE);
    // Nor does it if both want the same.
    client.publish(&endpoints("a=1"));
    assert_eq!(told(&other.publish(&endpoints("a=1"))), SILENCE);
}

#[test]
fn what_a_refused_response_left_out_does_not_come_back_with_the_next() {
    // An Envoy removes what a response leaves out, although it refuses another part of it.
    let make = |clusters: &[(&str, &str)], listener: &str| {
        let clusters = clusters.iter().map(|(name, content)| (Cluster, *name, content.as_bytes()));
        snapshot(&clusters.chain([(Listener, "l", listener.as_bytes())]).collect::<Vec<_>>())
    };
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&make(&[("a", "1"), ("b", "1"), ("c", "1")], "1"));
    for kind in [Cluster, Listener] {
        let first = only(client.subscribe(kind, &[]));
        client.ack(&first);
    }
    let refused = only(client.publish(&make(&[("a", "1"), ("b", "bad"), ("c", "1")], "1")));
    client.nack(&refused, "no: b");
    let removal = only(client.publish(&make(&[("a", "1"), ("b", "bad")], "1")));
    assert_eq!(tell(&removal), "CDS a=1 b=bad");
    client.nack(&removal, "no: b");
    // Removals wait for the new listener, which comes with this one.
    let sent = client.publish(&make(&[("a", "2"), ("b", "bad")], "2"));
    assert_eq!(told(&sent)[0], "CDS a=2 b=bad", "without `c`");
}
