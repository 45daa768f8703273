//! Many types on one stream, their order, and warming: cases 19 to 24.

use std::sync::Arc;

use envoy_types::pb::envoy::{
    config::cluster::v3::{Cluster as WireCluster, cluster::EdsClusterConfig},
    service::discovery::v3::DiscoveryRequest,
};
use postern_compile::snapshot::ResourceType::{
    self, Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration, Secret, VirtualHost,
};
use postern_deliver::xds::{
    Offers,
    content::Variant,
    session::{PATIENCE_TO_BREAK, PATIENCE_TO_MAKE, Response},
    wire::Scope,
};
use prost::Message;
use tonic::Code;

use crate::client::{BOTH, Client, Item, SILENCE, all, only, outcomes, snapshot, tell, told};

#[test]
fn case_19_a_request_without_a_type_is_an_error_and_one_of_an_unknown_type_is_not() {
    let request = |url: &str| DiscoveryRequest { type_url: url.to_owned(), ..Default::default() };
    let status = Scope::Aggregated.read(request("")).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("type_url"), "{status}");
    assert!(Scope::Aggregated.read(request("type.googleapis.com/unheard.of")).unwrap().is_none());
    assert_eq!(Scope::Aggregated.read(request(Listener.type_url())).unwrap().unwrap().kind, Listener);
    // A service of one type needs no type, and takes no other.
    let single = Scope::Single(Cluster);
    assert_eq!(single.read(request("")).unwrap().unwrap().kind, Cluster);
    assert_eq!(single.read(request(Listener.type_url())).unwrap_err().code(), Code::InvalidArgument);
}

const WANTED: [(ResourceType, &[&str]); 7] = [
    (RouteConfiguration, &["r"]),
    (Listener, &[]),
    (ExtensionConfig, &["x"]),
    (Endpoints, &["c"]),
    (Cluster, &[]),
    (Secret, &["s"]),
    (VirtualHost, &["r/v"]),
];

fn everything(version: &str) -> Arc<Offers> {
    let types = [
        (Cluster, "c"),
        (Endpoints, "c"),
        (ExtensionConfig, "x"),
        (Listener, "l"),
        (RouteConfiguration, "r"),
        (Secret, "s"),
        (VirtualHost, "r/v"),
    ];
    let items: Vec<Item<'_>> = types.iter().map(|(kind, name)| (*kind, *name, version.as_bytes())).collect();
    snapshot(&items)
}

#[test]
fn case_20_all_types_change_in_the_order_in_which_they_need_each_other() {
    for variant in BOTH {
        let mut client = Client::served(variant, &everything("1"), &WANTED);
        let responses = client.publish(&everything("2"));
        let kinds: Vec<_> = responses.iter().map(Response::kind).collect();
        let order = [Secret, Cluster, Endpoints, ExtensionConfig, Listener, RouteConfiguration, VirtualHost];
        assert_eq!(kinds, order, "{variant:?}");
        let mut nonces: Vec<_> = responses.iter().map(|response| response.nonce.as_str()).collect();
        nonces.sort_unstable();
        nonces.dedup();
        assert_eq!(nonces.len(), order.len(), "nonces are unique");
    }
}

/// Routes to a cluster that exists.
fn routed_to(cluster: &str) -> Arc<Offers> {
    let clusters = [(Cluster, cluster, &b"1"[..]), (Endpoints, cluster, b"1")];
    snapshot(&[&clusters[..], &[(RouteConfiguration, "r", cluster.as_bytes())], &[(Listener, "l", b"1")]].concat())
}

/// A client whose routes are about to move from `x` to `y`, and what it was sent first.
fn moving(variant: Variant) -> (Client, Vec<Response>) {
    let wanted: [(ResourceType, &[&str]); 4] =
        [(Cluster, &[]), (Endpoints, &["x"]), (Listener, &[]), (RouteConfiguration, &["r"])];
    let mut client = Client::served(variant, &routed_to("x"), &wanted);
    let responses = client.publish(&routed_to("y"));
    (client, responses)
}

const fn y_is_added(variant: Variant) -> &'static str {
    match variant {
        Variant::StateOfTheWorld => "CDS x=1 y=1",
        Variant::Incremental => "CDS y=1",
    }
}

