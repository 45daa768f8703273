//! Virtual hosts on demand: cases 36 and 45.

use std::sync::Arc;

use envoy_types::pb::envoy::{
    config::route::v3::{RouteConfiguration as RouteConfig, Vhds, VirtualHost as WireHost},
    service::discovery::v3::DeltaDiscoveryResponse,
};
use postern_compile::snapshot::ResourceType::{RouteConfiguration, VirtualHost};
use postern_deliver::xds::{Offers, content::Variant::Incremental, session::Response};
use prost::Message;

use crate::client::{Client, SILENCE, only, snapshot, told};

/// Virtual hosts of the route configuration `team/edge`, by name and domains.
fn hosts(routes: &[u8], hosts: &[(&str, &[&str])]) -> Arc<Offers> {
    let encoded: Vec<_> = hosts
        .iter()
        .map(|(name, domains)| {
            let domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
            let host = WireHost { name: (*name).to_owned(), domains, ..Default::default() };
            (format!("team/edge/{name}"), host.encode_to_vec())
        })
        .collect();
    let mut items: Vec<_> = encoded.iter().map(|(name, body)| (VirtualHost, name.as_str(), body.as_slice())).collect();
    items.push((RouteConfiguration, "team/edge", routes));
    snapshot(&items)
}

fn two() -> Arc<Offers> {
    hosts(b"1", &[("shop", &["shop.example", "www.shop.example", "*.shop.example"]), ("rest", &["*"])])
}

fn decoded(content: &postern_deliver::xds::content::Content) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse::decode(content.encoded()).unwrap()
}

#[test]
fn case_36_a_host_is_answered_with_its_virtual_host_and_all_its_names() {
    let mut client = Client::new(Incremental);
    client.publish(&two());
    let response = only(client.subscribe(VirtualHost, &["team/edge/www.shop.example"]));
    let wire = decoded(&response.content);
    assert_eq!(wire.resources.len(), 1);
    assert_eq!(wire.resources[0].name, "team/edge/shop");
    assert_eq!(wire.resources[0].aliases, ["team/edge/shop.example", "team/edge/www.shop.example"]);
    assert!(wire.resources[0].resource.is_some());
    client.ack(&response);
    // By another of its names it is sent again; a wildcard's host is named in the answer.
    let response = only(client.subscribe(VirtualHost, &["team/edge/a.shop.example"]));
    let wire = decoded(&response.content);
    assert_eq!(wire.resources[0].name, "team/edge/shop");
    assert!(wire.resources[0].aliases.contains(&"team/edge/a.shop.example".to_owned()));
    assert_eq!(response.content.names(), ["team/edge/shop"]);
}

#[test]
fn case_36_an_unknown_host_is_answered_with_its_name_and_nothing_behind_it() {
    let mut client = Client::new(Incremental);
    client.publish(&hosts(b"1", &[("shop", &["shop.example"])]));
    let response = only(client.subscribe(VirtualHost, &["team/edge/unknown.example", "other/shop.example"]));
    let wire = decoded(&response.content);
    let unknown: Vec<_> = wire.resources.iter().map(|it| (it.name.as_str(), it.aliases.as_slice())).collect();
    assert_eq!(
        unknown,
        [
            ("other/shop.example", &["other/shop.example".to_owned()][..]),
            ("team/edge/unknown.example", &["team/edge/unknown.example".to_owned()]),
        ]
    );
    assert!(wire.resources.iter().all(|resource| resource.resource.is_none()));
    assert_eq!(wire.removed_resources, Vec::<String>::new());
    client.ack(&response);
    // Created later, it is pushed.
    let created = hosts(b"1", &[("new", &["unknown.example"]), ("shop", &["shop.example"])]);
    assert_eq!(only(client.publish(&created)).content.names(), ["team/edge/new"]);
}

#[test]
fn case_36_virtual_hosts_are_sent_again_after_their_route_configuration() {
    let mut client = Client::served(
        Incremental,
        &two(),
        &[(RouteConfiguration, &["team/edge"]), (VirtualHost, &["team/edge/shop.example"])],
    );
    let changed = [("shop", &["shop.example", "www.shop.example", "*.shop.example"][..]), ("rest", &["*"])];
    let responses = client.publish(&hosts(b"2", &changed));
    let names: Vec<_> = responses.iter().map(|response| response.content.names()).collect();
    assert_eq!(names, [vec!["team/edge"], vec!["team/edge/shop"]]);
}

