//! Policy discovery over real sockets, with a tonic client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod client;
mod identities;
mod lasting;
mod outages;

use std::{net::SocketAddr, sync::Arc};

use postern::serve::{Sockets, serve};
use postern_deliver::discovery::{Acknowledgement, Options};
use tokio::time::timeout;
use tonic::Code;

use crate::client::{Client, LIMIT, apply, control_plane, guarded, identity, service, start};

#[tokio::test]
async fn is_served_on_the_port_of_xds_with_policies_as_written_and_as_a_plan_that_the_engine_loads() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let sockets = Sockets::bind(any, any).await.unwrap();
    let (plane, address) = (control_plane(), sockets.xds_address().unwrap());
    tokio::spawn(serve(Arc::clone(&plane), sockets));
    // The client connects before anything is in force, and waits.
    let mut client = Client::connect_as(address, "point-1", identity("", "", &[]), true).await;
    let connected = async { while client.health_check().await != (true, String::new()) {} };
    timeout(LIMIT, connected).await.expect("the client is not known");
    apply(&plane, &(guarded("first") + &service(9000))).await;

    let first = client.accept().await;
    assert_eq!(first.policies.len(), 1);
    assert_eq!((first.policies[0].name.as_str(), first.policies[0].kind.as_str()), ("users-api", "RoutePolicy"));
    let spec: serde_json::Value = serde_json::from_str(&first.policies[0].spec).unwrap();
    assert_eq!(spec["request"][0]["params"]["set"]["x-guarded-by"], "first", "{spec}");
    assert!(postern_engine::Plan::load(&first.plan).unwrap().routes() == 1);
    assert_eq!(client.health_check().await, (true, first.version_info.clone()));

    // A change of policies is pushed; an earlier change of something else is not.
    apply(&plane, &(guarded("first") + &service(9001))).await;
    apply(&plane, &(guarded("second") + &service(9001))).await;
    let second = client.accept().await;
    assert!(second.policies[0].spec.contains("second"), "{}", second.policies[0].spec);
    assert_ne!((&first.version_info, &first.nonce), (&second.version_info, &second.nonce));
}

#[tokio::test]
async fn who_waits_for_all_is_told_what_each_client_made_of_the_version() {
    let plane = control_plane();
    let (discovery, address) = start(&plane, Options::default()).await;
    apply(&plane, &guarded("first")).await;
    let mut good = Client::connect(address, "good").await;
    let mut bad = Client::connect(address, "bad").await;
    let first = good.accept().await;
    assert_eq!(bad.next_policies().await, first, "all get the same, under the same nonce");
    bad.answer("", &first.nonce, Some("no such header")).await;

    let groups = timeout(LIMIT, discovery.all_acked()).await.unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].version().unwrap().as_str(), first.version_info);
    let answers: Vec<_> =
        groups[0].clients.iter().map(|client| (client.address.as_str(), client.answer.clone().unwrap())).collect();
    let refused = Acknowledgement::Refused("no such header".to_owned());
    assert_eq!(answers, [("bad", refused), ("good", Acknowledgement::Accepted)]);

    // The next version reaches both. The client that disconnects is waited for only until then.
    apply(&plane, &guarded("second")).await;
    let second = good.accept().await;
    assert_eq!(bad.next_policies().await, second);
    drop(bad);
    let groups = timeout(LIMIT, discovery.all_acked()).await.unwrap();
    assert_eq!(groups[0].version().unwrap().as_str(), second.version_info);
    assert_eq!(groups[0].clients.iter().map(|client| client.address.as_str()).collect::<Vec<_>>(), ["good"]);
}

#[tokio::test]
async fn a_second_stream_of_a_client_ends_the_first() {
    let plane = control_plane();
    apply(&plane, &guarded("first")).await;
    let (_, address) = start(&plane, Options::default()).await;
    let mut first = Client::connect(address, "twin").await;
    first.next_policies().await;
    let mut second = Client::connect(address, "twin").await;
    second.next_policies().await;
    assert_eq!(first.end().await.code(), Code::Aborted);
    assert!(second.health_check().await.0);
}

#[tokio::test]
async fn a_client_without_an_address_or_with_another_than_before_is_told_so() {
    let plane = control_plane();
    apply(&plane, &guarded("first")).await;
    let (_, address) = start(&plane, Options::default()).await;
    for wrong in [String::new(), "x".repeat(300)] {
        let status = Client::connect(address, &wrong).await.end().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("`client_address`"), "{status}");
    }
    // A request has no reason to be large.
    assert_eq!(Client::connect(address, &"x".repeat(100_000)).await.end().await.code(), Code::OutOfRange);
    let mut client = Client::connect(address, "one").await;
    client.next_policies().await;
    client.address = "two".to_owned();
    client.answer("", "", None).await;
    assert_eq!(client.end().await.code(), Code::InvalidArgument);
}
