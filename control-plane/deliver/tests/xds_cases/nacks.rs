//! Refusals and nonces: cases 13 to 18.

use std::time::{Duration, UNIX_EPOCH};

use postern_base::node::NodeIdentity;
use postern_compile::snapshot::ResourceType::{
    self, Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration,
};
use postern_deliver::xds::{
    content::Variant::{Incremental, StateOfTheWorld},
    session::{Event, Memory, PATIENCE_TO_MAKE, Response},
};
use postern_release::fleet::{Fleet, Learnt};

use crate::client::{BOTH, Client, SILENCE, all, clusters, endpoints, only, outcomes, snapshot, tell, told};

#[test]
fn case_13_a_refused_version_is_not_sent_again_and_the_next_one_is() {
    for variant in BOTH {
        for kind in [Cluster, Endpoints, ExtensionConfig, Listener] {
            let make = |content: &str| snapshot(&all(kind, content));
            let mut client = Client::new(variant);
            client.publish(&make("a=bad"));
            let refused = only(client.subscribe(kind, &["a"]));
            assert_eq!(told(&client.nack(&refused, "no").responses), SILENCE, "{variant:?} {kind}");
            // It is not sent again: not after another NACK, not when the same content is published, and not with time.
            client.nack(&refused, "no");
            assert_eq!(told(&client.publish(&make("a=bad"))), SILENCE, "{variant:?} {kind}");
            assert_eq!(told(&client.wait(Duration::from_secs(3600))), SILENCE);
            assert_eq!(told(&client.publish(&make("a=next"))), [format!("{kind} a=next")], "{variant:?}");
        }
    }
}

#[test]
fn case_13_a_client_that_refuses_everything_gets_each_version_once() {
    for variant in BOTH {
        for kind in [Cluster, ExtensionConfig] {
            let mut client = Client::new(variant);
            let mut waiting: Vec<Response> = client.subscribe(kind, &["a"]);
            let mut sent = Vec::new();
            for version in ["a=1", "a=2", "a=3"] {
                waiting.extend(client.publish(&snapshot(&all(kind, version))));
                for _ in 0..100 {
                    let Some(response) = waiting.pop() else { break };
                    sent.push(tell(&response));
                    waiting.extend(client.nack(&response, "never").responses);
                }
            }
            assert_eq!(sent, ["a=1", "a=2", "a=3"].map(|it| format!("{kind} {it}")), "{variant:?}");
        }
    }
}

#[test]
fn case_13_a_refusal_counts_on_the_nodes_next_stream_too() {
    for variant in BOTH {
        for kind in [Cluster, ExtensionConfig] {
            let mut client = Client::served(variant, &snapshot(&all(kind, "a=good")), &[(kind, &["a"])]);
            let bad = snapshot(&all(kind, "a=bad"));
            let refused = only(client.publish(&bad));
            client.nack(&refused, "no");
            let mut next = Client::of(variant, 2, client.session.memory().clone());
            next.publish(&bad);
            assert_eq!(told(&next.subscribe(kind, &["a"])), [format!("{kind} a=good")], "{variant:?}");
            // A node without a last good set has nothing to keep: it gets the refused one once more, unless that could not
            // be applied anyway.
            let mut first = Client::new(variant);
            first.publish(&bad);
            let refused = only(first.subscribe(kind, &["a"]));
            assert_eq!(told(&first.nack(&refused, "no").responses), SILENCE, "{variant:?}");
            let mut next = Client::of(variant, 2, first.session.memory().clone());
            next.publish(&bad);
            let again = next.subscribe(kind, &["a"]);
            let expect = if kind == ExtensionConfig { vec![] } else { vec![format!("{kind} a=bad")] };
            assert_eq!(told(&again), expect, "{variant:?}");
            let answered: Vec<_> = again.iter().flat_map(|again| next.nack(again, "no").responses).collect();
            assert_eq!(told(&answered), SILENCE, "and not again: {variant:?} {kind}");
            assert_eq!(told(&next.publish(&snapshot(&all(kind, "a=next")))), [format!("{kind} a=next")]);
        }
    }
}