/// What an Envoy that subscribes to no host gets first.
fn base(snapshot: &Arc<Offers>) -> (Client, Vec<String>) {
    let mut client = Client::new(Incremental);
    client.publish(snapshot);
    let response = only(client.subscribe(VirtualHost, &[]));
    let names = response.content.names().into_iter().map(str::to_owned).collect();
    client.ack(&response);
    (client, names)
}

/// The name and version of each virtual host in a snapshot.
fn versions(snapshot: &Arc<Offers>) -> Vec<(String, String)> {
    let offer = snapshot.offer(VirtualHost);
    offer.set().resources.iter().map(|it| (it.name.clone(), it.version.to_string())).collect()
}

fn come_back(snapshot: &Arc<Offers>, names: &[&str], had: &[(String, String)]) -> (Client, Vec<Response>) {
    let mut client = Client::new(Incremental);
    client.publish(snapshot);
    let had: Vec<_> = had.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    let responses = client.resume(VirtualHost, names, &had).responses;
    (client, responses)
}

/// The names of virtual hosts in responses, with a `-` for removed ones.
fn hosts_of(responses: &[Response]) -> Vec<String> {
    let content = responses.iter().map(|response| &response.content);
    content
        .flat_map(|content| {
            let removed = content.removed.iter().map(|name| format!("-{name}"));
            content.names().into_iter().map(str::to_owned).chain(removed).collect::<Vec<_>>()
        })
        .collect()
}

const SHOP: (&str, &[&str]) = ("shop", &["shop.example", "www.shop.example"]);
const BLOG: (&str, &[&str]) = ("blog", &["blog.example"]);
const NOBODY: &str = "team/edge/nobody.invalid";

#[test]
fn case_45_the_first_answer_has_a_virtual_host_that_answers_404_if_none_matches_every_host() {
    let (mut client, first) = base(&hosts(b"1", &[SHOP, BLOG]));
    assert_eq!(first, [NOBODY]);
    let encoded = hosts(b"1", &[SHOP, BLOG]).offer(VirtualHost);
    let nobody = WireHost::decode(encoded.set().get(NOBODY).unwrap().body.value.as_slice()).unwrap();
    assert_eq!((nobody.domains, nobody.routes.len()), (vec!["nobody.invalid".to_owned()], 0));
    // What is asked for on top is what comes.
    let shop = client.subscribe(VirtualHost, &["team/edge/shop.example"]);
    assert_eq!(hosts_of(&shop), ["team/edge/shop"]);
    client.accept_all(shop);
    assert_eq!(told(&client.publish(&hosts(b"1", &[SHOP, ("blog", &["blog.example", "b"])]))), SILENCE);
    // A route configuration whose hosts are all to come has one, too.
    let vhds = RouteConfig { name: "team/edge".into(), vhds: Some(Vhds::default()), ..Default::default() };
    assert_eq!(base(&hosts(&vhds.encode_to_vec(), &[])).1, [NOBODY]);
    let inline = RouteConfig { name: "team/edge".into(), ..Default::default() };
    assert_eq!(base(&hosts(&inline.encode_to_vec(), &[])).1, Vec::<String>::new());
}

#[test]
fn case_45_a_virtual_host_that_matches_every_host_comes_first_with_all_that_precede_it() {
    // An Envoy that has one for every host never asks for another.
    let (mut client, first) = base(&two());
    assert_eq!(first, ["team/edge/rest", "team/edge/shop"]);
    let changed = hosts(b"1", &[("rest", &["*"]), ("shop", &["shop.example"]), BLOG]);
    assert_eq!(hosts_of(&client.publish(&changed)), ["team/edge/blog", "team/edge/shop"]);
    // The same holds below any wildcard.
    let wild = ("wild", &["*.example"][..]);
    let mut client = Client::new(Incremental);
    client.publish(&hosts(b"1", &[SHOP, wild, ("other", &["other.test"])]));
    let asked = client.subscribe(VirtualHost, &["team/edge/any.example"]);
    assert_eq!(hosts_of(&asked), ["team/edge/shop", "team/edge/wild"]);
}