const fn x_is_gone(variant: Variant) -> &'static str {
    match variant {
        Variant::StateOfTheWorld => "CDS y=1",
        Variant::Incremental => "CDS -x",
    }
}

#[test]
fn case_21_a_route_moves_once_its_new_cluster_is_there_and_the_old_one_goes_last() {
    for variant in BOTH {
        let (mut client, added) = moving(variant);
        assert_eq!(told(&added), [y_is_added(variant)], "the route waits for the cluster");
        let moved = client.ack(&added[0]).responses;
        assert_eq!(told(&moved), ["RDS r=y"], "{variant:?}");
        let removed = client.ack(&moved[0]).responses;
        assert_eq!(tell(&removed[0]), x_is_gone(variant));
        client.accept_all(removed);
        assert_eq!(client.session.deadline(), None, "nothing waits any more");
    }
}

#[test]
fn case_21_a_cluster_stays_while_the_routes_that_left_it_are_refused() {
    for variant in BOTH {
        let (mut client, added) = moving(variant);
        let moved = client.ack(&added[0]).responses;
        assert_eq!(told(&client.nack(&moved[0], "no").responses), SILENCE);
        assert_eq!(told(&client.wait(PATIENCE_TO_BREAK * 100)), SILENCE, "{variant:?}");
        // Mended, they are accepted, and it goes.
        let mended = [&[(Cluster, "y", &b"1"[..]), (Endpoints, "y", b"1")][..], &[(RouteConfiguration, "r", b"y2")]];
        let mended = [mended.concat(), vec![(Listener, "l", &b"1"[..])]].concat();
        let moved = client.publish(&snapshot(&mended));
        assert_eq!(told(&moved), ["RDS r=y2"]);
        assert_eq!(tell(&client.ack(&moved[0]).responses[0]), x_is_gone(variant));
    }
}

#[test]
fn case_21_a_cluster_goes_after_a_bounded_time_if_the_routes_are_never_answered() {
    for variant in BOTH {
        let (mut client, added) = moving(variant);
        let moved = client.ack(&added[0]).responses;
        assert_eq!(told(&moved), ["RDS r=y"]);
        assert_eq!(told(&client.wait(PATIENCE_TO_BREAK / 2)), SILENCE, "{variant:?}");
        let removed = client.wait(PATIENCE_TO_BREAK);
        assert_eq!(tell(&removed[0]), x_is_gone(variant));
    }
}

#[test]
fn case_21_each_removal_waits_for_routes_anew() {
    for variant in BOTH {
        let (mut client, added) = moving(variant);
        client.ack(&added[0]);
        assert_eq!(tell(&client.wait(PATIENCE_TO_BREAK)[0]), x_is_gone(variant), "the routes were never answered");
        let moved = client.publish(&routed_to("z"));
        assert!(moved.iter().all(|response| !tell(response).contains("-y")), "{variant:?}: {:?}", told(&moved));
        assert!(variant == Variant::Incremental || tell(&moved[0]).contains("y=1"), "{:?}", told(&moved));
    }
}

/// Routes to the last of some clusters, which all exist.
fn routed_among(clusters: &[&str]) -> Arc<Offers> {
    let items = clusters.iter().map(|name| (Cluster, *name, &b"1"[..]));
    let last = clusters.last().unwrap().as_bytes();
    let rest = [(RouteConfiguration, "r", last), (Listener, "l", b"1")];
    snapshot(&items.chain(rest).collect::<Vec<_>>())
}

#[test]
fn case_21_a_removal_that_joins_others_has_all_the_time_too() {
    for variant in BOTH {
        let wanted: [(ResourceType, &[&str]); 3] = [(Cluster, &[]), (Listener, &[]), (RouteConfiguration, &["r"])];
        let mut client = Client::served(variant, &routed_among(&["z", "y", "x"]), &wanted);
        assert_eq!(told(&client.publish(&routed_among(&["z", "y"]))), ["RDS r=y"], "{variant:?}");
        client.wait(PATIENCE_TO_BREAK / 2);
        // The routes to `y` may still be taken when `y` goes as well.
        assert_eq!(told(&client.publish(&routed_among(&["z"]))), ["RDS r=z"], "{variant:?}");
        assert_eq!(told(&client.wait(PATIENCE_TO_BREAK / 2)), SILENCE, "{variant:?}");
        let removed = client.wait(PATIENCE_TO_BREAK / 2);
        let expected = if variant == Variant::Incremental { "CDS -x -y" } else { "CDS z=1" };
        assert_eq!(told(&removed), [expected], "{variant:?}");
    }
}