#[test]
fn case_13_what_is_left_of_a_refused_set_is_sent_once_the_rest_is_gone() {
    for variant in BOTH {
        for kind in [Cluster, Endpoints, Listener] {
            let mut client = Client::new(variant);
            client.publish(&snapshot(&all(kind, "a=1 b=1")));
            let refused = only(client.subscribe(kind, &["a", "b"]));
            client.nack(&refused, "no");
            // The client has neither, although deletions of some types are not told.
            let left = only(client.publish(&snapshot(&all(kind, "a=1"))));
            assert!(tell(&left).starts_with(&format!("{kind} a=1")), "{variant:?}: {}", tell(&left));
            assert_eq!(outcomes(&client.ack(&left)), ["acked"], "{variant:?} {kind}");
        }
    }
}

#[test]
fn case_21_a_cluster_that_is_kept_for_its_routes_is_kept_as_it_was_accepted() {
    let made =
        |clusters: &str, routes: &str| snapshot(&[all(Cluster, clusters), all(RouteConfiguration, routes)].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &[]), (RouteConfiguration, &["r"])];
    let mut client = Client::served(StateOfTheWorld, &made("x=1 y=1", "r=1"), &wanted);
    let refused = only(client.publish(&made("x=bad y=1 z=bad", "r=1")));
    client.nack(&refused, "x and z are bad");
    // Both are gone, and routes that may use them are on their way: one of them the client has, the other it never had.
    let kept = client.publish(&made("y=2", "r=2"));
    assert_eq!(told(&kept), ["CDS x=1 y=2", "RDS r=2"]);
}

#[test]
fn case_13_what_is_refused_beside_something_kept_is_not_sent_alone() {
    let made =
        |clusters: &str, routes: &str| snapshot(&[all(Cluster, clusters), all(RouteConfiguration, routes)].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &["a", "c"]), (RouteConfiguration, &["r"])];
    let mut client = Client::served(StateOfTheWorld, &made("a=1 c=1", "r=1"), &wanted);
    let kept = client.publish(&made("a=2", "r=2"));
    assert_eq!(told(&kept), ["CDS a=2 c=1", "RDS r=2"]);
    assert_eq!(told(&client.nack(&kept[0], "no").responses), SILENCE);
    // Once more, with all of it accepted before.
    let mut client = Client::served(StateOfTheWorld, &made("a=1 c=1", "r=1"), &wanted);
    let routes = client.publish(&made("a=1", "r=2"));
    assert_eq!(told(&routes), ["RDS r=2"]);
    let named = only(client.subscribe(Cluster, &["a", "c", "x"]));
    assert_eq!(tell(&named), "CDS a=1 c=1");
    assert_eq!(told(&client.nack(&named, "no").responses), SILENCE);
}

#[test]
fn case_27_what_was_refused_and_is_asked_for_may_be_accepted_after_all() {
    let mut client = Client::new(Incremental);
    client.publish(&clusters("a=1 b=1"));
    let refused = only(client.subscribe(Cluster, &[]));
    client.nack(&refused, "a is wrong");
    let asked = only(client.subscribe(Cluster, &["a"]));
    assert_eq!(outcomes(&client.ack(&asked)), Vec::<&str>::new(), "it still lacks the other");
    let asked = only(client.subscribe(Cluster, &["a", "b"]));
    assert_eq!(outcomes(&client.ack(&asked)), ["acked"]);
    assert_eq!(told(&client.publish(&clusters("a=1 b=1"))), SILENCE);
}

#[test]
fn case_13_what_a_refused_set_left_out_is_not_taken_to_be_gone() {
    let mut client = Client::served(StateOfTheWorld, &clusters("a=1 b=1"), &[(Cluster, &["a", "b"])]);
    let refused = only(client.publish(&clusters("a=2")));
    client.nack(&refused, "no");
    // It still has the other, which is not in force.
    assert_eq!(told(&client.subscribe(Cluster, &["b"])), ["CDS"]);
}