#[test]
fn case_45_the_base_is_the_same_on_reconnect_and_is_not_sent_again_to_who_has_it() {
    let snapshot = hosts(b"1", &[SHOP, BLOG]);
    let (_, nothing) = come_back(&snapshot, &["team/edge/www.shop.example"], &versions(&snapshot)[1..]);
    assert_eq!(hosts_of(&nothing), Vec::<String>::new(), "by whatever name it asks");
    let had = |names: &[&str]| {
        let all = versions(&snapshot);
        all.into_iter().filter(|(name, _)| names.contains(&name.as_str())).collect::<Vec<_>>()
    };
    let shop = had(&["team/edge/shop"]);
    assert_eq!(hosts_of(&come_back(&snapshot, &["team/edge/shop.example"], &shop).1), [NOBODY]);
    assert_eq!(hosts_of(&come_back(&snapshot, &[], &[]).1), [NOBODY]);
    // What was deleted meanwhile is answered as removed, and what changed is sent.
    let (_, deleted) = come_back(
        &hosts(b"1", &[BLOG]),
        &["team/edge/shop.example", "team/edge/blog.example"],
        &had(&[NOBODY, "team/edge/shop", "team/edge/blog"]),
    );
    assert_eq!(hosts_of(&deleted), ["-team/edge/shop"]);
    let changed = hosts(b"1", &[("shop", &["shop.example"]), BLOG]);
    let (_, sent) = come_back(&changed, &["team/edge/shop.example"], &had(&[NOBODY, "team/edge/shop"]));
    assert_eq!(hosts_of(&sent), ["team/edge/shop"]);
}

#[test]
fn case_45_a_virtual_host_is_unsubscribed_from_by_any_of_its_names_and_told_as_removed() {
    let made = |salt: &'static str| hosts(b"1", &[("shop", &["shop.example", "www.shop.example", salt]), BLOG]);
    for (subscribe, unsubscribe) in [
        ("team/edge/shop.example", "team/edge/shop"),
        ("team/edge/shop", "team/edge/www.shop.example"),
        ("team/edge/shop.example", "team/edge/shop.example"),
        ("team/edge/shop.example", "team/edge/www.shop.example"),
    ] {
        let (mut client, _) = base(&made("a"));
        let shop = client.subscribe(VirtualHost, &[subscribe]);
        client.accept_all(shop);
        let left = client.unsubscribe(VirtualHost, &[unsubscribe]);
        assert_eq!(hosts_of(&left), ["-team/edge/shop"], "{subscribe} {unsubscribe}");
        client.accept_all(left);
        assert_eq!(told(&client.publish(&made("b"))), SILENCE, "{subscribe} {unsubscribe}");
    }
    // As long as another name of it is subscribed to, it stays.
    let (mut client, _) = base(&made("a"));
    let shop = client.subscribe(VirtualHost, &["team/edge/shop.example", "team/edge/www.shop.example"]);
    client.accept_all(shop);
    assert_eq!(told(&client.unsubscribe(VirtualHost, &["team/edge/shop.example"])), SILENCE);
    assert_eq!(hosts_of(&client.publish(&made("b"))), ["team/edge/shop"]);
}

#[test]
fn case_45_the_base_can_be_unsubscribed_from() {
    let (mut client, _) = base(&hosts(b"1", &[SHOP]));
    let left = client.unsubscribe(VirtualHost, &[NOBODY]);
    assert_eq!(hosts_of(&left), [format!("-{NOBODY}")]);
    client.accept_all(left);
    assert_eq!(told(&client.publish(&hosts(b"1", &[SHOP, BLOG]))), SILENCE);
    let (mut client, _) = base(&hosts(b"1", &[("rest", &["*"])]));
    let left = client.unsubscribe(VirtualHost, &["team/edge/rest"]);
    assert_eq!(hosts_of(&left), ["-team/edge/rest"]);
    client.accept_all(left);
    assert_eq!(told(&client.publish(&hosts(b"1", &[("rest", &["*", "r"])]))), SILENCE);
    // And subscribed to again.
    assert_eq!(hosts_of(&client.subscribe(VirtualHost, &["team/edge/rest"])), ["team/edge/rest"]);
}

#[test]
fn case_36_a_removed_virtual_host_is_told_and_pushed_once_it_is_there_again() {
    let (mut client, _) = base(&hosts(b"1", &[SHOP, BLOG]));
    let shop = client.subscribe(VirtualHost, &["team/edge/www.shop.example"]);
    client.accept_all(shop);
    let removed = client.publish(&hosts(b"1", &[BLOG]));
    assert_eq!(hosts_of(&removed), ["-team/edge/shop"]);
    client.accept_all(removed);
    assert_eq!(hosts_of(&client.publish(&hosts(b"1", &[SHOP, BLOG]))), ["team/edge/shop"]);
}