#[test]
fn case_21_a_route_moves_after_a_bounded_time_if_its_cluster_is_never_answered() {
    for variant in BOTH {
        let (mut client, _) = moving(variant);
        assert_eq!(told(&client.wait(PATIENCE_TO_MAKE / 2)), SILENCE);
        assert_eq!(told(&client.wait(PATIENCE_TO_MAKE)), ["RDS r=y"], "{variant:?}");
    }
}

#[test]
fn case_21_what_waits_for_a_cluster_is_not_taken_for_accepted() {
    let made = |clusters, routes| snapshot(&[all(Cluster, clusters), all(RouteConfiguration, routes)].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &[]), (RouteConfiguration, &["r", "s"])];
    let mut client = Client::served(Variant::Incremental, &made("x=1", "r=1 s=1"), &wanted);
    let mut responses = client.publish(&made("x=1 y=1", "r=2"));
    assert_eq!(told(&responses), ["CDS y=1", "RDS -s"]);
    let removal = client.ack(&responses.remove(1));
    assert_eq!((told(&removal.responses), outcomes(&removal)), (vec![], vec![]), "it does not run what is in force");
    // Another stream of the node refuses `r`: what it gets instead is not what never came.
    let mut other = Client::of(Variant::Incremental, 2, client.session.memory().clone());
    other.publish(&made("x=1", "r=3"));
    let refused = only(other.subscribe(RouteConfiguration, &["r"]));
    other.nack(&refused, "no");
    let mut next = Client::of(Variant::Incremental, 3, client.session.memory().clone());
    next.publish(&made("x=1", "r=3"));
    assert_eq!(told(&next.subscribe(RouteConfiguration, &["r"])), ["RDS r=1"]);
    // It came to nothing: what is in force is what the client has.
    let back = client.publish_events(&made("x=1 y=1", "r=1"));
    assert_eq!((told(&back.responses), outcomes(&back)), (vec![], vec!["acked"]));
}

#[test]
fn case_21_a_plan_that_calls_a_new_cluster_comes_once_it_is_there() {
    let calls = |clusters: &str, plan: &str| snapshot(&[all(Cluster, clusters), all(ExtensionConfig, plan)].concat());
    for variant in BOTH {
        let mut client = Client::served(variant, &calls("x=1", "p=1"), &[(Cluster, &[]), (ExtensionConfig, &["p"])]);
        let added = client.publish(&calls("x=1 y=1", "p=calls-y"));
        assert_eq!(told(&added), [y_is_added(variant)], "the plan waits for the cluster");
        assert_eq!(told(&client.ack(&added[0]).responses), ["ECDS p=calls-y"], "{variant:?}");
        // Who never answers holds a plan up for a bounded time, and a cluster that only changes does not.
        let added = client.publish(&calls("x=1 y=1 z=1", "p=calls-z"));
        assert_eq!(added.len(), 1, "{:?}", told(&added));
        assert_eq!(told(&client.wait(PATIENCE_TO_MAKE)), ["ECDS p=calls-z"], "{variant:?}");
    }
    for variant in BOTH {
        let mut client = Client::served(variant, &calls("x=1", "p=1"), &[(Cluster, &[]), (ExtensionConfig, &["p"])]);
        assert_eq!(told(&client.publish(&calls("x=2", "p=2"))), ["CDS x=2", "ECDS p=2"], "{variant:?}");
    }
}

