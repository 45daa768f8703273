//! Virtual hosts on demand: case 36.

use std::sync::Arc;

use envoy_types::pb::envoy::{
    config::route::v3::VirtualHost as WireHost, service::discovery::v3::DeltaDiscoveryResponse,
};
use postern::{
    snapshot::{
        ResourceType::{RouteConfiguration, VirtualHost},
        Snapshot,
    },
    xds::content::Variant::Incremental,
};
use prost::Message;

use crate::client::{Client, SILENCE, only, snapshot, told};

/// Virtual hosts of the route configuration `team/edge`, by name and domains.
fn hosts(routes: &[u8], hosts: &[(&str, &[&str])]) -> Arc<Snapshot> {
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

fn two() -> Arc<Snapshot> {
    hosts(b"1", &[("shop", &["shop.example", "www.shop.example", "*.shop.example"]), ("rest", &["*"])])
}

fn decoded(content: &postern::xds::content::Content) -> DeltaDiscoveryResponse {
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

#[test]
fn case_36_an_envoy_that_names_no_host_yet_gets_none() {
    let mut client = Client::new(Incremental);
    client.publish(&two());
    let response = only(client.subscribe(VirtualHost, &[]));
    assert_eq!(decoded(&response.content).resources.len(), 0);
    client.ack(&response);
    let host = only(client.subscribe(VirtualHost, &["team/edge/shop.example"]));
    client.ack(&host);
    // Only what is known to the client is updated.
    let changed =
        hosts(b"1", &[("shop", &["shop.example", "www.shop.example", "*.shop.example"]), ("rest", &["*", "r"])]);
    assert_eq!(told(&client.publish(&changed)), SILENCE);
}