#[test]
fn case_36_virtual_hosts_are_sent_again_on_a_stream_of_their_own_too() {
    let (mut client, _) = base(&hosts(b"1", &[SHOP, BLOG]));
    let shop = client.subscribe(VirtualHost, &["team/edge/shop.example"]);
    client.accept_all(shop);
    let again = client.publish(&hosts(b"2", &[SHOP, BLOG]));
    assert_eq!(hosts_of(&again), [NOBODY, "team/edge/shop"]);
    client.accept_all(again);
    assert_eq!(told(&client.publish(&hosts(b"2", &[SHOP, BLOG]))), SILENCE);
}

#[test]
fn case_36_virtual_hosts_are_sent_again_if_their_route_configuration_came_before_they_were_asked_for() {
    let snapshot = hosts(b"1", &[SHOP, BLOG]);
    let had = versions(&snapshot);
    let had = had.iter().filter(|(name, _)| name != "team/edge/blog");
    let had: Vec<_> = had.map(|(name, version)| (name.as_str(), version.as_str())).collect();
    let resumed = |routes: &str| {
        let mut client = Client::new(Incremental);
        client.publish(&snapshot);
        let routes = client.resume(RouteConfiguration, &["team/edge"], &[("team/edge", routes)]).responses;
        client.accept_all(routes);
        hosts_of(&client.resume(VirtualHost, &["team/edge/shop.example"], &had).responses)
    };
    assert_eq!(resumed("old"), [NOBODY, "team/edge/shop"]);
    let current = snapshot.offer(RouteConfiguration).set().resources[0].version.to_string();
    assert_eq!(resumed(&current), Vec::<String>::new(), "they were not replaced");
}

#[test]
fn case_45_what_comes_with_a_wildcard_brings_what_precedes_its_own_wildcards() {
    let (wild, both, far) =
        (("wild", &["*.example"][..]), ("both", &["b.example", "*.test"][..]), ("far", &["f.test"][..]));
    let mut client = Client::new(Incremental);
    client.publish(&hosts(b"1", &[wild, both, far, ("other", &["other.org"])]));
    let asked = client.subscribe(VirtualHost, &["team/edge/any.example"]);
    assert_eq!(hosts_of(&asked), ["team/edge/both", "team/edge/far", "team/edge/wild"]);
}

#[test]
fn case_45_a_prefix_comes_with_what_precedes_it_and_no_more() {
    let all =
        [("api", &["api.*"][..]), ("rest", &["*"]), ("one", &["api.one"]), ("end", &["*.two"]), ("far", &["far.org"])];
    let mut client = Client::new(Incremental);
    client.publish(&hosts(b"1", &all));
    let asked = client.subscribe(VirtualHost, &["team/edge/api.any"]);
    assert_eq!(hosts_of(&asked), ["team/edge/api", "team/edge/end", "team/edge/one"]);
}

#[test]
fn case_36_the_name_of_a_virtual_host_is_no_alias_of_another_that_would_serve_it() {
    let mut client = Client::new(Incremental);
    client.publish(&hosts(b"1", &[("rest", &["*"]), BLOG]));
    let response = only(client.subscribe(VirtualHost, &["team/edge/blog", "team/edge/any.example"]));
    let wire = decoded(&response.content);
    let rest = wire.resources.iter().find(|it| it.name == "team/edge/rest").unwrap();
    assert_eq!(rest.aliases, ["team/edge/any.example"]);
}

#[test]
fn case_45_a_virtual_host_that_was_left_and_gone_comes_as_a_new_one() {
    let (rest, with_blog) = (("rest", &["*"][..]), hosts(b"1", &[("rest", &["*"]), BLOG]));
    let (mut client, first) = base(&with_blog);
    assert_eq!(first, ["team/edge/blog", "team/edge/rest"]);
    let left = client.unsubscribe(VirtualHost, &["team/edge/blog"]);
    assert_eq!(hosts_of(&left), ["-team/edge/blog"]);
    client.accept_all(left);
    assert_eq!(told(&client.publish(&hosts(b"1", &[rest]))), SILENCE);
    assert_eq!(hosts_of(&client.publish(&with_blog)), ["team/edge/blog"]);
}

#[test]
fn case_45_a_client_that_comes_back_is_told_what_its_names_no_longer_stand_for() {
    let before = hosts(b"1", &[SHOP, BLOG]);
    let after = hosts(b"1", &[("shop", &["www.shop.example"]), ("blog", &["blog.example", "shop.example"])]);
    let had: Vec<_> = versions(&before).into_iter().filter(|(name, _)| name != "team/edge/blog").collect();
    let (_, told) = come_back(&after, &["team/edge/shop.example"], &had);
    assert_eq!(hosts_of(&told), ["team/edge/blog", "-team/edge/shop"]);
}