#[test]
fn case_22_the_endpoints_of_a_changed_cluster_are_sent_again_right_after_it() {
    let made = |clusters: &str| snapshot(&[all(Cluster, clusters), all(Endpoints, "a=1 b=1")].concat());
    for variant in BOTH {
        let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &[]), (Endpoints, &["a", "b"])];
        let mut client = Client::served(variant, &made("a=1 b=1"), &wanted);
        let responses = client.publish(&made("a=2 b=1"));
        let kinds: Vec<_> = responses.iter().map(Response::kind).collect();
        assert_eq!(kinds, [Cluster, Endpoints], "{variant:?}");
        match variant {
            Variant::StateOfTheWorld => assert_eq!(told(&responses), ["CDS a=2 b=1", "EDS a=1 b=1"]),
            Variant::Incremental => assert_eq!(told(&responses), ["CDS a=2", "EDS a=1"]),
        }
        client.accept_all(responses);
        assert_eq!(told(&client.publish(&made("a=2 b=1"))), SILENCE);
    }
}

#[test]
fn case_22_endpoints_are_not_sent_again_for_a_cluster_that_is_not_sent() {
    let made = |clusters: &str| snapshot(&[all(Cluster, clusters), all(Endpoints, "a=1 b=1")].concat());
    let wanted: [(ResourceType, &[&str]); 2] = [(Cluster, &[]), (Endpoints, &["a", "b"])];
    let mut client = Client::served(Variant::Incremental, &made("a=1 b=1"), &wanted);
    let changed = client.publish(&made("a=2 b=2"));
    client.nack(&changed[0], "no");
    client.ack(&changed[1]);
    // It has refused both, and asks for one.
    assert_eq!(told(&client.subscribe(Cluster, &["a"])), ["CDS a=2", "EDS a=1"]);
}

#[test]
fn case_22_endpoints_go_by_the_name_that_their_cluster_asks_for() {
    let cluster = |timeout: i64| {
        let config = EdsClusterConfig { service_name: "of-a".to_owned(), ..Default::default() };
        let timeout = envoy_types::pb::google::protobuf::Duration { seconds: timeout, nanos: 0 };
        let (eds_cluster_config, connect_timeout) = (Some(config), Some(timeout));
        WireCluster { eds_cluster_config, connect_timeout, ..Default::default() }.encode_to_vec()
    };
    let made = |timeout| snapshot(&[(Cluster, "a", cluster(timeout).as_slice()), (Endpoints, "of-a", b"1")]);
    for variant in BOTH {
        let mut client = Client::served(variant, &made(1), &[(Cluster, &[]), (Endpoints, &["of-a"])]);
        let responses = client.publish(&made(2));
        assert_eq!(told(&responses)[1..], ["EDS of-a=1"], "{variant:?}");
    }
}

#[test]
fn case_23_the_routes_of_a_new_listener_follow_when_they_are_asked_for() {
    let made = |listeners: &str, clusters: &str| {
        let routes = all(RouteConfiguration, "r=1 s=1");
        snapshot(&[all(Cluster, clusters), all(Listener, listeners), routes].concat())
    };
    for variant in BOTH {
        let wanted: [(ResourceType, &[&str]); 3] = [(Cluster, &[]), (Listener, &[]), (RouteConfiguration, &["r"])];
        let mut client = Client::served(variant, &made("l=1", "c=1"), &wanted);
        let listeners = only(client.publish(&made("l=1 m=1", "c=1")));
        assert!(tell(&listeners).contains("m=1"));
        let answered = client.ack(&listeners).responses;
        assert_eq!(told(&answered), SILENCE);
        // Asked for while clusters are unanswered: an Envoy that warms a listener is not kept waiting.
        let clusters = only(client.publish(&made("l=1 m=1", "c=1 d=1")));
        assert_eq!(clusters.kind(), Cluster);
        let names: &[&str] = if variant == Variant::Incremental { &["s"] } else { &["r", "s"] };
        assert!(tell(&only(client.request(RouteConfiguration, "", None, names))).contains("s=1"), "{variant:?}");
    }
}

#[test]
fn case_24_endpoints_of_an_unknown_cluster_do_not_hold_up_the_others() {
    for variant in BOTH {
        let mut client = Client::new(variant);
        client.publish(&snapshot(&all(Endpoints, "a=1 b=1")));
        let response = only(client.subscribe(Endpoints, &["a", "unknown", "b"]));
        assert_eq!(response.content.names(), ["a", "b"], "{variant:?}");
    }
}
