//! The meaning of a request without names, and of `*` beside names: cases 12, 41 and 42.

use postern_compile::snapshot::ResourceType::{self, Cluster, Listener};
use postern_deliver::xds::content::Variant::{Incremental, StateOfTheWorld};

use crate::client::{BOTH, Client, SILENCE, all, clusters, only, snapshot, told};

#[test]
fn case_12_types_that_need_names_get_nothing_without_one_and_all_with_a_star() {
    for variant in BOTH {
        for kind in ResourceType::ALL {
            // Virtual hosts have a base configuration, which is sent without a subscription.
            if kind.is_full_state() || kind == ResourceType::VirtualHost {
                continue;
            }
            let mut client = Client::new(variant);
            client.publish(&snapshot(&all(kind, "a=1 b=1")));
            assert_eq!(told(&client.subscribe(kind, &[])), SILENCE, "{variant:?} {kind}");
            assert_eq!(told(&client.publish(&snapshot(&all(kind, "a=2 b=2")))), SILENCE, "{variant:?} {kind}");
            assert_eq!(told(&client.subscribe(kind, &["b"])), [format!("{kind} b=2")], "{variant:?}");
            let mut client = Client::new(variant);
            client.publish(&snapshot(&all(kind, "a=1 b=1")));
            assert_eq!(told(&client.subscribe(kind, &["*"])), [format!("{kind} a=1 b=1")], "{variant:?}");
        }
    }
}

#[test]
fn case_41_a_name_is_added_to_the_wildcard_of_a_first_request_without_names() {
    for kind in [Cluster, Listener] {
        let made = |text| snapshot(&all(kind, text));
        let mut client = Client::served(Incremental, &made("c0=1 c1=1 c2=1"), &[(kind, &[])]);
        // An Envoy with clusters on demand does this: it asks for one that it may have already.
        let named = client.subscribe(kind, &["c1"]);
        assert_eq!(told(&named), [format!("{kind} c1=1")], "nothing is taken away");
        client.accept_all(named);
        let changed = client.publish(&made("c0=2 c1=1 c2=1 c3=1"));
        assert_eq!(told(&changed), [format!("{kind} c0=2 c3=1")], "it still wants everything");
        client.accept_all(changed);
        // A name that does not exist is answered as removed, and the wildcard stays.
        assert_eq!(told(&client.subscribe(kind, &["c9"])), [format!("{kind} -c9")]);
        assert_eq!(told(&client.publish(&made("c0=3 c1=1 c2=1 c3=1"))), [format!("{kind} c0=3")]);
        // Only unsubscribing from `*` ends the wildcard.
        assert_eq!(told(&client.unsubscribe(kind, &["*"])), SILENCE);
        assert_eq!(told(&client.publish(&made("c0=4 c1=4 c2=4 c3=4"))), [format!("{kind} c1=4")]);
    }
}

#[test]
fn case_41_a_first_request_with_names_is_no_wildcard() {
    let mut client = Client::served(Incremental, &clusters("a=1 b=1"), &[(Cluster, &["a"])]);
    assert_eq!(told(&client.publish(&clusters("a=1 b=2"))), SILENCE);
    client.unsubscribe(Cluster, &["a"]);
    assert_eq!(told(&client.publish(&clusters("a=2 b=3"))), SILENCE, "without any name it wants nothing");
}

#[test]
fn case_41_in_the_state_of_the_world_a_later_list_ends_the_wildcard() {
    let mut client = Client::served(StateOfTheWorld, &clusters("a=1 b=1"), &[(Cluster, &[])]);
    let named = only(client.subscribe(Cluster, &["a"]));
    assert_eq!(told(std::slice::from_ref(&named)), ["CDS a=1"]);
    client.ack(&named);
    assert_eq!(told(&client.publish(&clusters("a=1 b=2"))), SILENCE);
}

#[test]
fn case_42_a_name_that_is_unsubscribed_from_beside_a_wildcard_is_told_again() {
    for first in [&["*"][..], &[]] {
        let mut client = Client::served(Incremental, &clusters("a=1 b=1"), &[(Cluster, first)]);
        for name in ["a", "gone"] {
            let named = client.subscribe(Cluster, &[name]);
            client.accept_all(named);
        }
        assert_eq!(told(&client.unsubscribe(Cluster, &["a"])), ["CDS a=1"], "the wildcard still wants it");
        assert_eq!(told(&client.unsubscribe(Cluster, &["gone"])), ["CDS -gone"]);
        // What was not subscribed to by name cannot be unsubscribed from.
        assert_eq!(told(&client.unsubscribe(Cluster, &["a", "b", "never"])), SILENCE);
        assert_eq!(told(&client.publish(&clusters("a=2 b=2"))), ["CDS a=2 b=2"]);
    }
}