#[test]
fn case_14_a_return_to_the_last_good_content_clears_the_refusal() {
    for variant in BOTH {
        for kind in [Cluster, ExtensionConfig, Endpoints] {
            let good = snapshot(&all(kind, "a=good"));
            let mut client = Client::served(variant, &good, &[(kind, &["a"])]);
            let refused = only(client.publish(&snapshot(&all(kind, "a=bad"))));
            let nacked = client.nack(&refused, "no");
            client.accept_all(nacked.responses);
            let back = client.publish_events(&good);
            let mut cleared = outcomes(&back).contains(&"acked");
            for response in &back.responses {
                assert_eq!(tell(response), format!("{kind} a=good"));
                cleared |= outcomes(&client.ack(response)).contains(&"acked");
            }
            assert!(cleared, "{variant:?} {kind}");
        }
    }
}

#[test]
fn case_15_the_names_in_a_refusal_count() {
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&endpoints("a=1 b=1 c=1"));
    let response = only(client.subscribe(Endpoints, &["a", "b"]));
    let answered = client.answer_with(&response, Some("no"), &["a", "c"]);
    assert_eq!(outcomes(&answered), ["nacked"]);
    let next = only(answered.responses);
    assert!(tell(&next).contains("c=1") && !tell(&next).contains("b=1"), "{}", tell(&next));
    client.ack(&next);
    assert_eq!(told(&client.publish(&endpoints("a=1 b=2 c=1"))), SILENCE);
}

#[test]
fn case_16_refusals_are_recorded_by_node_type_and_version() {
    let mut fleet = Fleet::default();
    let node = |id: &str| NodeIdentity { id: id.to_owned(), ..NodeIdentity::default() };
    let now = UNIX_EPOCH + Duration::from_secs(1_000);
    let (edge, other) = (fleet.connect(&node("edge"), now), fleet.connect(&node("other"), now));
    let mut client = Client::of(StateOfTheWorld, edge.stream, edge.memory.recall());
    client.publish(&clusters("a=1 b=1"));
    let response = only(client.subscribe(Cluster, &[]));
    let version = response.content.version.clone();
    let learnt = |events| Learnt { events, reason: None };
    let events = client.nack(&response, "Error adding/updating cluster(s) b: bad").events;
    fleet.record("edge", edge.stream, learnt(events), now);
    let events = vec![Event::Acked { kind: Cluster, version: version.clone() }];
    fleet.record("other", other.stream, learnt(events), now);
    let report = fleet.report();
    let refusal = report[0].types[&Cluster].refused.as_ref().unwrap();
    assert_eq!((&refusal.version, refusal.at), (&version, 1_000));
    assert_eq!(refusal.message, "Error adding/updating cluster(s) b: bad");
    assert_eq!(refusal.resources, ["b"], "the resource that the message names");
    assert!(report[0].types[&Cluster].running.is_none());
    assert_eq!(report[1].types[&Cluster].running.as_ref(), Some(&version));
    assert!(report[1].types[&Cluster].refused.is_none());
}

#[test]
fn case_17_a_stale_nonce_or_one_that_was_never_issued_is_ignored() {
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&endpoints("a=1 b=1"));
    let first = only(client.subscribe(Endpoints, &["a"]));
    let second = only(client.publish(&endpoints("a=2 b=1")));
    for nonce in [first.nonce.as_str(), "1-99", "never", "f-1"] {
        assert_eq!(told(&client.request(Endpoints, nonce, None, &["a", "b"])), SILENCE, "{nonce}");
        assert_eq!(told(&client.request(Endpoints, nonce, Some("no"), &["a", "b"])), SILENCE, "{nonce}");
    }
    // The names in the answer to the latest are the ones that count.
    let answered = client.answer_with(&second, None, &["b"]);
    assert_eq!(outcomes(&answered), ["acked"]);
    assert!(tell(&only(answered.responses)).ends_with("b=1"));
}

#[test]
fn case_17_incremental_subscriptions_count_whatever_the_nonce() {
    let mut client = Client::new(Incremental);
    client.publish(&endpoints("a=1 b=1 c=1"));
    let first = only(client.subscribe(Endpoints, &["a"]));
    let second = only(client.publish(&endpoints("a=2 b=1 c=1")));
    client.ack(&second);
    assert_eq!(told(&client.request(Endpoints, &first.nonce, None, &["b"])), ["EDS b=1"]);
    assert_eq!(told(&client.request(Endpoints, "never", Some("no"), &["c"])), ["EDS c=1"]);
}

#[test]
fn case_17_a_nonce_of_an_earlier_stream_answers_nothing() {
    for variant in BOTH {
        let mut before = Client::of(variant, 1, Memory::default());
        before.publish(&clusters("a=1"));
        let old = only(before.subscribe(Cluster, &[]));
        let mut client = Client::of(variant, 2, Memory::default());
        client.publish(&clusters("a=1"));
        // In a first request it is a left-over; in a later one it must not be taken for an answer to this stream's.
        let response = only(client.request(Cluster, &old.nonce, None, &[]));
        assert_ne!(response.nonce, old.nonce);
        client.request(Cluster, &old.nonce, Some("no"), &[]);
        assert_eq!(client.session.memory().types(), [], "{variant:?}");
    }
}

#[test]
fn case_18_nonces_of_one_type_do_not_move_with_another() {
    let resources = |listener| [all(Cluster, "a=1"), all(Listener, listener)].concat();
    let mut client = Client::new(StateOfTheWorld);
    client.publish(&snapshot(&resources("l=1")));
    let cluster = only(client.subscribe(Cluster, &[]));
    let listener = only(client.subscribe(Listener, &[]));
    client.ack(&listener);
    client.publish(&snapshot(&resources("l=2")));
    // A listener waits for clusters, but not for ever.
    only(client.wait(PATIENCE_TO_MAKE));
    assert_eq!(outcomes(&client.ack(&cluster)), ["acked"]);
}

#[test]
fn case_21_what_was_kept_is_withdrawn_from_a_client_that_refused_to_give_it_up() {
    let made =
        |clusters: &str, routes: &str| snapshot(&[all(Cluster, clusters), all(RouteConfiguration, routes)].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &["a", "c"]), (RouteConfiguration, &["r"])];
    let mut client = Client::served(StateOfTheWorld, &made("a=1 c=1", "r=1"), &wanted);
    let kept = client.publish(&made("a=2", "r=2"));
    assert_eq!(told(&kept), ["CDS a=2 c=1", "RDS r=2"]);
    client.ack(&kept[0]);
    let without = only(client.ack(&kept[1]).responses);
    assert_eq!(tell(&without), "CDS a=2");
    // It refuses that, so it still has `c`; and of what it wants now, nothing is in force.
    assert_eq!(told(&client.answer_with(&without, Some("no"), &["c"]).responses), ["CDS"]);
}

#[test]
fn case_27_who_asks_by_name_is_answered_even_if_that_is_a_set_that_was_refused() {
    let made =
        |clusters: &str, routes: &str| snapshot(&[all(Cluster, clusters), all(RouteConfiguration, routes)].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &[]), (RouteConfiguration, &["r"])];
    let mut client = Client::served(StateOfTheWorld, &made("b=1 c=1", "r=1"), &wanted);
    let refused = only(client.publish(&made("a=1 b=1 c=1", "r=1")));
    client.nack(&refused, "a is bad");
    let accepted = client.publish(&made("b=1 c=1", "r=1"));
    client.accept_all(accepted);
    // With `b`, which the routes may still use, this is the refused set.
    assert_eq!(told(&client.publish(&made("a=1 c=1", "r=2"))), ["RDS r=2"]);
    assert_eq!(told(&client.subscribe(Cluster, &["a", "b", "c"])), ["CDS a=1 b=1 c=1"]);
}
